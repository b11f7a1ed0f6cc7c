"""For what the host waits in an update, counted on a CPU as if it were a GPU."""

import sys
from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np
import paddle
import pytest
from support.trainings.small_runs import TINY
from support.waits import counted_waits

from paddlevit_dist.core import settings
from paddlevit_dist.core.engine import TrainStep
from paddlevit_dist.core.engine.model_ema import ModelEma
from paddlevit_dist.core.engine.nan_guard import BufferSnapshot, NonFiniteGuard
from paddlevit_dist.core.engine.optimizer import build_optimizer
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.launch import status
from paddlevit_dist.core.logging.meters import StepMeters
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.step_types import StepPosition

STEPS = 3
PLAIN = "MODEL.NUM_CLASSES 10 DATA.IMAGE_SIZE 16 TRAIN.MIXUP_ALPHA 0 TRAIN.CUTMIX_ALPHA 0 MODEL.DROPOUT 0".split()


class Run:
    """Updates of a tiny ViT, by what a training makes of them."""

    def __init__(self, optimizer: str, scales: bool, on_host: bool = False, depth: int = 2, **clips: Any) -> None:
        values = settings.load([*TINY, *PLAIN, "TRAIN.OPTIMIZER.NAME", optimizer, "MODEL.DEPTH", str(depth)]).values
        self.task = resolve("task", "classification")(values)
        paddle.seed(0)
        self.model = self.task.build_model()
        self.optimizer = build_optimizer(values.TRAIN.OPTIMIZER, self.model, None, 0.05)
        self.precision = TrainingPrecision(scales, "float16", on_gpu=scales)
        self.precision.enabled = False  # no kernels for it here; the scale is kept
        self.nan_guard = NonFiniteGuard(limit=5)
        self.average = ModelEma(self.model, 0.9)
        self.train_step = TrainStep(
            self.task,
            self.model,
            self.optimizer,
            self.precision,
            seed=0,
            samples_per_update=4,
            accumulation_steps=1,
            **{"gradient_clip": 0.1, **clips},
            nan_guard=self.nan_guard,
            on_host=on_host,
            average=self.average,
        )
        self.meters = StepMeters()

    def update(self, number: int, bad: bool = False) -> None:
        self.made = self._update(self.batch(number, bad), number)

    def batch(self, number: int, bad: bool) -> dict[str, Any]:
        images = np.random.default_rng(number).standard_normal((4, 3, 16, 16)).astype("float32")
        images = images * np.float32(np.inf) if bad else images
        return {"images": paddle.to_tensor(images), "labels": paddle.to_tensor(np.arange(4))}

    def _update(self, batch: dict[str, Any], number: int) -> Any:
        with counted_waits() as waits:
            terms = self.train_step([batch], StepPosition(1, number, STEPS), 1e-3)
            if self.train_step.finite:
                self.meters.add(terms[0])
        return waits

    def state(self) -> dict[str, np.ndarray]:
        state = {**self.model.state_dict(), **{f"average {k}": v for k, v in self.average.state_dict().items()}}
        return {name: tensor.numpy() for name, tensor in state.items()}


@pytest.mark.parametrize(
    "optimizer, scales", [("AdamW", False), ("AdamW", True), ("SGD", False), ("Lion", True), ("Muon", True)]
)
def test_the_host_waits_once_also_where_an_update_is_skipped(optimizer, scales, monkeypatch):
    run = Run(optimizer, scales)
    run.update(0)  # tries the optimizer once
    kept, copy = [], BufferSnapshot.__init__
    monkeypatch.setattr(BufferSnapshot, "__init__", lambda self, tensors: copy(self, kept.extend(tensors) or []))
    for number, bad in ((1, False), (2, True), (3, False)):
        run.update(number, bad)
        assert len(run.made) == 1 and run.made.transfers == 0, run.made
        assert run.train_step.finite != bad
    assert kept == []  # neither weights nor moments are copied; this model has no statistics
    assert run.nan_guard.total == 1


# What only asks a tensor for what the host knows, and views.
FREE = {"data_ptr", "is_contiguous", "is_dense", "element_size", "_grad_ivar", "reshape"}
FREE |= {"item"}  # of a power of a beta


