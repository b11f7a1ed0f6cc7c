"""Distillation: a teacher's predictions in addition to the labels.

Source: H. Touvron et al., "Training data-efficient image transformers & distillation through attention", arXiv
2012.12877, section 3: equation 2 (soft) and equation 3 (hard).
"""

from pathlib import Path

import paddle
import paddle.nn.functional as F

from ... import extension
from ...checkpoint.load import load_weights
from ...models import create_model
from ...registry import MODELS
from ...runtime.errors import UserError
from .settings import ClassificationDataSection, ClassificationTrainSection

_EXPORTED = (".json", ".pdmodel")


class TeacherModel:
    """A teacher, which is never trained: outside the data-parallel model, its averages and its checkpoints.

    Args:
        name: a registered model, or an exported one by its path without extension (TRAIN.TEACHER_MODEL).
        weights: weights of a registered model for ``load_weights`` (TRAIN.TEACHER_WEIGHTS).
        num_classes: of the student.
        image_size: of the student.
        in_channels: of the student.

    Raises:
        UserError: no such model, or its weights do not fit completely.
    """

    def __init__(self, name: str, weights: str | None, num_classes: int, image_size: int, in_channels: int) -> None:
        self.name = name
        self.num_classes = num_classes
        if name in MODELS:
            if weights is None:
                raise UserError(f"TRAIN.TEACHER_MODEL {name} needs its weights: set TRAIN.TEACHER_WEIGHTS")
            self.model = create_model(name, num_classes=num_classes, image_size=image_size, in_channels=in_channels)
            self.summary = load_weights(self.model, weights, strict=True).summary()
            if extension.has("cpu_kernels"):
                extension.accelerate(self.model)
        else:
            if not any(Path(name + end).is_file() for end in _EXPORTED):
                raise UserError(
                    f"TRAIN.TEACHER_MODEL {name} is neither a registered model nor an exported one "
                    f"({name}.json or {name}.pdmodel)"
                )
            self.model = paddle.jit.load(name)
            self.summary = "exported model"
        self.model.eval()
        for parameter in self.model.parameters():
            parameter.stop_gradient = True

    @paddle.no_grad()
    def __call__(self, images: paddle.Tensor) -> paddle.Tensor:
        """Compute logits float32 (batch, classes) of the student's images, normalized and mixed."""
        logits = self.model(images).astype("float32")
        if logits.shape[-1] != self.num_classes:
            raise UserError(
                f"TRAIN.TEACHER_MODEL {self.name} has {logits.shape[-1]} classes, the student {self.num_classes}"
            )
        return logits


def build_teacher(
    train: ClassificationTrainSection, num_classes: int, data: ClassificationDataSection
) -> TeacherModel | None:
    """Build the teacher of the TRAIN section; None without distillation.

    Raises:
        UserError: distillation without a teacher, no such model, or its weights do not fit completely.
    """
    if train.DISTILLATION_TYPE == "none":
        return None
    if train.TEACHER_MODEL is None:
        raise UserError(f"TRAIN.DISTILLATION_TYPE {train.DISTILLATION_TYPE} needs TRAIN.TEACHER_MODEL")
    return TeacherModel(train.TEACHER_MODEL, train.TEACHER_WEIGHTS, num_classes, data.IMAGE_SIZE, data.IMAGE_CHANNELS)


def distillation_loss(
    kind: str, student: paddle.Tensor, teacher: paddle.Tensor, temperature: float = 1.0
) -> paddle.Tensor:
    """Compute the distillation loss, summed over the batch.

    Hard: cross-entropy with the teacher's decision. Soft: ``temperature ** 2`` times the divergence KL(teacher ||
    student) of the softened distributions.

    Args:
        kind: "hard" or "soft".
        student: logits float32 (batch, classes).
        teacher: logits float32 (batch, classes).
        temperature: of the soft loss; 1 in DeiT's recipes.
    """
    if kind == "hard":
        return F.cross_entropy(student, teacher.argmax(axis=-1), reduction="sum")
    softened = F.softmax(teacher / temperature, axis=-1)
    return F.kl_div(F.log_softmax(student / temperature, axis=-1), softened, reduction="sum") * temperature**2
