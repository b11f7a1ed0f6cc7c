"""Ranks with different numbers of valid elements still compute the mean over all of them."""

import numpy as np
import paddle
import pytest
from support.processes import run_together
from support.trainings.updates import changes_of_an_update

from paddlevit_dist.core.distributed import rank, world_size
from paddlevit_dist.core.engine import COUNTS
from paddlevit_dist.core.tasks.step_types import LossTerm, TaskTraits
from paddlevit_dist.core.tasks.task import Task

GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.standard_normal((40, 3)).astype("float32")
TARGETS = GENERATOR.standard_normal((40, 1)).astype("float32")
VALID = (np.arange(40) % 5 == 0) | (np.arange(40) >= 30)  # the halves hold 4 and 12 valid rows


class Regression(Task):
    """Squared error over valid rows, and an absolute error that is normalized alike."""

    traits = TaskTraits(normalizer_names=("squared", "absolute"))

    def train_step(self, model, batch, step):
        error = (model(batch["rows"]) - batch["targets"]) * batch["valid"]
        count = batch["valid"].sum()
        return {
            "squared": LossTerm((error**2).sum(), count),
            "absolute": LossTerm(error.abs().sum(), count, weight=0.5),
            "shown only": LossTerm(error.sum(), count, weight=0.0),
        }


def make_batch(part: slice) -> dict:
    valid = VALID[part].astype("float32")[:, None]
    arrays = {"rows": ROWS[part], "targets": TARGETS[part], "valid": valid, COUNTS: np.full(2, valid.sum())}
    return {name: paddle.to_tensor(array) for name, array in arrays.items()}


def update_once(micro_batches: int) -> list:
    """What one SGD update of rate 1 on this rank's share of the rows adds to the weights."""
    paddle.seed(0)
    size = 40 // world_size() // micro_batches
    first = rank() * micro_batches
    batches = [make_batch(slice((first + i) * size, (first + i + 1) * size)) for i in range(micro_batches)]
    return list(changes_of_an_update(Regression(None), paddle.nn.Linear(3, 1), batches, 40).values())


def expected() -> list:
    """The same in float64 numpy, over all valid rows at once."""
    paddle.seed(0)
    weight, bias = (p.numpy().astype(np.float64) for p in paddle.nn.Linear(3, 1).parameters())
    rows, targets = ROWS[VALID].astype(np.float64), TARGETS[VALID].astype(np.float64)
    error = rows @ weight + bias - targets
    slope = (2 * error + 0.5 * np.sign(error)) / VALID.sum()
    return [-rows.T @ slope, -slope.sum(axis=0)]


@pytest.fixture(scope="module")
def updates() -> dict[str, list]:
    """Changes of the weights, of one process and of each of two."""
    target = "integration.core.distributed.test_uneven_counts:update_once"
    two = run_together({f"2 processes, {number}": (target, (number,)) for number in (1, 2)})
    return {**{f"1 process, {number}": [update_once(number)] for number in (1, 4)}, **two}


@pytest.mark.parametrize("way", ["1 process, 1", "1 process, 4", "2 processes, 1", "2 processes, 2"])
def test_the_update_is_that_of_one_batch_of_all_valid_rows(way, updates):
    for changes in updates[way]:
        for got, wanted in zip(changes, expected()):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