def count_queued(run: Run, number: int, free: Collection[str] = FREE) -> Counter:
    """Make an update, and count by name what Python calls of Paddle after its passes, until gradients are cleared."""
    found: Counter = Counter()
    backward, clear = run.precision.backward, run.optimizer.clear_grad

    def note(frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ not in free:
            is_method = isinstance(getattr(called, "__self__", None), paddle.Tensor)
            if is_method or getattr(paddle._C_ops, called.__name__, None) is called:
                found[called.__name__] += 1

    def pass_backward(loss: paddle.Tensor) -> None:
        backward(loss)
        sys.setprofile(note)

    def clear_gradients(*given: bool) -> None:
        sys.setprofile(before)
        clear(*given)

    before = sys.getprofile()
    run.precision.backward, run.optimizer.clear_grad = pass_backward, clear_gradients
    try:
        run.update(number)
    finally:
        sys.setprofile(before)
        run.precision.backward, run.optimizer.clear_grad = backward, clear
    return found


@pytest.mark.parametrize(
    "optimizer, scales, limit", [("AdamW", True, 40), ("SGD", False, 40), ("Lion", False, 60), ("Muon", False, 140)]
)
def test_a_step_is_as_many_operations_for_any_number_of_parameters(optimizer, scales, limit):
    counts = []
    for depth in (2, 4):  # with one block some shapes are there once, and need no joining
        run = Run(optimizer, scales, depth=depth)
        run.update(0)
        counts.append(count_queued(run, 1))
        assert len(run.train_step.parameters) == 8 + 12 * depth
    assert counts[0] == counts[1]
    assert 15 <= sum(counts[0].values()) <= limit, counts[0]


def test_the_norm_reshapes_no_gradient():
    """Each call holds the host for 2 microseconds, and no kernel is launched by it."""
    run = Run("AdamW", False)
    run.update(0)
    made = count_queued(run, 1, FREE - {"reshape"})
    assert made["reshape"] == 0 < made.total() and max(parameter.ndim for parameter in run.train_step.parameters) > 1


@pytest.mark.parametrize(
    "optimizer, clip, clips_each", [("SGD", 0.1, False), ("SGD", 0.4, True), ("SGD", None, True), ("AdamW", 0.1, False)]
)
def test_neither_a_loss_scale_nor_a_queue_changes_a_weight(optimizer, clip, clips_each):
    """The scale is a power of two: scaled gradients, their norm and what is clipped are the same numbers."""
    clips = {"gradient_clip": clip, "clips_each": clips_each}
    runs = Run(optimizer, False, on_host=True, depth=1, **clips), Run(optimizer, True, depth=1, **clips)
    for run in runs:
        for number in range(STEPS):
            run.update(number, bad=number == 1)
    plain, scaled = (run.state() for run in runs)
    for name, value in plain.items():
        np.testing.assert_allclose(scaled[name], value, rtol=1e-6, atol=1e-7, err_msg=name)
    assert runs[1].precision.scale == 32768.0
    assert runs[1].train_step.gradient_norm == pytest.approx(runs[0].train_step.gradient_norm, rel=1e-6)


@pytest.mark.parametrize("bad", [set(), {2}, {3, 4}])
def test_passes_that_were_queued_with_an_outdated_scale_are_made_again(bad):
    """The third update would double the scale, a bad one halves it."""
    runs = [Run("AdamW", True) for _ in range(2)]
    scales: list[list[float]] = [[], []]
    for run, queues, seen in zip(runs, (False, True), scales):
        run.precision.load_state_dict({**run.precision.state_dict(), "incr_count": 1998})
        backward = run.precision.backward
        run.precision.backward = lambda loss, run=run, seen=seen, to=backward: (
            seen.append(run.precision.scale) or to(loss)
        )
        for number in range(6):
            batch = run.batch(number, number in bad)
            (run.train_step.launch if queues else run.train_step)([batch], StepPosition(1, number, 6), 1e-3)
        run.train_step.flush()
    for name, value in runs[0].state().items():
        assert value.tobytes() == runs[1].state()[name].tobytes(), name
    assert runs[0].precision.state_dict() == runs[1].precision.state_dict()
    assert len(scales[0]) == 6 < len(scales[1])
    assert set(scales[1]) == set(scales[0])


@pytest.mark.parametrize("on_host", [True, False])
def test_only_on_a_gpu_a_rank_may_wait_for_others_in_its_passes_and_for_the_flag(on_host, monkeypatch):
    run = Run("AdamW", False, on_host)
    seen = []
    inner = status._notes.write

    def write() -> None:
        inner()
        seen.append((status._notes.detail, bool(status._notes.waits)))

    monkeypatch.setattr(status._notes, "write", write)
    run.train_step([{"images": paddle.zeros([4, 3, 16, 16]), "labels": paddle.arange(4)}], StepPosition(1, 0, 1), 1e-3)
    expected = [("in its forward pass", False), ("in its backward pass", not on_host), ("in its optimizer step", False)]
    if not on_host:
        expected += [("waiting for its device", True), ("in its optimizer step", False)]
    assert seen == expected
