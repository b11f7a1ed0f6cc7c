"""Layers that a rate freezes and thaws learn as in a plain loop of Paddle: on one process, on two, sharded, resumed."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support import registrations
from support.processes import run_together

from paddlevit_dist import Trainer, UserError
from paddlevit_dist.core import settings as config
from paddlevit_dist.core.distributed import world_size
from paddlevit_dist.core.registry.register import register_task
from paddlevit_dist.core.tasks.dataset import TransformedDataset
from paddlevit_dist.core.tasks.metrics import TableMetrics
from paddlevit_dist.core.tasks.protocols import ParameterGrouping
from paddlevit_dist.core.tasks.step_types import EvaluationStep, LossTerm, StepPosition, TaskTraits
from paddlevit_dist.core.tasks.task import Task

GENERATOR = np.random.default_rng(0)
ROWS = (3.0 * GENERATOR.standard_normal((24, 4)) + 2.0).astype("float32")
TARGETS = GENERATOR.standard_normal((24, 2)).astype("float32")
EPOCHS, BASE, DECAY, CLIP, EMA = 10, 0.05, 0.1, 0.5, 0.8


def rate_of_body(step: StepPosition) -> float | None:
    """Frozen, thawed with a cosine of its own, frozen again, a part of the run's rate, and a rate of 0."""
    if step.epoch in (1, 2, 6, 7):
        return None
    if step.epoch < 6:
        return 0.01 * (1 + math.cos(math.pi * (step.update - 2) / 3))
    return 0.0 if step.epoch == 9 else 0.4 * step.learning_rate


class Network(paddle.nn.Layer):
    """``norm``: the class of its batch norm; None: it has none."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.body = paddle.nn.Linear(4, 6, bias_attr=None if norm is None else False)  # a norm makes it rounding
        self.norm = paddle.nn.Identity() if norm is None else norm(6)
        self.head = paddle.nn.Linear(6, 2)
        start = np.random.default_rng(1)
        for layer in (self.body, self.head):
            for parameter in layer.parameters():
                parameter.set_value(start.standard_normal(parameter.shape).astype("float32"))

    def forward(self, rows: paddle.Tensor) -> paddle.Tensor:
        return self.head(paddle.tanh(self.norm(self.body(rows))))


class PlainNorm(paddle.nn.Layer):
    """A batch norm by its formulas, whose statistics are kept while ``keeps`` is true."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = self.create_parameter([channels], default_initializer=paddle.nn.initializer.Constant(1.0))
        self.bias = self.create_parameter([channels], is_bias=True)
        self.register_buffer("_mean", paddle.zeros([channels]))
        self.register_buffer("_variance", paddle.ones([channels]))
        self.keeps = False

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        mean, variance = self._mean, self._variance
        if not self.keeps:
            mean, variance = x.mean(axis=0), x.var(axis=0, unbiased=False)
            self._mean.set_value(0.9 * self._mean + 0.1 * mean.detach())
            self._variance.set_value(0.9 * self._variance + 0.1 * variance.detach() * (len(x) / (len(x) - 1)))
        return (x - mean) / (variance + 1e-5).sqrt() * self.weight + self.bias


