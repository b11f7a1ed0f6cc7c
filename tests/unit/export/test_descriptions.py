"""Which tasks have models that can be exported."""

from types import SimpleNamespace

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.export.descriptions import require_exportable
from paddlevit_dist.images import Classification
from paddlevit_dist.settings import load
from paddlevit_dist.tasks import Exportable, Task


def test_a_task_without_an_export_is_refused_in_one_line():
    with pytest.raises(UserError, match="^export: task scoring_only does not support it: its class is not Exportable$"):
        require_exportable(Task(SimpleNamespace(TASK="scoring_only")))


def test_a_classifier_can_be_exported():
    task = Classification(load(["-cfg=vit_digits"]).values)
    assert isinstance(require_exportable(task), Exportable)
