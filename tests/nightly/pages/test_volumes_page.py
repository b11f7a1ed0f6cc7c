"""The program in docs/tutorials/volumes.md, extracted from the page and run, and the keys named there."""

import re

import numpy as np
from nightly.pages.volumes_of_the_page import PAGE

from paddlevit_dist.core.settings.table import find_keys


def test_the_program_runs_and_finds_its_points_again():
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict = {}
    exec(program, names)
    np.testing.assert_allclose(names["found"], names["points"], atol=1e-3)
    assert names["old"].shape == (2, 48, 64, 64) and names["old"].max() == 1.0


def test_the_keys_of_the_page_exist():
    named = set(re.findall(r"\b(?:VOLUMES|TRAIN|DATA)\.[A-Z_]+", PAGE)) - {"VOLUMES.", "DATA."}
    assert len(named) > 12 and named <= set(find_keys())
