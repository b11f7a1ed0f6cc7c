"""Where an update that is not finite begins: layer, operation, micro-batch and samples, which the run is told."""

import contextlib
import dataclasses

import numpy as np
import paddle
import pytest
from support.trainings import small_runs

from paddlevit_dist import Trainer
from paddlevit_dist.debug import first_layer
from paddlevit_dist.debug.first_layer import FirstLayerFinder, NonFiniteResult
from paddlevit_dist.debug.layer_watch import BadTensor
from paddlevit_dist.engine import accumulation_groups
from paddlevit_dist.registry.lookup import resolve
from paddlevit_dist.tasks.step_types import LossTerm, StepPosition

BATCH, PARTS = 6, 2


class Shift(paddle.nn.Layer):
    """Adds nothing, or infinity to the rows that are marked by their sums."""

    marked: tuple[float, ...] = ()

    def forward(self, inputs: paddle.Tensor) -> paddle.Tensor:
        sums = inputs.sum(axis=1, keepdim=True)
        for mark in self.marked:
            inputs = inputs + paddle.where((sums - mark).abs() < 1e-4, paddle.full([1], np.inf), paddle.zeros([1]))
        return inputs


class Faulty(paddle.nn.Layer):
    """A linear classifier with a fault in one place."""

    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.shift, self.norm = Shift(), paddle.nn.BatchNorm1D(256)
        self.body, self.head = paddle.nn.Linear(256, 8), paddle.nn.Linear(8, 10)

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        rows = images.flatten(1)
        if self.fault == "columns":  # the samples are not the first axis of what is not finite
            rows = self.shift(paddle.concat([rows, rows[:1]]))[:-1]
        rows = self.body(self.norm(self.shift(rows) if self.fault == "layer" else rows))
        if self.fault == "between":
            rows = paddle.log(rows * 0)
        if self.fault == "gradient":
            rows = paddle.sqrt(rows * 0)  # is 0, and infinitely steep there
        return self.head(rows * 3e33 if self.fault == "norm" else rows)


class Named(resolve("task", "classification")):
    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        return Faulty()

    def train_step(self, model, batch, step):
        losses = paddle.nn.functional.cross_entropy(model(batch["images"] / 255.0), batch["labels"], reduction="sum")
        return {"loss": LossTerm(losses, len(batch["labels"]), 1.0)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Trainer, list]:
    """A trainer that has made no update, and the micro-batches of its first one."""
    words = [f"-batch_size={BATCH}", "-accum_iter=2", "-epochs=1", "TRAIN.WARMUP_STEPS", "0", "TRAIN.MIXUP_ALPHA", "0"]
    words += ["TRAIN.CUTMIX_ALPHA", "0", "TRAIN.AUTO_AUGMENT", "False"]
    folder = str(tmp_path_factory.mktemp("run"))
    trainer = small_runs.build(folder, *words, train_size=5 * BATCH * PARTS, task_class=Named)
    trainer.prepare_training()
    trainer.model.train()
    with contextlib.closing(trainer.loader.epochs(1, 1)) as batches:
        return trainer, next(accumulation_groups(batches, PARTS, 1))


def find(trained, fault="", marked=(), bad_input=()) -> list[str]:
    """What is found of the first update with a fault.

    Args:
        trained: the fixture.
        fault: of the model.
        marked: (part, row) of samples that the layer ``shift`` makes infinite.
        bad_input: (part, row) of samples with one pixel that is not a number.
    """
    trainer, parts = trained
    rows = [part["images"].astype("float32").flatten(1) / 255.0 for part in parts]
    trainer.model.fault = fault
    trainer.model.shift.marked = tuple(float(rows[part][row].sum()) for part, row in marked)
    batches = [{**part, "images": part["images"].astype("float32")} for part in parts]
    for part, row in bad_input:
        batches[part]["images"][row, 0, 2, 5] = np.nan
    before = [tensor.numpy() for tensor in trainer.model.state_dict().values()]
    lines = FirstLayerFinder(trainer)(batches, StepPosition(1, 0, 5), {"loss": BATCH * PARTS})
    after = [tensor.numpy() for tensor in trainer.model.state_dict().values()]
    assert all(map(np.array_equal, before, after)), "running statistics are put back"
    assert all(p.grad is None or not p.grad.numpy().any() for p in trainer.model.parameters())
    return lines


def list_names(trainer, part: int, rows) -> list[str]:
    """The lines of samples in rows of a part of the first update."""
    keys = list(trainer.sampler.batches(1, 0))[part]
    dataset = trainer.datasets["train"]
    return [f"    {keys[row].index} {dataset.describe(keys[row].index)}" for row in rows]


def test_the_first_layer_its_operation_and_its_samples_are_told(trained):
    lines = find(trained, "layer", [(1, 1), (1, 4)])
    assert lines == [
        "rank 0, micro-batch 1: the output of layer 'shift' (Shift) is not finite: 512 of 1,536 values",
        lines[1],
        "  2 samples:",
        *list_names(trained[0], 1, [1, 4]),
    ]
    assert lines[1].startswith("  Paddle's check of operations stops at: ")
    *_, also = find(trained, "layer", [(0, 5), (1, 1), (1, 4)])
    assert also == "also in rank 0, micro-batch 1: the output of layer 'shift' (Shift)"


