"""A task with state: a center over all ranks and an average; resumed after a kill, on other ranks, and sharded."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support.processes import run_together, run_workers
from support.trainings import small_runs
from support.trainings.runs import read_events

from paddlevit_dist import UserError, rank
from paddlevit_dist.core.checkpoint import store as checkpoints
from paddlevit_dist.core.distributed import all_reduce_sum
from paddlevit_dist.core.engine.model_ema import ModelEma
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks import StateKeeping, TaskState

MODULE = "integration.core.distributed.test_task_state"
RUN = "-epochs=1 TRAIN.WARMUP_STEPS 2 TRAIN.BASE_LR 1e-3 TRAIN.WEIGHT_DECAY_END 0.2 SAVE_IN_BACKGROUND False".split()
RUN += "SAVE_EVERY_UPDATES 4 KEEP_UPDATES 9 TRAIN.MIXUP_ALPHA 0 TRAIN.CUTMIX_ALPHA 0".split()
UPDATES, FROZEN = 10, 2  # the head is frozen in the first updates


class OwnAverage(ModelEma):
    is_compared = False


class Center(TaskState):
    """The mean of all outputs, moved after each step; with batch norms that no gradient reaches."""

    def __init__(self, model: Any) -> None:
        self.model, self.average = model, OwnAverage(model, 0.5)
        self.center, self.outputs = paddle.zeros([10]), []
        self.norm = paddle.nn.BatchNorm1D(10)
        self.layers = [self.norm]

    def tensors(self) -> dict[str, paddle.Tensor]:
        return {"center": self.center, "mean": self.norm._mean}

    def restart(self) -> None:
        paddle.assign(paddle.full([10], 0.5), output=self.center)

    def before_update(self, step: Any) -> None:
        if step.update < FROZEN:
            for parameter in self.model.head.parameters():
                parameter.clear_gradient(False)

    @paddle.no_grad()
    def update(self, is_bad: paddle.Tensor | None = None) -> None:
        total = all_reduce_sum(paddle.concat([paddle.add_n(self.outputs), paddle.full([1], float(self.rows))]))
        change = (total[:10] / total[10:] - self.center) * 0.25
        self.center.add_(change if is_bad is None else paddle.where(is_bad, paddle.zeros_like(change), change))


class Centered(resolve("task", "classification"), StateKeeping):
    """Classification whose outputs are centered."""

    def build_state(self, model: Any, owned: set[str] | None) -> TaskState:
        self.own = Center(model)
        return self.own

    def train_step(self, model: Any, batch: Any, step: Any) -> Any:
        if step.update + 1 in self.dies_at and rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        terms = super().train_step(lambda images: self._center(model(images), step), batch, step)
        if step.update + 1 in self.bad and rank() == 1:
            terms["loss"] = terms["loss"]._replace(sum=terms["loss"].sum + float("inf"))
        return terms

    def _center(self, logits: Any, step: Any) -> Any:
        self.own.outputs = (self.own.outputs if step.micro else []) + [logits.detach().sum(axis=0)]
        self.own.rows = len(self.own.outputs) * len(logits)
        self.own.norm(logits.detach())
        return logits - self.own.center


def train(output: str, words: list[str], bad: tuple = (), dies_at: tuple = (), on_host: bool = True) -> dict[str, Any]:
    """Train ten updates of 32 samples."""
    trainer = small_runs.build(output, *RUN, *words, task_class=Centered, train_size=32 * UPDATES)
    trainer.task.bad, trainer.task.dies_at = bad, dies_at
    trainer.prepare_training()
    trainer.step.on_host = on_host
    heads = [trainer.model.head.weight.numpy().copy()]
    launch = trainer.step.launch

    def watch(*arguments: Any) -> Any:
        results = launch(*arguments)
        heads.append(trainer.model.head.weight.numpy().copy())
        return results

    trainer.step.launch = watch
    trainer.train()
    return {"moved": [not np.array_equal(*pair) for pair in zip(heads, heads[1:])], "skipped": trainer.nan_guard.total}


def saved(folder: Path, name: str = "last") -> dict[str, np.ndarray]:
    directory = folder / "checkpoints" / name
    state = checkpoints.read(directory)
    values = {**{f"moment {key}": value for key, value in state.optimizer.items()}, **state.own}
    for file in ("model.pdparams", "model_ema.pdparams"):
        values.update({f"{file} {key}": tensor.numpy() for key, tensor in paddle.load(str(directory / file)).items()})
    return values


def differences(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> float:
    assert left.keys() == right.keys() and {"center", "mean"} < left.keys()
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def runs(folder) -> dict[str, list[dict[str, Any]]]:
    two, sharding = ["-batch_size=16"], ["TRAIN.SHARDING", "optimizer"]

    def call(name: str, words: list[str], *more: Any) -> tuple:
        return f"{MODULE}:train", (str(folder / name), words, *more)

    killed = run_workers(*call("killed", [*two, *sharding])[:1], str(folder / "killed"), [*two, *sharding], (), (6,))
    assert killed.code == 1 and "SIGKILL" in killed.err
    middle = f"-resume={folder / 'two' / 'checkpoints' / 'update_00000004'}"
    calls = {
        "two": call("two", two),
        "sharded": call("sharded", [*two, *sharding]),
        "killed": call("killed", [*two, *sharding, "-resume=auto"]),
        "bad": call("bad", two, (3, 7)),
        "bad, queued": call("bad, queued", two, (3, 7), (), False),
    }
    alone = {
        "one": call("one", ["-batch_size=32"]),
        "accumulated": call("accumulated", ["-batch_size=16", "-accum_iter=2"]),
        "resumed": call("resumed", ["-batch_size=32", middle]),
    }
    return {**run_together(calls, 2), **run_together(alone, 1)}


def test_a_killed_and_resumed_run_ends_with_the_state_of_a_straight_one(runs, folder):
    assert differences(saved(folder / "killed"), saved(folder / "sharded")) == 0


@pytest.mark.parametrize(
    "name, plain", [("sharded", "two"), ("one", "two"), ("resumed", "two"), ("bad, queued", "bad")]
)
def test_state_is_that_of_other_processes_and_shards_to_rounding(runs, folder, name, plain):
    left, right = saved(folder / name), saved(folder / plain)
    if name != "sharded":  # local batch norms have the statistics of their rank
        left.pop("mean"), right.pop("mean")
        left["mean"] = right["mean"] = np.zeros(1)
    assert differences(left, right) < 2e-5


def test_accumulated_centers_are_those_of_whole_batches(runs, folder):
    one, accumulated = saved(folder / "one"), saved(folder / "accumulated")
    np.testing.assert_allclose(accumulated["center"], one["center"], atol=1e-6)


def test_cleared_gradients_leave_a_layer_where_it_is(runs):
    for name in ("two", "sharded", "one"):
        assert runs[name][0]["moved"] == [False] * FROZEN + [True] * (UPDATES - FROZEN)
    assert runs["bad"][0]["skipped"] == runs["bad, queued"][0]["skipped"] == 2


def test_only_the_average_of_the_task_is_evaluated(runs, folder):
    kinds = [event["kind"] for event in read_events(folder / "two")]
    assert kinds.count("evaluation") == 1 and "evaluation_without_average" not in kinds


def test_other_state_and_a_second_average_are_refused(runs, folder, tmp_path):
    with pytest.raises(UserError, match=r"TRAIN\.MODEL_EMA .* averages its weights itself"):
        small_runs.build(
            str(tmp_path), *RUN, "-batch_size=16", "TRAIN.MODEL_EMA", "True", task_class=Centered
        ).prepare_training()
    state = checkpoints.read(folder / "two" / "checkpoints" / "last").own
    own = Center(paddle.nn.Linear(2, 10))
    with pytest.raises(ValueError, match="mean and 0 more differ"):
        own.load_state_dict({"center": state["center"]})
    with pytest.raises(ValueError, match=r"center is \(3,\)"):
        own.load_state_dict({**state, "center": np.zeros(3, np.float32)})
