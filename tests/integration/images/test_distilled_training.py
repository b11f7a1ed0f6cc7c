"""A student learns from a teacher in two processes, and its checkpoints hold the student alone."""

import numpy as np
import paddle
import pytest
from support.processes import run_main, succeeded
from support.trainings.runs import PLAIN, write_images
from support.trainings.small_runs import TINY

from paddlevit_dist import UserError, create_model
from paddlevit_dist.images.classification.distillation import TeacherModel


def test_two_processes_train_with_a_teacher(tmp_path):
    paddle.seed(1)
    teacher = create_model("vit_tiny_patch16_224", num_classes=3, image_size=16)
    paddle.save(teacher.state_dict(), str(tmp_path / "teacher.pdparams"))
    words = f"-output={tmp_path}/out -dataset=folder -data_path={write_images(tmp_path / 'images')} -image_size=16"
    words += " -ngpus=2 -batch_size=4 -num_workers=0 -epochs=1 TRAIN.WARMUP_EPOCHS 0 REPORT False"
    words += " MODEL.NAME deit_tiny_distilled_patch16_224 TRAIN.DISTILLATION_TYPE hard"
    words += f" TRAIN.TEACHER_MODEL vit_tiny_patch16_224 TRAIN.TEACHER_WEIGHTS {tmp_path}/teacher"
    ended = succeeded(run_main(PLAIN, *words.split(), *TINY))
    assert "distillation " in (tmp_path / "out" / "log.txt").read_text()  # a terminal of 80 columns shows fewer terms
    assert ended.out.strip().splitlines()[-1].startswith("top-1")
    saved = paddle.load(str(tmp_path / "out" / "checkpoints" / "last" / "model.pdparams"))
    assert "head_dist.weight" in saved and not any("teacher" in name for name in saved)


@pytest.fixture
def teacher_file(tmp_path):
    paddle.seed(1)
    teacher = create_model("vit_tiny_patch16_224", num_classes=10, image_size=16, in_channels=1)
    paddle.save(teacher.state_dict(), str(tmp_path / "teacher.pdparams"))
    return str(tmp_path / "teacher")


def test_an_exported_model_teaches_as_the_model_itself(teacher_file, tmp_path):
    named = TeacherModel("vit_tiny_patch16_224", teacher_file, 10, 16, 1)
    path = str(tmp_path / "exported")
    spec = [paddle.static.InputSpec([None, 1, 16, 16], "float32")]
    images = paddle.randn([3, 1, 16, 16])
    expected = named(images).numpy()  # before: Paddle 2.6 leaves its converted code in what it has saved
    paddle.jit.save(named.model, path, input_spec=spec)
    exported = TeacherModel(path, None, 10, 16, 1)
    np.testing.assert_allclose(exported(images).numpy(), expected, atol=1e-5)
    with pytest.raises(UserError, match="has 10 classes, and 7 are needed"):
        exported.match_classes(named.model, (), 7)
