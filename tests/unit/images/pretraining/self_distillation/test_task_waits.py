"""How often an update and an evaluation of self-distillation make the host wait for a GPU, counted on a CPU."""

import numpy as np
import paddle
from support.waits import counted_waits

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks import get_aspect
from paddlevit_dist.core.tasks.protocols import StateKeeping
from paddlevit_dist.core.tasks.step_types import EvaluationStep, StepPosition
from paddlevit_dist.images.pretraining.self_distillation.task import SelfDistillation
from paddlevit_dist.images.pretraining.self_distillation.teacher import TeacherKeeping

WORDS = "TASK self_distillation -image_size=16 MODEL.NAME vit MODEL.PATCH_SIZE 4 MODEL.EMBED_DIM 16 MODEL.DEPTH 1"
WORDS += " MODEL.NUM_HEADS 2 SELF_DISTILLATION.OUTPUTS 8 SELF_DISTILLATION.HEAD_WIDTH 8 SELF_DISTILLATION.BOTTLENECK 4"
WORDS += " SELF_DISTILLATION.SMALL_VIEWS 1 SELF_DISTILLATION.SMALL_SIZE 8"


def make(small_views: int = 1):
    task = SelfDistillation(settings.load(WORDS.split()).values)
    generator = np.random.default_rng(0)
    large, small = (generator.integers(0, 255, (n, 3, s, s)).astype(np.uint8) for n, s in ((2, 16), (small_views, 8)))
    batch = task.collate([(large, small, 1)] * 4)
    return task, task.build_model(), {name: paddle.to_tensor(array) for name, array in batch.items()}


def test_an_update_of_student_teacher_and_center_waits_for_nothing():
    task, model, batch = make()
    keeping = get_aspect(task, StateKeeping)
    assert isinstance(keeping, TeacherKeeping)
    state = keeping.build_state(model, None)

    def update(number: int) -> None:
        step = StepPosition(1, number, 9)
        terms = task.train_step(model, batch, step)
        (terms["loss"].sum / terms["loss"].count).backward()
        state.before_update(step)
        is_bad = paddle.zeros([1], "bool")
        state.average.update(is_bad)
        state.update(is_bad)

    update(0)  # makes what all share
    before = state.center.numpy().copy()
    with counted_waits() as waits:
        update(1)
    assert len(waits) == 0 and waits.transfers == 0, str(waits)
    assert (state.center.numpy() != before).any()


def test_a_step_that_the_device_finds_not_finite_leaves_teacher_and_center():
    task, model, batch = make()
    state = get_aspect(task, StateKeeping).build_state(model, None)
    kept = [tensor.numpy().copy() for tensor in (state.center, *state.teacher.parameters())]
    task.train_step(model, {**batch, "images": batch["images"].astype("float32") * float("nan")}, StepPosition(1, 0, 9))
    state.average.kept = 0.5
    for parameter in model.parameters():
        parameter.set_value(parameter + 1)
    is_bad = paddle.ones([1], "bool")
    state.average.update(is_bad)
    state.update(is_bad)
    for tensor, earlier in zip((state.center, *state.teacher.parameters()), kept):
        np.testing.assert_array_equal(tensor.numpy(), earlier)
    assert state.take_signs() is None


def test_an_evaluation_does_not_wait_before_all_batches_are_queued():
    task, model, batch = make(0)
    task.has_classes = True
    model.eval()
    step = EvaluationStep(task.build_metrics(), keeps_records=True)
    task.eval_step(model, batch, step)  # makes what all share
    with counted_waits() as waits:
        records = task.eval_step(model, batch, step)
    assert len(waits) == 0 and waits.transfers == 0, str(waits)
    assert len(records()) == 4
