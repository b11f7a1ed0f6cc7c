"""Which tasks can predict."""

from types import SimpleNamespace

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.inference.predictor import PredictionDataset, prepare_task
from paddlevit_dist.registry import lookup
from paddlevit_dist.tasks import InputSamples, Task


def test_a_task_that_cannot_predict_is_refused_in_one_line(monkeypatch):
    monkeypatch.setitem(lookup.TASKS, "scoring_only", Task)
    source = SimpleNamespace(config=SimpleNamespace(TASK="scoring_only"), learned=None)
    with pytest.raises(UserError, match="^predict: task scoring_only cannot predict new inputs: .* Predictable"):
        prepare_task(source)


class BrokenFiles(InputSamples):
    names = ("a.png", "b.png")

    def sample(self, index, generator):
        if index:
            raise UserError("b.png: torn")
        raise ValueError("no image")


def test_the_reason_why_an_input_is_unreadable_does_not_repeat_its_name():
    dataset = PredictionDataset(Task(None), BrokenFiles(), np.arange(2))

    assert [dataset.sample(index, None) for index in range(2)] == [(0, None, "ValueError: no image"), (1, None, "torn")]
