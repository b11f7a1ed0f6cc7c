"""TRAIN.SHARDING on two ranks against the same training without it: weights, moments, averages, files and memory."""

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support.processes import run_together
from support.trainings import small_runs

from paddlevit_dist import rank
from paddlevit_dist.core.checkpoint import store as checkpoints
from paddlevit_dist.core.engine.model_ema import ModelEma
from paddlevit_dist.core.engine.precision import LossScale
from paddlevit_dist.core.engine.sharding import Shards
from paddlevit_dist.core.registry.lookup import resolve

MODULE = "integration.core.distributed.test_sharding"
SHARDING = ["TRAIN.SHARDING", "optimizer"]
COMMON = "-epochs=1 TRAIN.WARMUP_STEPS 3 TRAIN.GRAD_CLIP 0.5 TRAIN.MODEL_EMA True TRAIN.MODEL_EMA_DECAY 0.9".split()
COMMON += "TRAIN.GRAD_CLIP_MODE tensor TRAIN.WEIGHT_DECAY_END 0.5".split()
COMMON += "SAVE_EVERY_UPDATES 10 KEEP_UPDATES 9 TRAIN.BASE_LR 1e-3 TRAIN.MAX_SKIPPED_UPDATES 3".split()
FILES = "model.pdparams", "model_ema.pdparams"


def train(output: str, words: list[str], bad: tuple[int, ...] = (), on_host: bool = True, scaled: bool = False) -> dict:
    """Train 20 updates; the loss of rank 1 is infinite in the updates ``bad``, counted from 1."""

    class Poisoned(resolve("task", "classification")):
        def train_step(self, model: Any, batch: Any, step: Any) -> Any:
            terms = super().train_step(model, batch, step)
            if step.update + 1 in bad and rank() == 1:
                terms["loss"] = terms["loss"]._replace(sum=terms["loss"].sum + float("inf"))
            return terms

    trainer = small_runs.build(output, *COMMON, *words, task_class=Poisoned)
    trainer.prepare_training()
    trainer.step.on_host = on_host
    trainer.precision.scaler = LossScale() if scaled else None  # a CPU has no kernels of half precision
    trainer.train()
    moments = trainer.state.optimizer_state.tensors()
    averages = trainer.ema.state_dict()
    return {
        "weights": small_runs.make_weights(trainer),
        "state bytes": 4 * sum(tensor.size for tensor in (*moments.values(), *averages.values())),
        "skipped": trainer.nan_guard.total,
    }


def average_local_statistics() -> dict[str, Any]:
    """Average the statistics of local batch norms, which differ between ranks, in shares and without shares."""
    paddle.seed(0)
    model = paddle.nn.Sequential(paddle.nn.Conv2D(3, 4, 1), paddle.nn.BatchNorm2D(4))
    shards = Shards(model)
    whole, share = ModelEma(model, 0.5), ModelEma(model, 0.5, shards=shards)
    for _ in range(3):
        model(paddle.randn([2, 3, 4, 4]) * (1 + 9 * rank()))
        whole.update()
        share.update()
    expected = {name: tensor.numpy() for name, tensor in whole.state_dict().items()}
    collected = shards.collect(share.state_dict())
    with share.in_place():
        scored = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    return {"expected": expected, "collected": collected, "scored": scored}


def saved(folder: Path, name: str = "last") -> dict[str, np.ndarray]:
    """Weights, averages and moments of a checkpoint by name."""
    directory = folder / "checkpoints" / name
    values = {f"moments {key}": value for key, value in checkpoints.read(directory).optimizer.items()}
    for file in FILES:
        values.update({f"{file} {key}": tensor.numpy() for key, tensor in paddle.load(str(directory / file)).items()})
    return values


def require_equal(left: dict[str, np.ndarray], right: dict[str, np.ndarray], tolerance: float = 0.0) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_allclose(right[name], value, rtol=0, atol=tolerance, err_msg=name)
        assert value.shape == right[name].shape


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("sharding")


@pytest.fixture(scope="module")
def runs(folder) -> dict[str, list[dict[str, Any]]]:
    halves = ["-batch_size=8"]

    def middle(name: str) -> str:
        return f"-resume={folder / name / 'checkpoints' / 'update_00000010'}"

    unclipped = [*halves, "TRAIN.GRAD_CLIP", "None"]

    def call(name: str, words: list[str], *more: Any) -> tuple:
        return f"{MODULE}:train", (str(folder / name), words, *more)

    two = {
        "plain": call("plain", halves),
        "sharded": call("sharded", [*halves, *SHARDING]),
        "queued": call("queued", [*halves, *SHARDING], (), False),
        "resumed": call("resumed", [*halves, *SHARDING, middle("sharded")]),
        "bad": call("bad", [*unclipped, *SHARDING], (4, 5, 12)),
        "bad, plain": call("bad, plain", unclipped, (4, 5, 12)),
        "bad, queued": call("bad, queued", [*unclipped, *SHARDING], (4, 5, 12), False),
    }
    two["statistics"] = f"{MODULE}:average_local_statistics", ()
    return {**run_together(two, 2), **run_together({"alone": call("alone", ["-batch_size=16", middle("sharded")])}, 1)}


@pytest.mark.parametrize(
    "name, plain, tolerance",
    [
        ("sharded", "plain", 1e-7),
        ("queued", "plain", 1e-7),
        ("bad", "bad, plain", 1e-7),
        # After a skipped step moments are equal to one rounding, and biases of keys have gradients of rounding only.
        ("bad, queued", "bad, plain", 1e-5),
    ],
)
def test_weights_moments_and_averages_of_twenty_updates_are_those_without_sharding(
    runs, folder, name, plain, tolerance
):
    require_equal(saved(folder / plain), saved(folder / name), tolerance)
    first, second = runs[name]
    require_equal(first["weights"], second["weights"])
    assert first["skipped"] == second["skipped"] == (3 if "bad" in name else 0)


def test_each_rank_keeps_half_of_the_state(runs):
    (whole, _), halves = runs["plain"], runs["sharded"]
    for half in halves:
        assert 0.45 * whole["state bytes"] < half["state bytes"] < 0.55 * whole["state bytes"]


def test_averaged_statistics_of_local_batch_norms_are_those_of_the_first_rank(runs):
    first, second = runs["statistics"]
    assert not np.allclose(first["expected"]["1._variance"], second["expected"]["1._variance"], rtol=0.5)
    require_equal(first["expected"], first["collected"])
    require_equal(first["expected"], first["scored"])
    require_equal(first["expected"], second["scored"])


def test_a_resumed_run_ends_bit_equal(runs, folder):
    require_equal(saved(folder / "sharded"), saved(folder / "resumed"))


def test_the_files_serve_another_number_of_ranks(runs, folder):
    """One process without sharding continues from the checkpoint of two with it."""
    require_equal(saved(folder / "sharded"), saved(folder / "alone"), 2e-5)
    names = [{path.name for path in (folder / run / "checkpoints/last").iterdir()} for run in ("plain", "sharded")]
    assert names[0] == names[1]