def train_plainly(norm: Any, optimizer: Any, **options: Any) -> dict[str, np.ndarray]:
    """The weights, and their average as "ema/...", after a loop with an optimizer for the body and one for the head."""
    model, rows, targets = Network(norm), paddle.to_tensor(ROWS), paddle.to_tensor(TARGETS)
    parts = [[*model.body.parameters(), *model.norm.parameters()], model.head.parameters()]
    optimizers = [
        optimizer(parameters=[{"params": [p], "weight_decay": DECAY * (p.ndim > 1)} for p in part], **options)
        for part in parts
    ]
    averages = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    for update in range(EPOCHS):
        rate = rate_of_body(StepPosition(update + 1, update, EPOCHS, learning_rate=BASE))
        for parameter in parts[0]:
            parameter.stop_gradient = rate is None
        model.norm.keeps = rate is None
        ((model(rows) - targets) ** 2).sum().scale(1 / len(ROWS)).backward()
        gradients = [p.grad for part in parts for p in part if p.grad is not None]
        norm_of_all = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))
        for each, part, own in zip(optimizers, parts, (rate, BASE)):
            for parameter in part:
                if parameter.grad is not None and norm_of_all > CLIP:
                    parameter.grad.set_value(parameter.grad * (CLIP / (norm_of_all + 1e-6)))
            if own is not None:
                each.set_lr(own)
                each.step()
            each.clear_grad(False)
        for name, value in model.state_dict().items():
            averages[name] = EMA * averages[name] + (1 - EMA) * value.numpy()
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    return {**weights, **{f"ema/{name}": value for name, value in averages.items()}}


class Numbers(TransformedDataset):
    def __len__(self) -> int:
        return len(ROWS)

    def sample(self, index: int, generator: np.random.Generator) -> int:
        return index


class Staged(Task, ParameterGrouping):
    traits = TaskTraits(normalizers_per_sample={"loss": 1})
    best_metric = ("loss", False)
    build_dataset = None  # the trainer is given the data
    norm: Any = None

    def build_model(self) -> paddle.nn.Layer:
        return Network(self.norm)

    def parameter_groups(self, model: paddle.nn.Layer) -> list[dict[str, Any]]:
        names = [name for name, _ in model.named_parameters()]
        body = [name for name in names if not name.startswith("head.")]
        return [
            {"names": body, "learning_rate": rate_of_body},
            {"names": [name for name in names if name not in body]},
        ]

    def collate(self, samples: Any) -> dict[str, np.ndarray]:
        return {"rows": ROWS[samples], "targets": TARGETS[samples]}

    def train_step(self, model: Any, batch: Any, step: Any) -> dict[str, LossTerm]:
        return {"loss": LossTerm(((model(batch["rows"]) - batch["targets"]) ** 2).sum(), len(batch["rows"]))}

    def eval_step(self, model: Any, batch: Any, step: EvaluationStep) -> None:
        step.metrics.add_batch(loss=((model(batch["rows"]) - batch["targets"]) ** 2).sum(axis=1))

    def build_metrics(self) -> TableMetrics:
        return TableMetrics("measures")


class StagedWithNorm(Staged):
    norm = paddle.nn.BatchNorm1D


class OwnStep(Staged):
    """Freezes in its step what no rate does."""

    def parameter_groups(self, model: paddle.nn.Layer) -> list[dict[str, Any]]:
        return [{"names": [name for name, _ in model.named_parameters()]}]

    def train_step(self, model: Any, batch: Any, step: Any) -> dict[str, LossTerm]:
        for parameter in getattr(model, "_layers", model).body.parameters():
            parameter.stop_gradient = step.epoch == 2
        return super().train_step(model, batch, step)


KINDS = {"own_step": OwnStep, "staged": Staged, "staged_with_norm": StagedWithNorm}


@registrations.forgotten()
def train(output: str, *arguments: str) -> dict[str, np.ndarray]:
    """What ``train_plainly`` returns, of a run with an update an epoch, which has it on all ranks."""
    for name, kind in KINDS.items():
        register_task(name, kind, tables=[])
    words = [f"-output={output}", "DATA.NUM_WORKERS", "0", f"-epochs={EPOCHS}", "TRAIN.BATCH_NORM", "sync"]
    words += ["TRAIN.BASE_LR", str(BASE), "TRAIN.WEIGHT_DECAY", str(DECAY), "TRAIN.GRAD_CLIP", str(CLIP)]
    words += ["TRAIN.LR_SCHEDULER.NAME", "constant", "TRAIN.MODEL_EMA", "True", "TRAIN.MODEL_EMA_DECAY", str(EMA)]
    words += ["REPORT", "False", f"-batch_size={len(ROWS) // world_size()}"]
    values = config.load([*words, *arguments]).values
    Path(output).mkdir(parents=True, exist_ok=True)
    trainer = Trainer(values, KINDS[values.TASK](values), {"train": Numbers(), "val": Numbers()})
    trainer.train()
    files = {"": "model", "ema/": "model_ema"}
    states = {prefix: paddle.load(f"{output}/checkpoints/last/{name}.pdparams") for prefix, name in files.items()}
    for name, value in trainer.model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), states[""][name].numpy(), err_msg=name)
    return {f"{prefix}{name}": value.numpy() for prefix, state in states.items() for name, value in state.items()}


