"""Teacher, center and student are equal however processes, shards and micro-batches divide images, and after a kill."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support.processes import run_together, run_workers
from support.trainings.small_runs import DIGITS, make_trainer

from paddlevit_dist import rank
from paddlevit_dist.core.checkpoint import store as checkpoints
from paddlevit_dist.images.pretraining.self_distillation.task import SelfDistillation

MODULE = "integration.core.distributed.test_self_distillation"
IMAGES, UPDATES = 12, 6
WORDS = "TASK self_distillation -dataset=digits -epochs=2 TRAIN.WARMUP_STEPS 2 TRAIN.BASE_LR 1e-2 VALIDATE_FREQ 2"
WORDS += " TRAIN.OPTIMIZER.EPS 1e-4 TRAIN.GRAD_CLIP 0.3 TRAIN.GRAD_CLIP_MODE tensor TRAIN.WEIGHT_DECAY 0.04"
WORDS += " TRAIN.WEIGHT_DECAY_END 0.4 SAVE_EVERY_UPDATES 2 KEEP_UPDATES 9 SAVE_IN_BACKGROUND False"
for name, value in {"SMALL_VIEWS": 2, "SMALL_SIZE": 8, "OUTPUTS": 12, "HEAD_WIDTH": 10, "BOTTLENECK": 6}.items():
    WORDS += f" SELF_DISTILLATION.{name} {value}"
WORDS += " SELF_DISTILLATION.TEACHER_MOMENTUM 0.9 SELF_DISTILLATION.TEACHER_TEMPERATURES [0.2,0.1]"
VIT = "MODEL.NAME vit MODEL.PATCH_SIZE 4 MODEL.EMBED_DIM 16 MODEL.DEPTH 1 MODEL.NUM_HEADS 2"
RESNET = "MODEL.NAME resnet18 TRAIN.BATCH_NORM sync TRAIN.OPTIMIZER.NAME SGD"
SHARDING = ["TRAIN.SHARDING", "optimizer"]


class Watched(SelfDistillation):
    """Ends its process in an update, and has infinite losses in others."""

    dies_at: int | None = None
    bad: tuple[int, ...] = ()

    def train_step(self, model: Any, batch: Any, step: Any) -> Any:
        if step.update + 1 == self.dies_at and rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        terms = super().train_step(model, batch, step)
        if step.update + 1 in self.bad and rank() == 0:
            terms["loss"] = terms["loss"]._replace(sum=terms["loss"].sum * float("inf"))
        return terms


def train(output: str, words: list[str], dies_at: int | None = None, bad: tuple = (), on_host: bool = True) -> dict:
    """Train six updates of twelve images; return the evaluation."""
    network = RESNET if "resnet" in output else VIT
    sizes = {"train": IMAGES * UPDATES // 2, "val": 30}
    trainer = make_trainer(output, [*DIGITS, *WORDS.split(), *network.split(), *words], sizes, Watched)
    trainer.task.dies_at, trainer.task.bad = dies_at, bad
    trainer.prepare_training()
    trainer.step.on_host = on_host
    addresses = [
        {tensor.data_ptr() for tensor in network.state_dict().values()}
        for network in (trainer.model, trainer.state.own.teacher)
    ]
    return {"evaluation": trainer.train(), "shared": len(addresses[0] & addresses[1])}


def saved(folder: Path, name: str = "last") -> dict[str, np.ndarray]:
    directory = folder / "checkpoints" / name
    state = checkpoints.read(directory)
    values = {**{f"moment {key}": value for key, value in state.optimizer.items()}, **state.own}
    for kind, file in (("student", "model.pdparams"), ("teacher", "model_ema.pdparams")):
        state_dict = paddle.load(str(directory / file))
        values.update({f"{kind} {key}": tensor.numpy() for key, tensor in state_dict.items()})
    return values


def largest_difference(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> float:
    assert left.keys() == right.keys()
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("views")


# Processes, words, and what else ``train`` is told; those of a ResNet and of three processes run at night.
CALLS: dict[str, tuple] = {
    "two": (2, ["-batch_size=6"]),
    "sharded": (2, ["-batch_size=6", *SHARDING]),
    "killed": (2, ["-batch_size=6", *SHARDING, "-resume=auto"]),
    "bad": (2, ["-batch_size=6"], None, (3,)),
    "bad, queued": (2, ["-batch_size=6"], None, (3,), False),
    "resnet two": (2, ["-batch_size=6"]),
    "one": (1, ["-batch_size=12"]),
    "accumulated": (1, ["-batch_size=4", "-accum_iter=3"]),
    "resumed": (1, ["-batch_size=12", "-resume={folder}/two/checkpoints/update_00000002"]),
    "resnet one": (1, ["-batch_size=12"]),
    "three": (3, ["-batch_size=4"]),
}
BY_NIGHT = ("three", "resnet two", "resnet one")


def train_all(names: Sequence[str], folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What each training gives on each rank; one group for each number of processes, the two first."""
    found: dict[str, list] = {}
    for processes in (2, 1, 3):
        calls = {}
        for name in names:
            of_call, words, *more = CALLS[name]
            if of_call == processes:
                words = [word.format(folder=folder) for word in words]
                calls[name] = f"{MODULE}:train", (str(folder / name), words, *more)
        found |= run_together(calls, processes) if calls else {}
    return found


@pytest.fixture(scope="module")
def runs(folder) -> dict[str, list[dict[str, Any]]]:
    killed = run_workers(f"{MODULE}:train", str(folder / "killed"), ["-batch_size=6", *SHARDING], 6)
    assert killed.code == 1 and "SIGKILL" in killed.err
    return train_all([name for name in CALLS if name not in BY_NIGHT], folder)


@pytest.mark.parametrize("name", ["two", "accumulated", "sharded", "resumed"])
def test_weights_and_center_are_those_of_one_process(runs, folder, name):
    require_weights_of_one_process(runs, folder, name)


def require_weights_of_one_process(runs: dict[str, list], folder: Path, name: str) -> None:
    expected = saved(folder / "one")
    assert {"center"} < expected.keys() and np.abs(expected["center"]).max() > 1e-3
    assert largest_difference(saved(folder / name), expected) < 1e-5
    values = runs[name][0]["evaluation"]
    assert values == pytest.approx(runs["one"][0]["evaluation"], rel=1e-4)


def test_a_killed_and_resumed_run_ends_with_the_bits_of_a_straight_one(runs, folder):
    assert largest_difference(saved(folder / "killed"), saved(folder / "sharded")) == 0


def test_a_step_that_is_not_finite_changes_nothing(runs, folder):
    assert largest_difference(saved(folder / "bad, queued"), saved(folder / "bad")) < 1e-5
    before, after = saved(folder / "bad", "update_00000002"), saved(folder / "bad", "update_00000004")
    assert np.isfinite(after["center"]).all() and (before["center"] != after["center"]).any()


def test_teacher_and_student_share_no_memory(runs):
    assert [result["shared"] for results in runs.values() for result in results] == [0] * sum(map(len, runs.values()))
