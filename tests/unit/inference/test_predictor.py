"""Which tasks can predict."""

from types import SimpleNamespace

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.inference.predictor import prepare_task
from paddlevit_dist.registry import lookup
from paddlevit_dist.tasks import Task


def test_a_task_that_cannot_predict_is_refused_in_one_line(monkeypatch):
    monkeypatch.setitem(lookup.TASKS, "scoring_only", Task)
    source = SimpleNamespace(config=SimpleNamespace(TASK="scoring_only"), learned=None)
    with pytest.raises(UserError, match="^predict: task scoring_only cannot predict new inputs: .* Predictable"):
        prepare_task(source)
