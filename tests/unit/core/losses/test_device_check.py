"""Which runs ask a device for the right cross-entropy. What they then use: test_losses.py."""

import re
from pathlib import Path

import numpy as np
import paddle
import pytest
from support.forced_device import forced_device

from paddlevit_dist import Trainer
from paddlevit_dist.core import settings
from paddlevit_dist.core.losses import cross_entropies, cross_entropy
from paddlevit_dist.core.registry.lookup import list_names, resolve
from paddlevit_dist.core.tasks.task_factory import make_task

USED = re.compile(
    r"from \.{2,}core\.losses import [^\n]*(cross_entrop|adjusted_losses)|"
    r"from \.{2,}core\.losses import \([^)]*cross_entrop|"
    r"from \.{2,}segmentation\.metrics import [^\n]*point_losses"
)


@pytest.mark.parametrize("name", list_names("task"))
def test_tasks_whose_steps_compute_cross_entropies_say_so(name):
    task = resolve("task", name)
    folder = Path(__import__(task.__module__, fromlist=["_"]).__file__).parent
    uses = [file.name for file in folder.rglob("*.py") if USED.search(file.read_text(encoding="utf-8"))]
    assert task.traits.uses_cross_entropies is bool(uses), uses


@pytest.mark.parametrize(
    "recipe, on_gpu, is_asked",
    [("segformer_b0_shapes", True, True), ("segformer_b0_shapes", False, False), ("vit_digits", True, False)],
)
def test_a_run_on_a_gpu_asks_the_device_once_if_its_task_needs_the_answer(recipe, on_gpu, is_asked, tmp_path):
    """What was in use before is replaced by the first way that is right, which a CPU's own operation is."""
    config = settings.load([f"-cfg={recipe}", f"-output={tmp_path}", "MODEL.NUM_CLASSES", "3"]).values
    task, calls = make_task(config), []
    task.num_classes = 3
    cross_entropy.use(lambda logits, labels, *rest: calls.append(rest) or labels.astype("float32"))
    try:
        with forced_device("gpu" if on_gpu else "cpu"):
            Trainer(config, task, {})
        losses = cross_entropies(paddle.zeros([2, 5]), paddle.to_tensor([1, 3]), -1).numpy()
    finally:
        cross_entropy.use(next(iter(cross_entropy.CANDIDATES.values())))
    np.testing.assert_allclose(losses, [np.log(5)] * 2 if is_asked else [1, 3], rtol=1e-6)
    assert len(calls) == (not is_asked)


def test_what_is_in_use_is_of_its_device(monkeypatch):
    logits, labels = paddle.zeros([2, 5]), paddle.to_tensor([1, 3])
    try:
        with monkeypatch.context() as other:
            other.setattr(paddle, "get_device", lambda: "gpu:0")
            cross_entropy.use(lambda logits, labels, *rest: labels.astype("float32"))
            assert cross_entropies(logits, labels, -1).tolist() == [1, 3]
        np.testing.assert_allclose(cross_entropies(logits, labels, -1).numpy(), [np.log(5)] * 2, rtol=1e-6)
    finally:
        cross_entropy._in_use.clear()
