"""TRAIN.BATCH_NORM and TRAIN.FIND_UNUSED_PARAMETERS with two processes."""

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from support import registrations
from support.processes import run_together, run_workers
from support.trainings.runs import read_events

from paddlevit_dist import Trainer
from paddlevit_dist.core import settings as config
from paddlevit_dist.core.distributed import build_zero, convert_batch_norm, data_parallel, rank, world_size
from paddlevit_dist.core.registry.register import register_task
from paddlevit_dist.core.tasks.dataset import TransformedDataset
from paddlevit_dist.core.tasks.metrics import Metrics
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.core.tasks.step_types import EvaluationStep, LossTerm, TaskTraits
from paddlevit_dist.core.tasks.task import Task

GENERATOR = np.random.default_rng(0)
ROWS = 3.0 * GENERATOR.standard_normal((24, 4)) + 2.0
TARGETS = GENERATOR.standard_normal((24, 2))
SPLITS = {"even": (12,), "uneven": (5,), "none": (0,)}  # rows of the first rank; the second has the others
if paddle.__version__.startswith("2."):
    del SPLITS["none"]  # Paddle's own ``linear`` and ``tanh`` refuse a tensor without rows there


def make_model(dtype: str) -> paddle.nn.Layer:
    """Four normalizations, one for each shape that a layer may see; the last one is used twice."""
    paddle.seed(0)
    return Network().to(dtype=dtype)


