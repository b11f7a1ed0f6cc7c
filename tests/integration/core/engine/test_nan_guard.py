"""Updates that are not finite: skipped and counted; the run that ends with them names layer and samples."""

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support.refusals import refusal_of
from support.trainings import small_runs
from support.trainings.runs import read_events

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.engine.queued_step import QueuedStep
from paddlevit_dist.core.registry.lookup import resolve

RUN = ["-batch_size=32", "TRAIN.WARMUP_STEPS", "2", "-epochs=1", "SAVE_EVERY_UPDATES", "1", "KEEP_UPDATES", "20"]


def poisoned(updates: set[int]) -> Any:
    """The task of classification, with an infinite loss in these updates, counted from 1."""

    class Poisoned(resolve("task", "classification")):
        def train_step(self, model: Any, batch: Any, step: Any) -> Any:
            terms = super().train_step(model, batch, step)
            if step.update + 1 in updates:
                terms["loss"] = terms["loss"]._replace(sum=terms["loss"].sum + float("inf"))
            return terms

    return Poisoned


def train(output: Path, updates: set[int], *arguments: str, on_host: bool = True, **options: Any) -> Any:
    trainer = small_runs.build(str(output), *RUN, *arguments, **{"task_class": poisoned(updates), **options})
    trainer.prepare_training()
    trainer.step.on_host = on_host
    trainer.train()
    return trainer


def state_after(output: Path, update: int) -> dict[str, np.ndarray]:
    """Weights and moments, as they were saved."""
    directory = output / "checkpoints" / checkpoint_store.update_name(update)
    weights = paddle.load(str(directory / "model.pdparams"))
    return {**checkpoint_store.read(directory).optimizer, **{name: value.numpy() for name, value in weights.items()}}


