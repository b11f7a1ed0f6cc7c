"""Teacher, center and student are equal however processes, shards and micro-batches divide images, and after a kill."""

import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support.processes import run_together, run_workers
from support.trainings.small_runs import DIGITS, Part

from paddlevit_dist import Trainer, rank, settings
from paddlevit_dist.checkpoint import store as checkpoints
from paddlevit_dist.images.pretraining.self_distillation.task import SelfDistillation

MODULE = "integration.distributed.test_self_distillation"
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
    values = settings.load([f"-output={output}", *DIGITS, *WORDS.split(), *network.split(), *words]).values
    Path(output).mkdir(parents=True, exist_ok=True)
    task = Watched(values)
    task.dies_at, task.bad = dies_at, bad
    sizes = {"train": IMAGES * UPDATES // 2, "val": 30}
    trainer = Trainer(
        values, task, {split: Part(task.build_dataset(split, Path(output)), n) for split, n in sizes.items()}
    )
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


@pytest.fixture(scope="module")
def runs(folder) -> dict[str, list[dict[str, Any]]]:
    def call(name: str, *words: str, **more: Any) -> tuple:
        keys = ("dies_at", "bad", "on_host")
        defaults = {"dies_at": None, "bad": (), "on_host": True}
        return f"{MODULE}:train", (str(folder / name), list(words), *({**defaults, **more}[key] for key in keys))

    target, arguments = call("killed", "-batch_size=6", *SHARDING, dies_at=6)
    killed = run_workers(target, *arguments)
    assert killed.code == 1 and "SIGKILL" in killed.err
    middle = f"-resume={folder / 'two' / 'checkpoints' / 'update_00000002'}"
    two = {
        "two": call("two", "-batch_size=6"),
        "sharded": call("sharded", "-batch_size=6", *SHARDING),
        "killed": call("killed", "-batch_size=6", *SHARDING, "-resume=auto"),
        "bad": call("bad", "-batch_size=6", bad=(3,)),
        "bad, queued": call("bad, queued", "-batch_size=6", bad=(3,), on_host=False),
        "resnet two": call("resnet two", "-batch_size=6"),
    }
    one = {
        "one": call("one", "-batch_size=12"),
        "accumulated": call("accumulated", "-batch_size=4", "-accum_iter=3"),
        "resumed": call("resumed", "-batch_size=12", middle),
        "resnet one": call("resnet one", "-batch_size=12"),
    }
    three = {"three": call("three", "-batch_size=4")}
    return {**run_together(two, 2), **run_together(one, 1), **run_together(three, 3)}


@pytest.mark.parametrize("name", ["two", "three", "accumulated", "sharded", "resumed"])
def test_weights_and_center_are_those_of_one_process(runs, folder, name):
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


def test_batch_norms_of_all_ranks_are_those_of_one_and_the_teacher_has_its_own(runs, folder):
    # Later, roundings have grown: the last maps have one pixel, whose deviations are small.
    one, two = (saved(folder / f"resnet {number}", "update_00000002") for number in ("one", "two"))
    names = [name for name in one if not name.startswith("moment")]
    assert largest_difference({name: one[name] for name in names}, {name: two[name] for name in names}) < 5e-5
    means = [name for name in one if re.fullmatch(r"student .*bn1\._mean", name)]
    assert means and all((one[name] != one[name.replace("student", "teacher")]).any() for name in means)


def test_teacher_and_student_share_no_memory(runs):
    assert [result["shared"] for results in runs.values() for result in results] == [0] * sum(map(len, runs.values()))
