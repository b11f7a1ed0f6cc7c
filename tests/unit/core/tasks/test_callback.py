"""What a callback learns of a resumed run's history, and of an evaluation's interval."""

import json

import pytest

from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.callback import RunFacts, get_interval_ends

EVENTS = [
    {"kind": "training", "epoch": 1, "update": 3, "loss": 2.0},
    {"kind": "epoch", "epoch": 1},
    {"kind": "evaluation", "epoch": 1, "loss": 1.5, "interval": {"percent": 95, "top-1": [60.0, 70.0], "loss": [1, 2]}},
    {"kind": "training"},
    {"kind": "evaluation", "epoch": 2, "update": 9, "superseded": True},
    {"kind": "evaluation", "epoch": 2, "update": 10, "loss": 1.0},
]


def test_the_history_has_what_counts_with_its_update(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in EVENTS))
    run = RunFacts(tmp_path, load([]).values, True, 3, updates_per_epoch=5, update=10)
    ends = {"top-1 low": 60.0, "top-1 high": 70.0}
    assert list(run.history()) == [EVENTS[0], {**EVENTS[2], "update": 5, **ends}, EVENTS[5]]
    assert list(run._replace(update=0).history()) == []
    assert list(run._replace(folder=tmp_path / "empty").history()) == []
    assert "BASE_LR" in run.config_text


@pytest.mark.parametrize(
    "interval, ends",
    [
        ({"percent": 95, "b": [1.0, 2.0], "a": [3.0, 4.0]}, {"b low": 1.0, "b high": 2.0}),
        ({"percent": 95, "b": None, "a": [3.0, 4.0]}, {}),
        ({"percent": 95}, {}),
    ],
)
def test_the_main_score_has_the_first_interval(interval, ends):
    assert get_interval_ends({"interval": interval}) == ends and get_interval_ends({}) == {}
