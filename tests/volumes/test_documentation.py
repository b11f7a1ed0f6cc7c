"""The program of docs/volumes.md, taken from the page and run, and the keys that the page names."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from paddlevit_dist.config.defaults import KEYS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "volumes.md").read_text(encoding="utf-8")


def test_the_program_runs_and_finds_its_points_again():
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict = {}
    exec(program, names)
    np.testing.assert_allclose(names["found"], names["points"], atol=1e-3)
    assert names["old"].shape == (2, 48, 64, 64) and names["old"].max() == 1.0


def test_the_keys_of_the_page_exist():
    named = set(re.findall(r"\b(?:VOLUMES|TRAIN|DATA)\.[A-Z_]+", PAGE)) - {"VOLUMES.", "DATA."}
    assert len(named) > 12 and named <= set(KEYS)
