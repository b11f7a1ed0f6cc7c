"""Captured passes train as passes without a graph do, by a graph for CPUs that repeats what a CUDA graph would."""

import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import nn
from support.recorded_graph import recorded_graphs

from paddlevit_dist.core import settings
from paddlevit_dist.core.engine import TrainStep
from paddlevit_dist.core.engine.captured_passes import MOST_GRAPHS, require_capturable
from paddlevit_dist.core.engine.freezing import GroupRate, ParameterRates
from paddlevit_dist.core.engine.fused_optimizers import FusedAdamW
from paddlevit_dist.core.engine.nan_guard import NonFiniteGuard
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.runtime.device_graph import NotCapturable, enter_value, may_be_captured
from paddlevit_dist.core.tasks.protocols import Capturable
from paddlevit_dist.core.tasks.step_types import LossTerm, StepPosition, TaskTraits
from paddlevit_dist.core.tasks.task import Task
from paddlevit_dist.images.models.bridges.bridged_model import BridgedModel

UPDATES = 6


class SilentTask(Task):
    """Squares of the outputs, whose target is the number of the update."""

    traits = TaskTraits(normalizers_per_sample={"loss": 1}, normalizer_names=("loss",))

    def __init__(self) -> None:
        super().__init__(SimpleNamespace(TASK="squares"))

    def train_step(self, model: Any, batch: Any, step: Any) -> dict[str, LossTerm]:
        target = enter_value(lambda now: paddle.full([1], float(now.update + now.micro)), step)
        return {"loss": LossTerm(((model(batch["x"]) - target) ** 2).sum(), batch["x"].shape[0])}


class SquaresTask(SilentTask, Capturable):
    def find_obstacle(self) -> str:
        return ""


class RefusingTask(SquaresTask):
    def find_obstacle(self) -> str:
        return "the moon is full"


class StepReadingTask(SquaresTask):
    def train_step(self, model: Any, batch: Any, step: Any) -> dict[str, LossTerm]:
        target = paddle.full([1], float(step.update))
        return {"loss": LossTerm(((model(batch["x"]) - target) ** 2).sum(), batch["x"].shape[0])}


class FixedTask(SquaresTask):
    def train_step(self, model: Any, batch: Any, step: Any) -> dict[str, LossTerm]:
        return {"loss": LossTerm((model(batch["x"]) ** 2).sum(), batch["x"].shape[0])}


class OwnLayer(nn.Layer):
    """Multiplies by what it is given."""

    is_capturable = True

    def __init__(self, find_factor: Any) -> None:
        super().__init__()
        self.find_factor = find_factor

    def forward(self, x: Any) -> Any:
        return x * self.find_factor(x)


class InheritingLayer(OwnLayer):
    """Has only inherited that it can be captured."""


def train(
    captures: bool,
    *layers: nn.Layer,
    task: Any = None,
    accumulation: int = 1,
    on_host: bool = True,
    scales: bool = False,
    skipped: int | None = None,
    is_same: bool = False,
    rate: Any = None,
    sizes: tuple[int, ...] = (4,) * UPDATES,
) -> tuple[dict[str, np.ndarray], list[float], list[str]]:
    """The weights and statistics after some updates, the losses of all passes, and what was logged."""
    paddle.seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1D(8), *layers, nn.Linear(8, 2))
    precision = TrainingPrecision(scales, "float16", on_gpu=True)
    precision.enabled = False  # a CPU has no kernels for it; the scale is kept
    decays = {parameter.name: 0.0 for parameter in model.parameters()}
    groups = [{"params": model.parameters(), "weight_decay": 0.0}]
    lines: list[str] = []
    optimizer, rates = FusedAdamW(decays, learning_rate=0.0, parameters=groups, weight_decay=0.0), None
    if rate is not None:  # of the first two layers
        own = GroupRate(rate, ["0.weight"], [*model[0].parameters(), model[1].weight, model[1].bias])
        optimizer.rates = {parameter.name: own for parameter in own.parameters}
        rates = ParameterRates([own], model, [StepPosition(1, number, UPDATES) for number in range(UPDATES)])
    step = TrainStep(
        task or SquaresTask(),
        model,
        optimizer,
        precision,
        seed=0,
        samples_per_update=4 * accumulation,
        accumulation_steps=accumulation,
        gradient_clip=1.0,
        nan_guard=NonFiniteGuard(limit=9),
        on_host=on_host,
        captures=captures,
        rates=rates,
        log=lines.append,
    )
    results = []
    for number, size in enumerate(sizes):
        batches = []
        for micro in range(accumulation):
            inputs = (
                np.random.default_rng([0 if is_same else number, micro]).standard_normal((size, 4)).astype(np.float32)
            )
            inputs = inputs * np.float32(np.inf) if number == skipped else inputs
            batches.append({"x": paddle.to_tensor(inputs)})
        results += step.launch(batches, StepPosition(1, number, UPDATES), 0.0 if is_same else 1e-2 * (number + 1))
    results += step.flush()
    losses = [float(terms["loss"].sum) for result in results for terms in result.terms]
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}, losses, lines


def require_equal(found: Any, expected: Any) -> None:
    for name, value in expected[0].items():
        np.testing.assert_allclose(found[0][name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"on_host": True},
        {"on_host": False, "accumulation": 2},
        {"on_host": False, "scales": True, "skipped": 3},
        {"on_host": True, "scales": True, "skipped": 1},  # before passes are captured
    ],
)
def test_updates_are_those_without_a_graph(options):
    with recorded_graphs() as graphs:
        found = train(True, nn.Dropout(0.3), **options)
    assert graphs[-1].replays > UPDATES
    assert len(found[2]) == 1 and found[2][0].startswith("passes are captured (TRAIN.CAPTURE), and equal")
    require_equal(found, train(False, nn.Dropout(0.3), **options))


