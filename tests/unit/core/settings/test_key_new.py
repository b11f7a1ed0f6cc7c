"""A new key is one field, written as CONTRIBUTING says."""

import dataclasses
import inspect
import re
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from paddlevit_dist.core.engine import settings as engine_settings
from paddlevit_dist.core.settings import dump_yaml, every_run, key_tables, load
from paddlevit_dist.core.settings.help import help_text
from paddlevit_dist.core.settings.key import rows
from paddlevit_dist.core.settings.table import effects

CONTRIBUTING = Path(__file__).parents[4] / "CONTRIBUTING.md"
CLASS = 'class TrainSection(Section):\n    """Keys of TRAIN."""\n'


@pytest.fixture
def new_key(monkeypatch):
    """Add the field of CONTRIBUTING to a copy of the module with the keys of every run."""
    (block,) = re.findall(r"```text\n( +MIN_CHANGE.*?)```", CONTRIBUTING.read_text(encoding="utf-8"), re.DOTALL)
    source = inspect.getsource(every_run)
    assert CLASS in source
    copy = ModuleType("every_run_with_a_key")
    copy.__package__ = every_run.__package__  # for its relative imports
    exec(source.replace(CLASS, CLASS + textwrap.indent(textwrap.dedent(block), "    ")), vars(copy))
    table = dataclasses.replace(engine_settings.TABLE, keys=rows(copy.RunSettings))
    others = key_tables.common_tables()[1:]
    monkeypatch.setattr(key_tables, "common_tables", lambda: (table, *others))


def test_a_new_key_is_read_shown_and_kept(new_key, tmp_path):
    assert load([]).values.TRAIN.MIN_CHANGE == 0.5
    assert load(["TRAIN.MIN_CHANGE", "0.25"]).values.TRAIN.MIN_CHANGE == 0.25
    assert load(["-min_change=0.25"]).values.TRAIN.MIN_CHANGE == 0.25
    file = tmp_path / "mine.yaml"
    file.write_text("TRAIN: {MIN_CHANGE: 0.75}\n")
    values = load([f"-cfg={file}"]).values
    assert "  MIN_CHANGE: 0.75\n" in dump_yaml(values) and effects(values)["TRAIN.MIN_CHANGE"] == "neutral"
    assert "-min_change=X" in help_text(["-h"])
    (row,) = re.findall(r"TRAIN.MIN_CHANGE +(.*\n.*)", help_text(["-h", "keys"]))
    assert "smallest change that counts (-min_change, default 0.5)" in " ".join(row.split())


def test_mistakes_with_a_new_key_are_explained(new_key, refuse):
    assert refuse(load, ["TRAIN.MIN_CHANG", "1"]).endswith("is not a known key: the closest is TRAIN.MIN_CHANGE")
    assert refuse(load, ["-min_change=2"]) == "-min_change: TRAIN.MIN_CHANGE is '2': expected a number >= 0 and <= 1"
    assert refuse(load, ["-min_chang=1"]).endswith("did you mean '-min_change'?")
    evaluated = load(["-eval", "-pretrained=x", "-min_change=1"]).notices
    assert evaluated == ["TRAIN.MIN_CHANGE 1.0 (-min_change): no effect: it is for training, and EVAL True (-eval)"]
