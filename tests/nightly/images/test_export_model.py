"""Exports of every family of classifiers compute what the network computes."""

import pytest
from integration.images.test_export_model import BY_DAY, require_same_outputs
from support.networks.other_names import REDUCED, small


@pytest.mark.parametrize("name", [name for name in REDUCED if name not in BY_DAY])
def test_every_family_gives_the_same_outputs_for_any_batch(name, tmp_path):
    require_same_outputs(small(name, seed=1), tmp_path)