def train_in_parts(output: str, *arguments: str) -> dict[str, np.ndarray]:
    """Like ``train``, of a run that stops twice where the body is frozen, and once where it learns."""
    for end in ("1", "4", "7"):
        train(output, *arguments, f"-stop_after_epoch={end}", "-resume=auto")
    return train(output, *arguments, "-resume=auto")


def find_refusal(output: str, *arguments: str) -> str:
    """The message of the UserError that ends a run."""
    try:
        train(output, *arguments)
    except UserError as error:
        return str(error)
    return ""


ADAMW = ("TRAIN.OPTIMIZER.NAME", "AdamW", "TRAIN.OPTIMIZER.EPS", "1e-8", "TRAIN.OPTIMIZER.BETAS", "(0.9, 0.999)")
SGD = ("TRAIN.OPTIMIZER.NAME", "SGD", "TRAIN.OPTIMIZER.MOMENTUM", "0.9")
WITH_NORM, WITHOUT = ("TASK", "staged_with_norm", *ADAMW), ("TASK", "staged", *SGD)
SHARDED = ("TRAIN.SHARDING", "optimizer")
HALVES = ("-accum_iter=2", f"-batch_size={len(ROWS) // 4}")  # of two processes


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, np.ndarray]]:
    """What loops of Paddle learn, by the name of the task."""
    return {
        "staged_with_norm": train_plainly(PlainNorm, paddle.optimizer.AdamW),
        "staged": train_plainly(None, paddle.optimizer.Momentum, momentum=0.9),
    }


def require_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("words", [WITH_NORM, WITHOUT])
def test_one_process_learns_as_a_plain_loop_does_and_a_resumed_run_the_same_to_the_bit(words, expected, tmp_path):
    found, resumed = train(str(tmp_path / "whole"), *words), train_in_parts(str(tmp_path / "parts"), *words)
    require_equal(found, expected[words[1]])
    for name, value in found.items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)


def test_two_processes_learn_as_a_plain_loop_does(expected, tmp_path):
    module = "integration.core.engine.test_freezing"
    runs = {
        "with_norm": (f"{module}:train", WITH_NORM),
        "accumulated": (f"{module}:train", (*WITHOUT, *HALVES)),
        "sharded": (f"{module}:train_in_parts", (*WITH_NORM, *SHARDED)),
    }
    # Ranks have statistics of their own until a norm keeps those of the first, with which this run ends.
    local = "TRAIN.BATCH_NORM", "local", "VALIDATE_FREQ", str(EPOCHS), "-stop_after_epoch=7"
    runs["local"] = (f"{module}:train", (*WITH_NORM, *local))
    calls = {name: (target, (str(tmp_path / name), *words)) for name, (target, words) in runs.items()}
    calls["own"] = f"{module}:find_refusal", (str(tmp_path / "own"), "TASK", "own_step", *ADAMW)
    results = run_together(calls)
    for message in results.pop("own"):
        assert "OwnStep.train_step" in message and "body.weight and 1 more" in message
        assert message.endswith("or set TRAIN.FIND_UNUSED_PARAMETERS True")
    for name, ranks in results.items():
        for found in ranks if name != "local" else ():
            require_equal(found, expected[runs[name][1][1]])
