"""Captured passes (TRAIN.CAPTURE) of two ranks, by a graph for CPUs."""

from typing import Any

import numpy as np
import paddle
import pytest
from support.networks.plain_layers import plain_layers
from support.processes import run_together
from support.recorded_graph import recorded_graphs
from support.trainings.small_runs import TINY

from paddlevit_dist import rank, world_size
from paddlevit_dist.core import settings
from paddlevit_dist.core.distributed import data_parallel
from paddlevit_dist.core.engine import TrainStep
from paddlevit_dist.core.engine.optimizer import build_optimizer
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.step_types import StepPosition

TARGET = "integration.core.engine.test_captured_passes:train"
PLAIN = "MODEL.NUM_CLASSES 10 DATA.IMAGE_SIZE 16 TRAIN.MIXUP_ALPHA 0.8 TRAIN.CUTMIX_ALPHA 0 MODEL.DROPOUT 0".split()
UPDATES = 4


def train(captures: bool, accumulation: int = 1, hooked: int | None = None, kilobytes: int = 1 << 20) -> dict[str, Any]:
    """Weights, losses and log lines of some updates; rank ``hooked`` has a layer that cannot be captured."""
    values = settings.load([*TINY, *PLAIN]).values
    task = resolve("task", "classification")(values)
    paddle.seed(rank())
    with plain_layers(), recorded_graphs() as graphs:
        model = task.build_model()
        model.train()
        optimizer = build_optimizer(values.TRAIN.OPTIMIZER, model, None, 0.05)
        lines: list[str] = []
        if hooked == rank():
            model.pos_drop.register_forward_post_hook(lambda *_: None)
        step = TrainStep(
            task,
            data_parallel(model),
            optimizer,
            TrainingPrecision(False),
            seed=0,
            samples_per_update=4 * accumulation * world_size(),
            accumulation_steps=accumulation,
            gradient_clip=1.0,
            captures=captures,
            log=lines.append,
        )
        step.bucket_bytes = kilobytes << 10
        losses = []
        for number in range(UPDATES):
            batches = []
            for micro in range(accumulation):
                generator = np.random.default_rng([number, micro, rank()])
                # The last batch of rank 1 is one that its graph cannot take.
                size = 3 if (number, rank()) == (UPDATES - 1, 1) else 4
                pixels = generator.integers(0, 256, (size, 3, 16, 16)).astype(np.uint8)
                labels = generator.integers(0, 10, size)
                batches.append({"images": paddle.to_tensor(pixels), "labels": paddle.to_tensor(labels)})
            terms = step(batches, StepPosition(1, number, UPDATES), 1e-3)
            losses.append([float(each["loss"].sum) for each in terms])
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    return {"weights": weights, "losses": losses, "lines": lines, "replays": [one.replays for one in graphs]}


@pytest.fixture(scope="module")
def runs() -> dict[str, list[dict[str, Any]]]:
    return run_together(
        {
            "plain": (TARGET, (False,)),
            "captured": (TARGET, (True,)),
            "in small buckets": (TARGET, (True, 1, None, 16)),
            "plain, accumulated": (TARGET, (False, 2)),
            "accumulated": (TARGET, (True, 2)),
            "hooked": (TARGET, (True, 1, 1)),
        }
    )


@pytest.mark.parametrize(
    ("name", "plain"), [("captured", "plain"), ("in small buckets", "plain"), ("accumulated", "plain, accumulated")]
)
def test_two_ranks_train_in_graphs_as_paddle_averages_gradients(runs, name, plain):
    for number, (found, expected) in enumerate(zip(runs[name], runs[plain], strict=True)):
        assert len(found["lines"]) == 1 and found["lines"][0].startswith("passes are captured (TRAIN.CAPTURE)")
        assert found["replays"] and found["replays"][0] >= 4
        np.testing.assert_allclose(np.array(found["losses"]), np.array(expected["losses"]), rtol=1e-4)
        for key, value in expected["weights"].items():
            np.testing.assert_allclose(found["weights"][key], value, rtol=1e-4, atol=1e-5, err_msg=f"{number} {key}")
            np.testing.assert_array_equal(found["weights"][key], runs[name][0]["weights"][key], err_msg=key)


def test_ranks_decide_together(runs):
    line = "passes are not captured (TRAIN.CAPTURE): layer pos_drop (Dropout) has a hook or another forward"
    for found, expected in zip(runs["hooked"], runs["plain"], strict=True):
        assert [said.startswith(line) for said in found["lines"]] == [True]
        for key, value in expected["weights"].items():
            np.testing.assert_array_equal(found["weights"][key], value, err_msg=key)