def test_what_comes_first_in_any_rank_is_told_first(trained, monkeypatch):
    def gather(value):
        """What two ranks have: this one, and one before it in the same order of micro-batches and layers."""
        if not isinstance(value, list) or not value or not isinstance(value[0], NonFiniteResult):
            return [value]
        (own,) = value
        return [value, [own._replace(rank=3), own._replace(rank=2, finding=own.finding._replace(order=0)), earlier]]

    monkeypatch.setattr(first_layer, "all_gather", gather)
    bad = BadTensor(9, "the output of layer 'early'", 5, 1024, None)
    earlier = NonFiniteResult(0, 7, bad, "divide", [f"{number} x.png" for number in range(22)], False)
    first, operation, samples, *names, more, second, third, last = find(trained, "layer", [(1, 3)])
    assert first == "rank 7, micro-batch 0: the output of layer 'early' is not finite: 5 of 1,024 values"
    assert operation == "  Paddle's check of operations stops at: divide"
    assert samples == "  22 samples of this micro-batch, at least one is affected:"
    assert names == [f"    {number} x.png" for number in range(20)] and more == "    and 2 more"
    places = ["rank 2, micro-batch 1", "rank 0, micro-batch 1", "rank 3, micro-batch 1"]
    assert [line.partition(": ")[0] for line in (second, third, last)] == [f"also in {place}" for place in places]


def test_inputs_that_are_not_finite_are_told_with_their_samples(trained):
    lines = find(trained, bad_input=[(0, 3)])
    assert lines == [
        "rank 0, micro-batch 0: the input 'images' is not finite: 1 of 1,536 values",
        lines[1],
        "  1 sample:",
        *list_names(trained[0], 0, [3]),
    ]


@pytest.mark.parametrize(
    "fault, what",
    [
        ("between", "the input of layer 'head' (Linear), computed after the output of layer 'body' (Linear),"),
        ("gradient", "the gradient of the output of layer 'body' (Linear)"),
    ],
)
def test_what_lies_between_two_layers_is_told_by_both(trained, fault, what):
    first, *_ = find(trained, fault)
    assert first == f"rank 0, micro-batch 0: {what} is not finite: 48 of 48 values"


def test_samples_are_tried_one_by_one_where_rows_do_not_name_them(trained, monkeypatch):
    trainer, _ = trained
    loaded, load = [], first_layer.DeviceLoader
    monkeypatch.setattr(first_layer, "DeviceLoader", lambda *given, **how: loaded.append(how) or load(*given, **how))
    first, _, samples, *names = find(trained, "columns", [(1, 2)])
    assert loaded == [{"num_workers": 0, "seed": trainer.config.SEED, "epochs": 1}] * BATCH
    assert first.startswith("rank 0, micro-batch 1: the output of layer 'shift' (Shift) is not finite: 256 of 1,792")
    assert samples == "  1 sample:" and names == list_names(trainer, 1, [2])


@pytest.mark.parametrize(
    "in_step, ranks, in_forward, together",
    [(True, 2, False, True), (False, 1, True, True), (True, 1, False, False), (False, 2, False, False)],
)
def test_ranks_that_communicate_make_the_same_passes(trained, monkeypatch, in_step, ranks, in_forward, together):
    trainer, _ = trained
    traits = trainer.task.traits
    monkeypatch.setattr(
        trainer.task, "traits", dataclasses.replace(traits, communicates_in_step=in_step), raising=False
    )
    monkeypatch.setattr(first_layer, "world_size", lambda: ranks)
    monkeypatch.setattr(first_layer, "communicates_in_forward", lambda model: in_forward)
    passes, step = [], type(trainer.task).train_step
    monkeypatch.setattr(type(trainer.task), "train_step", lambda *given: passes.append(1) or step(*given))
    first, *lines = find(trained, "columns", [(1, 2)])
    names = list_names(trainer, 1, range(BATCH) if together else [2])
    assert lines[-len(names) :] == names and len(passes) == (2 if together else 2 + 1 + BATCH)
    assert lines[0].startswith("  6 samples of this micro-batch, at least one " if together else "  Paddle's check of ")


def test_finite_gradients_whose_norm_is_not_are_told(trained):
    assert find(trained, "norm") == ["every gradient is finite, but their norm overflows float32"]
    assert find(trained) == ["a repetition of the update is finite: some operation is not deterministic"]


def test_weights_that_were_not_finite_before_are_told(trained):
    bias = trained[0].model.head.bias
    bias.set_value(paddle.to_tensor([0.0] * 9 + [np.nan]))
    lines = FirstLayerFinder(trained[0])(trained[1], StepPosition(1, 0, 5), {"loss": BATCH * PARTS})
    bias.set_value(paddle.zeros([10]))
    assert lines == ["weight 'head.bias' is not finite before the update"]


def test_an_error_of_the_search_is_a_line(trained, monkeypatch):
    def fails(*_):
        raise KeyError("no\nlayer")

    monkeypatch.setattr(trained[0].task, "train_step", fails)
    (line,) = find(trained)
    assert line.startswith("rank 0 could not find the layer: ") and "layer" in line[33:] and "\n" not in line