def are_equal(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    assert left.keys() == right.keys()
    return all(np.array_equal(value, right[name]) for name, value in left.items())


@pytest.mark.parametrize("on_host", [True, False], ids=["as on a CPU", "as on a GPU"])
def test_a_skipped_update_changes_nothing_is_counted_and_enters_no_mean(tmp_path, on_host):
    train(tmp_path, {1, 4}, on_host=on_host)
    states = {update: state_after(tmp_path, update) for update in range(1, 6)}
    assert not are_equal(states[5], states[4])
    assert states[4].keys() == states[3].keys()
    for name, value in states[4].items():
        is_moment = name.startswith("moment")
        np.testing.assert_array_max_ulp(value, states[3][name], 1 if is_moment and not on_host else 0)
    told = [event for event in read_events(tmp_path) if event["kind"] == "training"]
    assert [event["skipped_updates"] for event in told] == [1, 1, 1, 2, 2, 2, 2, 2, 2, 2]
    assert ["loss" in event for event in told] == [update not in (1, 4) for update in range(1, 11)]
    epoch = next(event for event in read_events(tmp_path) if event["kind"] == "epoch")
    assert epoch["loss"] == pytest.approx(np.mean([event["loss"] for event in told if "loss" in event]))
    assert "2 skipped so far" in (tmp_path / "log.txt").read_text()


class Normalized(paddle.nn.Layer):
    """A model with running statistics; ``scale`` is what its input is multiplied by."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = paddle.nn.Conv2D(1, 4, 3, padding=1, bias_attr=False), paddle.nn.BatchNorm2D(4)
        self.head, self.scale = paddle.nn.Linear(4 * 256, 10), 1.0

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.norm(self.conv(images * (self.scale if self.training else 1.0))).flatten(1))


def blinded(updates: set[int], passes: list[str]) -> Any:
    """A task whose model has infinite images in these updates, and so statistics that are not finite either."""

    class Blinded(resolve("task", "classification")):
        def build_model(self) -> paddle.nn.Layer:
            return Normalized()

        def train_step(self, model: Any, batch: Any, step: Any) -> Any:
            passes.append(f"passes {step.update + 1}")
            model.scale = float("inf") if step.update + 1 in updates else 1.0
            return super().train_step(model, batch, step)

    return Blinded


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD", "Lion"])
@pytest.mark.parametrize("every", [0, 3], ids=["no save", "saves"])
def test_on_a_gpu_the_next_passes_are_queued_before_the_host_looks_and_nothing_else_differs(
    tmp_path, monkeypatch, optimizer, every
):
    arguments = ["TRAIN.OPTIMIZER.NAME", optimizer, "TRAIN.MODEL_EMA", "True", "SAVE_EVERY_UPDATES", str(every)]
    course: list[str] = []
    wait = QueuedStep.wait
    monkeypatch.setattr(QueuedStep, "wait", lambda self: course.append("look") or wait(self))
    states = []
    for on_host in (True, False):
        course.clear()
        folder = tmp_path / str(on_host)
        train(folder, set(), *arguments, on_host=on_host, task_class=blinded({2, 3, 7, 10}, course))
        if on_host:
            assert course == [f"passes {update}" for update in range(1, 11)]
        (last,) = (folder / "checkpoints").glob("epoch_*")
        told = [event for event in read_events(folder) if event["kind"] in ("training", "epoch", "evaluation")]
        times = ("time", "seconds", "samples_per_second", "data_wait_fraction", "memory_mib")
        states.append(
            (
                {path.name: paddle.load(str(path)) for path in last.glob("*.pd*")},
                checkpoint_store.read(last).optimizer,
                [{key: value for key, value in event.items() if key not in times} for event in told],
            )
        )
    seen = iter(course)
    expected = ["passes 1", "passes 2", "look", "passes 3", "look"]  # 2 is bad: what was begun meanwhile is begun again
    if not every:
        assert [next(seen) for _ in range(8)] == [*expected, "passes 3", "passes 4", "look"]
    assert course.count("look") == 10
    assert_equal(*states, tolerance=0.0 if optimizer == "Lion" else 1e-5)  # others' moments are equal to one rounding


def assert_equal(left: Any, right: Any, tolerance: float) -> None:
    """Numbers are equal to a tolerance, or bit for bit if it is 0."""
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for name, value in left.items():
            assert_equal(value, right[name], tolerance)
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for pair in zip(left, right):
            assert_equal(*pair, tolerance)
    elif isinstance(left, paddle.Tensor):
        assert_equal(left.numpy(), right.numpy(), tolerance)
    elif isinstance(left, (float, np.ndarray)) and tolerance:
        np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_equal(left, right)


def test_several_in_a_row_end_the_run_also_across_a_resume_and_others_do_not(tmp_path):
    arguments = ["TRAIN.MAX_SKIPPED_UPDATES", "3"]
    with pytest.raises(UserError, match="update 8 in epoch 1 is not finite, nor were the 2 before"):
        train(tmp_path, {2, 3, 6, 7, 8}, *arguments)
    assert not (tmp_path / "not_finite").exists()
    with pytest.raises(UserError, match="update 8 in epoch 1"):  # 6 and 7 are in the checkpoint that it goes on from
        train(tmp_path, {8}, *arguments, "-resume=auto")


class LogOfBrightness(paddle.nn.Layer):
    """Infinite, or its slope, for an image that is darker than a threshold."""

    def __init__(self, threshold: float, in_backward: bool) -> None:
        super().__init__()
        self.threshold, self.in_backward = threshold, in_backward

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        brightness = images.mean(axis=[1, 2, 3]) - self.threshold  # (batch,)
        above = brightness * (brightness > 0).astype("float32")
        # The square root is 0 at 0, and its slope there infinite.
        return paddle.sqrt(above) if self.in_backward else paddle.log(above)


class Brightness(paddle.nn.Layer):
    def __init__(self, threshold: float, in_backward: bool) -> None:
        super().__init__()
        self.first = paddle.nn.Conv2D(1, 1, 1)
        self.log = LogOfBrightness(threshold, in_backward)
        self.head = paddle.nn.Linear(256, 10)
        paddle.nn.initializer.Constant(1.0)(self.first.weight)

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        return self.head(images.flatten(1)) + self.log(self.first(images))[:, None]


def brightness(threshold: float, in_backward: bool) -> Any:
    """The task of classification with a model of the digits that cannot take images darker than ``threshold``."""

    class OfBrightness(resolve("task", "classification")):
        def build_model(self) -> paddle.nn.Layer:
            return Brightness(threshold, in_backward)

    return OfBrightness


@pytest.mark.parametrize("on_host", [True, False], ids=["as on a CPU", "as on a GPU"])
@pytest.mark.parametrize("in_backward", [False, True], ids=["forward", "backward"])
def test_the_run_that_ends_names_the_layer_and_the_samples(tmp_path, in_backward, on_host):
    arguments = [*RUN, "TRAIN.MAX_SKIPPED_UPDATES", "1", "-accum_iter=2", "-batch_size=16"]
    seen = small_runs.build(str(tmp_path / "seen"), *arguments)
    seen.prepare_training()
    images = [seen.task.normalize(batch["images"]) for batch in itertools.islice(seen.loader.epochs(1, 1), 2)]
    brightnesses = np.concatenate([batch.mean(axis=[1, 2, 3]).numpy() for batch in images])
    threshold = float(np.sort(brightnesses)[2:4].mean())  # 3 are darker
    order = np.random.default_rng([0, 1]).permutation(320)[:32]  # the sampler's definition: seed and epoch
    dark = set(order[brightnesses < threshold].tolist())

    task = brightness(threshold, in_backward)
    arguments += ["SAVE_EVERY_UPDATES", "0"]
    message = refusal_of(train, tmp_path / "run", set(), *arguments, on_host=on_host, task_class=task)
    lines = (tmp_path / "run" / "log.txt").read_text().splitlines()
    what = "the gradient of the output of layer 'first' (Conv2D)" if in_backward else "the output of layer 'log'"
    assert what in message and sum(what in line for line in lines) >= 1, lines
    assert any(line.endswith(f"stops at: {'sqrt_grad' if in_backward else 'log'}") for line in lines)
    named = {int(found[1]) for line in lines if (found := re.search(r"    (\d+) .*digits", line))}
    assert named and named <= dark
    others = sum("also in rank 0, micro-batch 1" in line for line in lines)
    assert named == dark or others == 1
