"""Where an update that is not finite begins: layer, operation, micro-batch and samples, which the run is told."""

import contextlib
import dataclasses

import numpy as np
import paddle
import pytest
from support.thread_ranks import ThreadRanks
from support.trainings import small_runs

from paddlevit_dist import Trainer, all_gather
from paddlevit_dist.core.distributed import DistributedBatchNorm
from paddlevit_dist.core.engine import accumulation_groups
from paddlevit_dist.core.engine.step import step_seed
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.step_types import LossTerm, StepPosition
from paddlevit_dist.extensions.debug.first_layer import FirstLayerFinder, NonFiniteResult
from paddlevit_dist.extensions.debug.layer_watch import BadTensor

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
        if self.fault == "error":
            raise KeyError("no\nlayer")
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
    passes = 0
    drawn = 0.0

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        return Faulty()

    def train_step(self, model, batch, step):
        self.passes += 1
        self.drawn = paddle.rand([1]).item()
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


def find_beside(trained, others, *what) -> list[str]:
    """What rank 0 finds if the other ranks, which are threads, have found ``others``."""

    def find_in_rank(rank):
        if rank == 0:
            return find(trained, *what)
        return [all_gather(value) for value in (None, others[rank - 1], [])]  # weights that are bad, results, lines

    return ThreadRanks(1 + len(others)).run(find_in_rank)[0]


def test_what_comes_first_in_any_rank_is_told_first(trained):
    def found(micro, rank, order):
        bad = BadTensor(order, "the output of layer 'early'", 5, 1024, None)
        return NonFiniteResult(micro, rank, bad, "divide", [f"{number} x.png" for number in range(22)], False)

    others = [[found(1, 3, 99), found(1, 2, -1)], [found(0, 7, 9)]]
    first, operation, samples, *names, more, second, third, last = find_beside(trained, others, "layer", [(1, 3)])
    assert first == "rank 7, micro-batch 0: the output of layer 'early' is not finite: 5 of 1,024 values"
    assert operation == "  Paddle's check of operations stops at: divide"
    assert samples == "  22 samples of this micro-batch, at least one is affected:"
    assert names == [f"    {number} x.png" for number in range(20)] and more == "    and 2 more"
    places = ["rank 2, micro-batch 1", "rank 0, micro-batch 1", "rank 3, micro-batch 1"]
    assert [line.partition(": ")[0] for line in (second, third, last)] == [f"also in {place}" for place in places]


def test_a_rank_drops_again_what_it_has_dropped(trained):
    def find_in_rank(rank):
        if rank == 1:
            return find(trained)
        return [all_gather(value) for value in (None, [], [])]

    ThreadRanks(2).run(find_in_rank)
    drawn = trained[0].task.drawn
    paddle.seed(step_seed(trained[0].config.SEED, 0, 1, PARTS - 1))  # of the update's last pass on rank 1
    assert drawn == paddle.rand([1]).item()


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


def test_samples_are_tried_one_by_one_where_rows_do_not_name_them(trained):
    """The sample is augmented as in the update, or its sum would be another one."""
    first, _, samples, *names = find(trained, "columns", [(1, 2)])
    assert first.startswith("rank 0, micro-batch 1: the output of layer 'shift' (Shift) is not finite: 256 of 1,792")
    assert samples == "  1 sample:" and names == list_names(trained[0], 1, [2])


@pytest.mark.parametrize(
    "in_step, ranks, in_forward, together",
    [(True, 2, False, True), (False, 1, True, True), (True, 1, False, False), (False, 2, False, False)],
)
def test_ranks_that_communicate_make_the_same_passes(trained, in_step, ranks, in_forward, together):
    trainer, _ = trained
    traits, passes = trainer.task.traits, trainer.task.passes
    trainer.task.traits = dataclasses.replace(traits, communicates_in_step=in_step)
    trainer.model.unused = DistributedBatchNorm(1)
    trainer.model.unused.synchronized = in_forward
    first, *lines = find_beside(trained, [[]] * (ranks - 1), "columns", [(1, 2)])
    trainer.task.traits, passes = traits, trainer.task.passes - passes
    del trainer.model.unused
    names = list_names(trainer, 1, range(BATCH) if together else [2])
    assert lines[-len(names) :] == names and passes == (2 if together else 2 + 1 + BATCH)
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


def test_an_error_of_the_search_is_a_line(trained):
    (line,) = find(trained, "error")
    assert line.startswith("rank 0 could not find the layer: ") and "layer" in line[33:] and "\n" not in line
