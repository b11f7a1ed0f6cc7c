"""TRAIN.SHARDING on two ranks against the same training without it: weights, moments, averages, files and memory."""

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import paddle
import pytest
from support import small_runs
from support.processes import run_together

from paddlevit_dist import all_gather, rank
from paddlevit_dist.checkpoint import store as checkpoints
from paddlevit_dist.engine import sharded_gradients
from paddlevit_dist.engine.model_ema import ModelEma
from paddlevit_dist.engine.precision import LossScale
from paddlevit_dist.engine.sharding import Shards
from paddlevit_dist.registry.lookup import resolve
from paddlevit_dist.runtime.errors import UserError

MODULE = "integration.distributed.test_sharding"
SHARDING = ["TRAIN.SHARDING", "optimizer"]
GRADIENTS = ["TRAIN.SHARDING", "gradients", "TRAIN.BUCKET_MEGABYTES", "1"]
COMMON = "-epochs=1 TRAIN.WARMUP_STEPS 3 TRAIN.GRAD_CLIP 0.5 TRAIN.MODEL_EMA True TRAIN.MODEL_EMA_DECAY 0.9".split()
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

    sharded_gradients._MIB_VALUES = 2000  # so that this small model has several buckets
    trainer = small_runs.build(output, *COMMON, *words, task_class=Poisoned)
    trainer.prepare_training()
    trainer.step.on_host = on_host
    trainer.precision.scaler = LossScale() if scaled else None  # a CPU has no kernels of half precision
    live: list[int] = []
    passes, send = trainer.step._run_passes, sharded_gradients.start_reduce

    def count_gradients() -> None:
        gradients = [parameter._grad_ivar() for parameter in trainer.model.parameters()]
        live.append(4 * sum(gradient.size for gradient in gradients if gradient is not None))

    def run_passes(*given: Any) -> Any:
        result = passes(*given)
        count_gradients()
        return result

    def start_reduce(*given: Any) -> Any:
        count_gradients()
        return send(*given)

    with mock.patch.object(sharded_gradients, "start_reduce", start_reduce):
        trainer.step._run_passes = run_passes
        trainer.train()
    moments = trainer.state.optimizer_state.tensors()
    averages = trainer.ema.state_dict()
    return {
        "weights": small_runs.make_weights(trainer),
        "state bytes": 4 * sum(tensor.size for tensor in (*moments.values(), *averages.values())),
        "skipped": trainer.nan_guard.total,
        "gradient bytes": (live[-1], max(live)),
    }


def average_in_shares(finds_unused: bool) -> dict[str, Any]:
    """Compare gradients of two micro-batches with the averages that ranks compute from each other's.

    Rank 1 does not use layer 1, which only rank 0 uses, and nobody uses layer 3. In the last step ranks change places.
    """
    paddle.seed(0)
    model = paddle.nn.LayerList([paddle.nn.Linear(3, 4) for _ in range(4)])
    shards = Shards(model)
    reducer = sharded_gradients.GradientReducer(model, shards, 1, finds_unused)
    inputs = [paddle.randn([2, 3]) * (1 + rank()) for _ in range(2)]

    def run(micro: int, layers: list[int]) -> None:
        paddle.add_n([(model[layer](inputs[micro]) ** 2).sum() for layer in layers]).backward()

    def gradients() -> dict[str, np.ndarray]:
        present = {name: p._grad_ivar() for name, p in model.named_parameters()}
        return {name: gradient.numpy() for name, gradient in present.items() if gradient is not None}

    def clear() -> None:
        for parameter in model.parameters():
            parameter.clear_gradient(False)

    wrong = []
    for step in range(3):
        layers = [0, 2] if (rank() == 1) == (step < 2) else [0, 1, 2]
        for micro in (0, 1):
            run(micro, layers)
        all_gradients = all_gather(gradients())
        clear()
        run(0, layers)
        try:
            with reducer.reducing():
                run(1, layers)
        except UserError as error:
            return {"step": step, "error": str(error), "wrong": wrong}
        found = gradients()
        names = {name for one in all_gradients for name in one} & shards.owned
        wrong += sorted(names ^ found.keys())
        for name in names & found.keys():
            expected = sum(one[name] for one in all_gradients if name in one) / 2
            wrong += [] if np.allclose(found[name], expected, rtol=1e-6, atol=1e-6) else [name]
        first, second = all_gradients
        sums = [first.get(name, 0.0) + second.get(name, 0.0) for name in {**first, **second}]
        norm = np.sqrt(sum(np.sum(total**2) for total in sums)) / 2
        wrong += [] if np.isclose(reducer.collect_gradients().norm(), norm, rtol=1e-6) else ["norm"]
        clear()
    return {"step": 3, "error": "", "wrong": wrong}


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
        "gradients": call("gradients", [*halves, *GRADIENTS]),
        "gradients, resumed": call("gradients, resumed", [*halves, *GRADIENTS, middle("gradients")]),
        "optimizer, resumed": call("optimizer, resumed", [*halves, *SHARDING, middle("gradients")]),
        "gradients, bad": call("gradients, bad", [*unclipped, *GRADIENTS], (4, 5, 12)),
        "gradients, bad, queued": call("gradients, bad, queued", [*unclipped, *GRADIENTS], (4, 5, 12), False),
    }
    for finds_unused in (True, False):
        two[f"unused, {finds_unused}"] = f"{MODULE}:average_in_shares", (finds_unused,)
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
        ("gradients", "plain", 2e-5),  # the norm, by which gradients are clipped, is a sum in another order
        ("gradients, bad", "bad, plain", 1e-7),
        ("gradients, bad, queued", "bad, plain", 1e-5),
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


def test_each_rank_keeps_the_gradients_of_its_share_only_and_frees_others_during_the_backward_pass(runs):
    whole, most = runs["sharded"][0]["gradient bytes"]
    assert whole == most
    for share in runs["gradients"]:
        kept, most = share["gradient bytes"]
        assert 0.45 * whole < kept < 0.55 * whole
        assert kept < most < 0.75 * whole


def test_averages_and_norm_are_right_if_ranks_lack_gradients_of_different_layers(runs):
    assert runs["unused, True"] == [{"step": 3, "error": "", "wrong": []}] * 2
    for found in runs["unused, False"]:
        assert found["step"] == 2 and found["wrong"] == []
        assert "'1.bias' has a gradient in some updates and none in others" in found["error"]


def test_averaged_statistics_of_local_batch_norms_are_those_of_the_first_rank(runs):
    first, second = runs["statistics"]
    assert not np.allclose(first["expected"]["1._variance"], second["expected"]["1._variance"], rtol=0.5)
    require_equal(first["expected"], first["collected"])
    require_equal(first["expected"], first["scored"])
    require_equal(first["expected"], second["scored"])


@pytest.mark.parametrize("name", ["sharded", "gradients"])
def test_a_resumed_run_ends_bit_equal(runs, folder, name):
    resumed = "resumed" if name == "sharded" else "gradients, resumed"
    require_equal(saved(folder / name), saved(folder / resumed))


def test_a_run_of_sharded_gradients_continues_without_them(runs, folder):
    require_equal(saved(folder / "gradients"), saved(folder / "optimizer, resumed"), 2e-5)


def test_the_files_serve_another_number_of_ranks(runs, folder):
    """One process without sharding continues from the checkpoint of two with it."""
    require_equal(saved(folder / "sharded"), saved(folder / "alone"), 2e-5)
    names = [{path.name for path in (folder / run / "checkpoints/last").iterdir()} for run in ("plain", "sharded")]
    assert names[0] == names[1]
