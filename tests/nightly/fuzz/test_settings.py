"""Random settings of a recipe of each task: merged, with the same result in any order and from their own file, or
refused in one line that names a key.

FUZZ_CASES of each recipe (300), with a new seed every night: ``FUZZ_SEED=SEED make fuzz`` repeats one, and the command
that a failure names a case.
"""

import pytest
from support.fuzz.night import CASES, SEED
from support.fuzz.settings import RECIPES, find_faults


@pytest.mark.parametrize("recipe", RECIPES)
def test_random_settings_are_merged_or_refused(recipe, tmp_path):
    faults = find_faults(recipe, SEED, CASES, tmp_path)
    assert not faults, "\n".join(faults[:5])