class Network(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.rows = paddle.nn.BatchNorm1D(4)
        self.line = paddle.nn.BatchNorm1D(2)
        self.plane = paddle.nn.BatchNorm2D(2)
        self.volume = paddle.nn.BatchNorm3D(1)
        self.head = paddle.nn.Linear(4, 2)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        n = x.shape[0]
        x = F.tanh(self.rows(x))  # (n, 4)
        x = F.tanh(self.line(x.reshape([n, 2, 2])))
        x = F.tanh(self.plane(x.reshape([n, 2, 1, 2])))
        x = self.volume(self.volume(x.reshape([n, 1, 2, 1, 2])) + x.reshape([n, 1, 2, 1, 2]))
        return self.head(x.reshape([n, 4]))


def three_updates(first_rank_rows: int, dtype: str) -> dict[str, np.ndarray]:
    """SGD on this rank's part of the rows; weights and statistics afterwards."""
    share = {
        1: slice(0, 24),
        2: slice(0, first_rank_rows) if rank() == 0 else slice(first_rank_rows, 24),
    }[world_size()]
    model = make_model(dtype)
    wrapped = data_parallel(model, batch_norm="sync")
    optimizer = paddle.optimizer.SGD(0.5, parameters=[p for p in model.parameters() if not p.stop_gradient])
    for _ in range(3):
        error = wrapped(paddle.to_tensor(ROWS[share], dtype=dtype)) - paddle.to_tensor(TARGETS[share], dtype=dtype)
        ((error**2).sum() * (world_size() / 24)).backward()
        optimizer.step()
        optimizer.clear_grad(False)
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


TOLERANCES = {"float32": 2e-5, "float64": 1e-9}


@pytest.fixture(scope="module")
def together() -> dict[str, list]:
    module = "integration.core.distributed.test_batch_norm"
    splits = {f"{split} {dtype}": (*SPLITS[split], dtype) for split in SPLITS for dtype in TOLERANCES}
    calls = {name: (f"{module}:three_updates", arguments) for name, arguments in splits.items()}
    return run_together(
        {
            **calls,
            "without rows": (f"{module}:gradients_with_a_rank_without_rows", ("float64",)),
            "resnet": (f"{module}:resnet_updates", ()),
        }
    )


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("dtype, tolerance", TOLERANCES.items())
def test_synchronized_training_equals_one_process_on_all_rows(split, dtype, tolerance, together):
    ranks = together[f"{split} {dtype}"]
    whole = three_updates(0, dtype)
    start = {name: tensor.numpy() for name, tensor in make_model(dtype).state_dict().items()}
    for name, expected in whole.items():
        assert np.array_equal(ranks[0][name], ranks[1][name]), name
        np.testing.assert_allclose(ranks[0][name], expected, rtol=tolerance, atol=tolerance, err_msg=name)
        if name.endswith(("weight", "_variance")):
            assert not np.allclose(start[name], expected, atol=1e-3), f"{name} did not move"


def gradients_with_a_rank_without_rows(dtype: str) -> dict[str, Any]:
    """The first rank has no rows; both layers' gradients before they are averaged, and the statistics."""
    rows = paddle.to_tensor(ROWS[:0] if rank() == 0 and world_size() == 2 else ROWS, dtype=dtype)
    rows.stop_gradient = False
    layers = [convert_batch_norm(paddle.nn.BatchNorm1D(4).to(dtype=dtype)) for _ in range(2)]
    normal = layers[1](layers[0](rows))
    loss = (normal**3).sum() if rows.shape[0] else build_zero(normal)
    loss.backward()
    gradients = [tensor.grad.numpy() for layer in layers for tensor in (layer.weight, layer.bias)]
    return {
        "gradients": gradients,
        "of rows": rows.grad.numpy() if rows.shape[0] else None,
        "statistics": [tensor.numpy() for layer in layers for tensor in (layer._mean, layer._variance)],
    }


def test_a_rank_without_rows_takes_part_and_gets_zero_gradients(together):
    empty, full = together["without rows"]
    alone = gradients_with_a_rank_without_rows("float64")
    assert all(not gradient.any() for gradient in empty["gradients"])
    for name in ("gradients", "statistics"):
        for got, expected in zip(full[name], alone[name]):
            np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(full["of rows"], alone["of rows"], rtol=1e-7, atol=1e-9)
    for got, expected in zip(empty["statistics"], full["statistics"]):
        assert np.array_equal(got, expected)


# ---- the keys, through the trainer ---------------------------------------------------------------------------------


class Rows(TransformedDataset):
    """Row ``index`` with its target; the same for training and evaluation."""

    def __len__(self) -> int:
        return 24

    def sample(self, index: int, generator: Any) -> Any:
        return index

    def describe(self, index: int) -> str:
        return f"row {index}"


class Errors(Metrics):
    def __init__(self) -> None:
        super().__init__()
        self.state = {"error": 0.0}

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        return {"loss": state["error"] / 24}

    def summary(self, values: dict[str, float]) -> str:
        return f"loss {values['loss']:.4f}"


class WithABranch(paddle.nn.Layer):
    """The branch is skipped where the task says so."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Linear(4, 2))
        self.branch = paddle.nn.Linear(4, 2)

    def forward(self, rows: paddle.Tensor, with_branch: bool = True) -> paddle.Tensor:
        return self.trunk(rows) + (self.branch(rows) if with_branch else 0.0)


class Regression(Task):
    traits = TaskTraits(normalizers_per_sample={"loss": 1})
    skips_branch = False
    build_dataset = None  # the trainer is given the data

    def build_model(self) -> paddle.nn.Layer:
        return WithABranch()

    def collate(self, samples: Any) -> dict[str, np.ndarray]:
        return {"rows": ROWS[samples].astype("float32"), "targets": TARGETS[samples].astype("float32")}

    def train_step(self, model: Any, batch: Any, step: Any) -> dict[str, LossTerm]:
        error = model(batch["rows"], not (self.skips_branch and rank() == 1)) - batch["targets"]
        return {"loss": LossTerm((error**2).sum(), error.shape[0])}

    def eval_step(self, model: Any, batch: Any, step: EvaluationStep) -> None:
        step.metrics.state["error"] += ((model(batch["rows"]) - batch["targets"]) ** 2).sum().item()

    def build_metrics(self) -> Errors:
        return Errors()


class SkippingRegression(Regression):
    skips_branch = True


TASKS = {"sums_of_rows": Regression, "sums_that_skip": SkippingRegression}


@registrations.forgotten()
def train(output: str, *arguments: str) -> dict[str, Any]:
    """Two epochs of 3 updates; weights and statistics of this rank, and the recorded evaluations."""
    for name, kind in TASKS.items():
        register_task(name, kind, tables=[])
    settings = ["-epochs=2", f"-batch_size={8 // world_size()}", "TRAIN.BASE_LR", "0.05", "TRAIN.OPTIMIZER.NAME", "SGD"]
    values = config.load([f"-output={output}", "DATA.NUM_WORKERS", "0", *settings, *arguments]).values
    Path(output).mkdir(parents=True, exist_ok=True)
    trainer = Trainer(values, TASKS[values.TASK](values), {"train": Rows(), "val": Rows()})
    trainer.train()
    lines = read_events(output)
    return {
        "state": {name: tensor.numpy() for name, tensor in trainer.model.state_dict().items()},
        "evaluations": [line["loss"] for line in lines if line["kind"] == "evaluation"],
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> dict[str, list]:
    """What both ranks have after each of these trainings."""
    folder, target = tmp_path_factory.mktemp("trained"), "integration.core.distributed.test_batch_norm:train"
    trainings = {
        "local": ("TASK", "sums_of_rows"),  # a task's own default is local
        "sync": ("TASK", "sums_of_rows", "TRAIN.BATCH_NORM", "sync"),
        "found": ("TASK", "sums_that_skip", "TRAIN.FIND_UNUSED_PARAMETERS", "true"),
        "start": ("TASK", "sums_of_rows", "TRAIN.BASE_LR", "1e-12"),
    }
    return run_together({name: (target, (str(folder / name), *words)) for name, words in trainings.items()})


def test_sync_trains_as_one_process_does(trained, tmp_path):
    one = train(str(tmp_path / "1"), "TASK", "sums_of_rows")
    for result in trained["sync"]:
        for name, expected in one["state"].items():
            np.testing.assert_allclose(result["state"][name], expected, rtol=2e-5, atol=2e-5, err_msg=name)
        np.testing.assert_allclose(result["evaluations"], one["evaluations"], rtol=1e-5)


def test_local_ends_with_the_first_ranks_statistics_on_all_and_differs_from_sync(trained):
    first, second = trained["local"]
    assert all(np.array_equal(value, second["state"][name]) for name, value in first["state"].items())
    assert first["evaluations"] == second["evaluations"] and len(first["evaluations"]) == 2
    sync = trained["sync"][0]
    assert not np.allclose(first["state"]["trunk.1._variance"], sync["state"]["trunk.1._variance"], rtol=1e-3)


def test_a_branch_that_one_rank_skips_stays_equal_with_find_unused_parameters(trained):
    first, second = trained["found"]
    assert all(np.array_equal(value, second["state"][name]) for name, value in first["state"].items())
    start = trained["start"][0]["state"]
    assert np.abs(first["state"]["branch.weight"] - start["branch.weight"]).max() > 1e-3


def test_without_it_such_a_branch_is_noticed_before_anything_is_saved(tmp_path):
    target = "integration.core.distributed.test_batch_norm:train"
    ended = run_workers(target, str(tmp_path / "lost"), "TASK", "sums_that_skip")
    assert ended.code == 1 and "weights differ between ranks after epoch 1" in ended.err
    assert "TRAIN.FIND_UNUSED_PARAMETERS" in ended.err


def resnet_updates() -> dict[str, Any]:
    """Two updates of a ResNet-18 on eight small images; losses of the whole batch, and the last statistics."""
    paddle.seed(0)
    model = create_model("resnet18", num_classes=4).to(dtype="float64")
    wrapped, size = data_parallel(model, batch_norm="sync"), world_size()
    optimizer = paddle.optimizer.SGD(0.05, parameters=[p for p in model.parameters() if not p.stop_gradient])
    images = np.random.default_rng(1).standard_normal((8, 3, 32, 32))
    own, losses = slice(8 // size * rank(), 8 // size * (rank() + 1)), []
    for _ in range(2):
        loss = F.cross_entropy(wrapped(paddle.to_tensor(images[own])), paddle.to_tensor((np.arange(8) % 4)[own]))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad(False)
        losses.append(loss.item())
    return {"losses": losses, "variance": model.state_dict()["layer4.1.bn2._variance"].numpy()}


def test_a_resnet_learns_as_in_one_process(together):
    first, second = together["resnet"]
    one = resnet_updates()
    np.testing.assert_allclose(np.mean([first["losses"], second["losses"]], axis=0), one["losses"], rtol=1e-6)
    np.testing.assert_allclose(first["variance"], one["variance"], rtol=1e-6)
    assert one["losses"][1] != pytest.approx(one["losses"][0], rel=1e-2)
