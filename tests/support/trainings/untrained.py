"""Weights of a network as a training run would have left them, without the training."""

import json
from collections.abc import Sequence
from pathlib import Path

import paddle

from paddlevit_dist.core import settings
from paddlevit_dist.core.engine.compatibility import describe
from paddlevit_dist.core.tasks.task_factory import make_task


def write_untrained_run(folder: Path, words: Sequence[str]) -> Path:
    """Write ``model.pdparams`` and ``about.yaml`` of the task that a command line configures; returns the weights."""
    folder.mkdir()
    values = settings.load([*words, f"-output={folder}"]).values
    task = make_task(values)
    samples = task.build_dataset("val", folder)
    paddle.seed(0)
    paddle.save(task.build_model().state_dict(), str(folder / "model.pdparams"))
    (folder / "about.yaml").write_text(json.dumps(describe(values, task, {"val": samples})))  # JSON is YAML
    return folder / "model.pdparams"
