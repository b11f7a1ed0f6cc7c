"""Learning from a teacher: the formulas, which head learns what, and whole trainings."""

from contextlib import nullcontext

import numpy as np
import paddle
import pytest
from support.networks.cheap_weights import weights_of_zero
from support.trainings.small_runs import DIGITS

from paddlevit_dist import UserError, create_model
from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.register import register_model
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import ModelChecking
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.images.classification.distillation import TeacherModel, distillation_loss, split_heads
from paddlevit_dist.images.classification.task import Classification
from paddlevit_dist.images.classification.teacher_input import TeacherInput
from paddlevit_dist.images.models.vit import VisionTransformer

SMALL = ["MODEL.EMBED_DIM", "16", "MODEL.DEPTH", "1", "MODEL.NUM_HEADS", "2", "MODEL.PATCH_SIZE", "8"]


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@pytest.fixture(scope="module")
def logits():
    generator = np.random.default_rng(0)
    return generator.normal(0, 2, (6, 5)), generator.normal(0, 2, (6, 5))


def test_hard_distillation_takes_the_teachers_decision_for_the_label(logits):
    student, teacher = logits
    expected = -log_softmax(student)[np.arange(6), teacher.argmax(axis=1)].sum()
    ours = distillation_loss("hard", *(paddle.to_tensor(x.astype("float32")) for x in logits), temperature=3.0)
    assert ours.item() == pytest.approx(expected, rel=1e-5)


def test_soft_distillation_is_the_divergence_of_softened_distributions(logits):
    given = [paddle.to_tensor(x.astype("float32")) for x in logits]
    for temperature, options in ((1.0, {}), (3.0, {"temperature": 3.0})):
        student, teacher = (log_softmax(x / temperature) for x in logits)
        expected = temperature**2 * (np.exp(teacher) * (teacher - student)).sum()
        assert distillation_loss("soft", *given, **options).item() == pytest.approx(expected, rel=1e-5)