def test_dropout_differs_between_replays():
    options = {"task": FixedTask(), "is_same": True}
    with recorded_graphs():
        _, losses, lines = train(True, nn.Dropout(0.5), **options)
    assert len(set(losses)) == UPDATES and lines[0].startswith("passes are captured")
    assert losses == pytest.approx(train(False, nn.Dropout(0.5), **options)[1])
    assert len(set(train(False, **options)[1])) == 1


@pytest.mark.parametrize(
    ("layer", "task", "said"),
    [
        (None, SilentTask(), "task squares (SilentTask) does not say that they can be"),
        (None, RefusingTask(), "task squares (RefusingTask): the moon is full"),
        (None, StepReadingTask(), "train_step reads update of its step"),
        (InheritingLayer(lambda x: 2.0), None, "layer 2 (InheritingLayer) does not say that they can be"),
        (OwnLayer(lambda x: x.mean().item()), None, "OSError: (External) CUDA error(906)"),
        (OwnLayer(lambda x: paddle.to_tensor(2.0)), None, "OSError: (External) CUDA error(906)"),
        (
            OwnLayer(lambda x: paddle.nonzero(x).sum().astype("float32")),
            None,
            "passes use where_index, which no graph of",
        ),
        (OwnLayer(lambda x: paddle.rand([1])), None, "a graph differs from the passes that it repeats by "),
    ],
)
def test_what_a_graph_cannot_repeat_runs_as_ever(layer, task, said):
    layers = [] if layer is None else [layer]
    with recorded_graphs():
        found = train(True, *layers, task=task)
    assert len(found[2]) == 1 and found[2][0].startswith(f"passes are not captured (TRAIN.CAPTURE): {said}")
    require_equal(found, train(False, *layers, task=task))


def test_a_network_that_a_bridge_hides_is_not_captured():
    """Its own class is not among the bridge's layers, and may compute anything."""
    assert not may_be_captured(BridgedModel(nn.Sequential(nn.Linear(2, 2)), 2, None, 3))


def test_a_number_of_python_that_changes_is_noticed():
    def count(x: Any) -> float:
        calls.append(1)
        return 1.0 + len(calls)

    calls: list[int] = []
    with recorded_graphs():
        *_, lines = train(True, OwnLayer(count))
    assert lines[0].startswith("passes are not captured (TRAIN.CAPTURE): a graph differs")


def test_a_hook_is_named():
    layer = nn.ReLU()
    layer.register_forward_post_hook(lambda layer, inputs, output: None)
    with recorded_graphs():
        *_, lines = train(True, layer)
    assert "layer 2 (ReLU) has a hook" in lines[0]


def test_a_second_network_of_a_task_is_asked_too():
    """Such as the teacher of self-distillation."""
    layer = nn.ReLU()
    layer.register_forward_post_hook(lambda layer, inputs, output: None)
    with recorded_graphs(), pytest.raises(NotCapturable, match="network ReLU has a hook"):
        require_capturable([nn.Linear(2, 2), layer], SquaresTask())


@pytest.mark.parametrize(("recipe", "supports"), [("detr_shapes", False), ("segformer_b0_shapes", True)])
def test_a_task_of_the_package_says_whether_it_needs_the_host(recipe, supports):
    config = settings.load([f"-cfg={recipe}"]).values
    with recorded_graphs(), contextlib.nullcontext() if supports else pytest.raises(NotCapturable, match="the host"):
        require_capturable([], resolve("task", config.TASK)(config))


def test_each_shape_of_a_batch_has_a_graph_and_their_number_is_limited():
    sizes = (4, 4, 3, 4, 5, 6, 7, 8, 4)
    with recorded_graphs() as graphs:
        found = train(True, sizes=sizes)
    assert len(graphs) == MOST_GRAPHS
    assert found[2][MOST_GRAPHS:] == [
        "passes are not captured for further shapes of batches: at most 4 (TRAIN.CAPTURE)"
    ]
    require_equal(found, train(False, sizes=sizes))


@pytest.mark.parametrize("on_host", [True, False])
def test_passes_are_captured_anew_where_other_layers_learn(on_host):
    options = {"on_host": on_host, "rate": lambda step: None if step.update in (0, 1, 2, 5, 6) else 0.05}
    options["sizes"] = (4,) * 9
    with recorded_graphs() as graphs:
        found = train(True, **options)
    said = [line.partition("(")[0] for line in found[2]]
    changes = ["epoch 1, after 0 updates: 4 of 6 parameters are frozen ", "passes are captured "]
    changes += ["epoch 1, after 3 updates: none of 6 parameters are frozen ", "passes are captured "]
    changes += ["epoch 1, after 5 updates: 4 of 6 parameters are frozen ", "passes are captured "]
    changes += ["epoch 1, after 7 updates: none of 6 parameters are frozen ", "passes are captured "]
    assert said == changes and all(graph.replays for graph in graphs)
    require_equal(found, train(False, **options))


@pytest.mark.parametrize("skipped", [2, 3])
def test_a_step_that_is_not_finite_where_layers_are_thawed_is_skipped_also_in_flight(skipped):
    options = {"rate": lambda step: None if step.update < 3 else 0.05, "skipped": skipped}
    plain = train(False, on_host=True, **options)
    require_equal(train(False, on_host=False, **options), plain)
    with recorded_graphs():
        require_equal(train(True, on_host=False, **options), plain)


def test_a_device_without_graphs_runs_as_ever():
    found = train(True)
    assert found[2] == ["passes are not captured (TRAIN.CAPTURE): only CUDA GPUs have graphs"]
    require_equal(found, train(False))
