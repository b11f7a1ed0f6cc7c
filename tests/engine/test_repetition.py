"""DETERMINISTIC says what of a model has no kernel on GPUs that repeats."""

import paddle
import pytest
from support import small_runs
from support.processes import run_workers, succeeded

from paddlevit_dist.contracts.task import Term
from paddlevit_dist.diagnosis import repetition
from paddlevit_dist.diagnosis.repetition import line_of
from paddlevit_dist.engine.introduction import first_lines

F = paddle.nn.functional


def leaf(*shape: int) -> paddle.Tensor:
    tensor = paddle.ones(shape)
    tensor.stop_gradient = False
    return tensor


def upsampled() -> paddle.Tensor:
    return F.interpolate(leaf(1, 2, 4, 4), scale_factor=2, mode="bilinear", align_corners=False).sum()


def pooled() -> paddle.Tensor:
    number = paddle.ones([1], dtype="int32")
    return paddle.vision.ops.roi_align(leaf(1, 2, 8, 8), paddle.ones([1, 4]), number, output_size=2).sum()


def taken() -> paddle.Tensor:
    return paddle.gather(leaf(4, 2), paddle.to_tensor([0, 0, 1])).sum()


def indexed() -> paddle.Tensor:
    return leaf(4, 2)[paddle.to_tensor([0, 0, 1])].sum()


def multiplied() -> paddle.Tensor:
    return F.softmax(paddle.matmul(leaf(3, 4), leaf(4, 3))).sum()


@pytest.mark.parametrize(
    "losses, said",
    [
        ([upsampled], "for the gradient of interpolate: expect"),
        ([pooled, multiplied], "for the gradient of roi_align: expect"),
        ([taken], "for the gradient of gather where several rows add to one: expect"),
        ([upsampled, indexed, pooled], "of interpolate, roi_align; of indexing where several rows add to one: expect"),
        ([multiplied], "no operation of this model is known"),
    ],
)
def test_operations_without_a_fixed_order_are_named(losses, said):
    terms = {str(number): Term(loss(), 1) for number, loss in enumerate(losses)}
    next(iter(terms.values())).sum.backward()  # as a training has done by then
    assert said in line_of(terms)


def test_what_only_a_reported_quantity_uses_is_not_named():
    terms = {"loss": Term(multiplied(), 1), "shown": Term(upsampled(), 1, weight=0.0)}
    assert "interpolate" not in line_of(terms)


def line_of_a_program() -> str:
    """In a process of its own: the threads of Paddle's executor live as long as the process."""
    program = paddle.jit.to_static(paddle.nn.Linear(2, 2), full_graph=True)
    return line_of({"loss": Term(program(paddle.ones([1, 2])).sum(), 1)})


def test_a_program_is_not_looked_into():
    (of_program,) = succeeded(run_workers("engine.test_repetition:line_of_a_program", processes=1)).results
    assert "TO_STATIC" in of_program


def test_a_training_on_a_gpu_says_it_once_and_one_on_a_cpu_that_it_sets_nothing(tmp_path, monkeypatch):
    trainer = small_runs.build(
        str(tmp_path), "-batch_size=32", "-epochs=1", "DETERMINISTIC", "True", train_size=64, val_size=32
    )
    (told,) = [line for line in first_lines(trainer.config, trainer.task, {}) if "DETERMINISTIC" in line]
    assert "sets nothing on a CPU" in told
    monkeypatch.setattr(repetition, "is_on_gpu", lambda: True)
    trainer.train()
    log = (tmp_path / "log.txt").read_text()
    assert log.count("no operation of this model is known") == 1