class SmallTeacher(VisionTransformer):
    variants = {"small_teacher": {"patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3}}


@pytest.fixture(scope="module")
def teacher_file(tmp_path_factory):
    register_model("small_teacher", SmallTeacher)
    paddle.seed(1)
    folder = tmp_path_factory.mktemp("teacher")
    teacher = create_model("small_teacher", num_classes=10, image_size=16, in_channels=1)
    paddle.save(teacher.state_dict(), str(folder / "teacher.pdparams"))
    return str(folder / "teacher")


def make_task(teacher_file, model, *arguments) -> Classification:
    distilled = ["TRAIN.DISTILLATION_TYPE", "hard", "TRAIN.TEACHER_MODEL", "small_teacher"]
    distilled += ["TRAIN.TEACHER_WEIGHTS", teacher_file, "-num_classes=10", "MODEL.NAME", model]
    task = Classification(settings.load([*DIGITS, *SMALL, *distilled, *arguments]).values)
    paddle.seed(0)
    task.model = task.build_model()
    return task


def batch():
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (4, 1, 16, 16), dtype=np.uint8)
    return {"images": paddle.to_tensor(images), "labels": paddle.to_tensor([1, 5, 0, 9])}


def test_the_second_head_of_a_distilled_model_learns_from_the_teacher_alone(teacher_file):
    task = make_task(teacher_file, "deit_tiny_distilled_patch16_224", "TRAIN.DISTILLATION_ALPHA", "0.3")
    task.model.train()
    terms = task.train_step(task.model, batch(), StepPosition(1, 0, 10))
    assert terms["loss"].weight == pytest.approx(0.7) and terms["distillation"].weight == 0.3
    terms["loss"].sum.backward()
    assert task.model.head.weight.grad is not None and task.model.head_dist.weight.grad is None
    task.model.clear_gradients()
    images = task.normalize(batch()["images"])
    _, taught = task.model(images)
    decisions = task.teacher(images).argmax(axis=-1).numpy()
    expected = -log_softmax(taught.numpy().astype(np.float64))[np.arange(4), decisions].sum()
    assert terms["distillation"].sum.item() == pytest.approx(expected, rel=1e-4)
    task.train_step(task.model, batch(), StepPosition(1, 0, 10))["distillation"].sum.backward()
    assert task.model.head_dist.weight.grad.numpy().any()
    assert all(p.grad is None for p in task.teacher.model.parameters())


def test_a_model_with_one_head_learns_both_with_it(teacher_file):
    task = make_task(teacher_file, "vit", "TRAIN.DISTILLATION_TYPE", "soft")
    terms = task.train_step(task.model, batch(), StepPosition(1, 0, 10))
    terms["distillation"].sum.backward()
    assert task.model.head.weight.grad.numpy().any()


@weights_of_zero()
@pytest.mark.parametrize("task, is_refused", [("multi_label", True), ("classification", False), ("mine", False)])
def test_a_teacher_of_several_labels_does_not_teach_one_class(teacher_file, tmp_path, task, is_refused):
    (tmp_path / "described.pdparams").symlink_to(f"{teacher_file}.pdparams")
    (tmp_path / "described.about.yaml").write_text(f"task: {task}\n")
    teaching = nullcontext()
    if is_refused:
        teaching = pytest.raises(UserError, match="TASK multi_label, whose outputs do not teach TASK classification")
    with teaching:
        make_task(str(tmp_path / "described"), "vit_tiny_patch16_224")


@weights_of_zero()
def test_a_teacher_has_its_own_normalization_and_the_students_order_of_classes(teacher_file, tmp_path):
    names = list("jdabcefghi")
    (tmp_path / "named.pdparams").symlink_to(f"{teacher_file}.pdparams")
    (tmp_path / "named.about.yaml").write_text(f"data: {{train: {{classes: {names}}}}}\n")
    data = settings.load([*DIGITS, "DATA.IMAGENET_MEAN", "0.25", "DATA.IMAGENET_STD", "0.5"]).values.DATA
    teacher = TeacherModel("small_teacher", str(tmp_path / "named"), 10, 16, 1)
    pixels = np.random.default_rng(0).random((3, 1, 16, 16)).astype("float32")
    for mean, deviation in ((0.25, 0.5), (0.125, 0.5), (0.25, 2.0)):
        teacher.input = TeacherInput("file", (mean,), (deviation,), 16, "bicubic")
        teacher.fit_input(data)
        found = teacher(paddle.to_tensor((pixels - 0.25) / 0.5)).numpy()
        expected = teacher.model(paddle.to_tensor((pixels - mean) / deviation)).numpy()
        if (mean, deviation) == (0.25, 0.5):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    teacher.match_classes(teacher.model, sorted(names), 10)
    ordered = teacher(paddle.to_tensor((pixels - 0.25) / 0.5)).numpy()
    np.testing.assert_allclose(ordered, expected[:, np.argsort(names)], atol=1e-5)
    assert np.ptp(expected, axis=1).min() > 0.1


@pytest.mark.parametrize(
    "words, is_told",
    [
        ([], True),
        (["TRAIN.TEACHER_MODEL", "vit_tiny_patch16_224", "TRAIN.TEACHER_WEIGHTS", "x"], False),
        (["-eval", "-pretrained=x"], False),
        (["TRAIN.DISTILLATION_TYPE", "none"], False),
    ],
)
def test_a_check_of_the_model_tells_that_training_needs_a_teacher(words, is_told):
    task = Classification(settings.load([*DIGITS, *SMALL, "TRAIN.DISTILLATION_TYPE", "soft", *words]).values)
    notes = get_aspect(task, ModelChecking).check_model()
    told = "note: training needs TRAIN.TEACHER_MODEL (TRAIN.DISTILLATION_TYPE soft)"
    assert notes == [told] * is_told


def test_a_teacher_without_weights_is_refused():
    with pytest.raises(UserError, match="needs its weights: set TRAIN.TEACHER_WEIGHTS"):
        TeacherModel("vit_tiny_patch16_224", None, 10, 16, 1)


def test_two_outputs_are_two_heads_with_a_teacher_alone():
    logits, more = paddle.zeros([2, 5]), paddle.ones([2, 5])
    model = paddle.nn.Linear(1, 1)
    assert split_heads((logits, more), model, (2, 5), True) == (logits, more)
    assert split_heads(logits, model, (2, 5), True) == split_heads(logits, model, (2, 5), False) == (logits, logits)
    for outputs, has_teacher in (((logits, more), False), ((logits, more, more), True), ([logits], False)):
        with pytest.raises(
            UserError, match=r"^Linear returns (tuple|list) of \d .*, expected logits \(images, classes\)"
        ):
            split_heads(outputs, model, (2, 5), has_teacher)
