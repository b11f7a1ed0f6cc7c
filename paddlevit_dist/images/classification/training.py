"""How a classifier learns: cross-entropy with label smoothing, mixed labels, and a teacher's predictions besides the
labels.

Source of distillation: H. Touvron et al., "Training data-efficient image transformers & distillation through
attention", arXiv 2012.12877, section 3: equation 2 (soft) and equation 3 (hard).
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ...checkpoint.load import load_weights
from ...contracts.model import contract_of
from ...contracts.task import Step, TaskTraining, Term
from ...models import create_model
from ...parallel import has_batch_norm, rank
from ...registry import MODELS
from ...runtime.errors import UserError
from ...runtime.transfers import to_device
from ..transforms.on_device import Mix, Normaliser, RandomErasing, smooth_targets, soft_cross_entropy
from .class_balance import weighted_cross_entropy

_EXPORTED = (".json", ".pdmodel")


class ClassifierTraining(TaskTraining):
    """The losses of a classifier, each summed over a batch."""

    counts_per_sample = {"loss": 1, "distillation": 1}
    of_each_rank = {
        **dict.fromkeys(("TRAIN.MIXUP_ALPHA", "TRAIN.CUTMIX_ALPHA", "TRAIN.RANDOM_ERASE_PROB"), 0.0),
        "TRAIN.CUTMIX_MINMAX": None,
        **dict.fromkeys(("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH"), 0.0),
    }

    normaliser: Normaliser
    num_classes: int | None
    class_weights: np.ndarray | None  # (classes,)
    mixing: Any
    erasing: RandomErasing | None
    teacher: "Teacher | None"

    def train_step(self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: Step) -> dict[str, Term]:
        labels = batch["labels"]
        images, mix = self.training_images(batch, step)
        outputs = model(images)
        # A distilled model has two heads, for the labels and for the teacher; each (batch, classes).
        heads = outputs if isinstance(outputs, tuple) else (outputs, outputs)
        logits, taught = (head.astype("float32") for head in heads)
        count = labels.shape[0]
        with paddle.no_grad():
            # A mixed image counts as right when its label with the larger share comes first; the training score is
            # therefore lower than that of whole images.
            shown = labels if mix is None else mix.dominant(labels)
            correct = (logits.argmax(axis=-1) == shown).astype("float32").sum()
        shown_accuracy = Term(100.0 * correct, count, weight=0.0)
        loss = self._cross_entropy(logits, labels, mix)
        if self.teacher is None:
            return {"loss": Term(loss, count), "top-1": shown_accuracy}
        train = self.config.TRAIN
        share = train.DISTILLATION_ALPHA
        lesson = distillation_loss(train.DISTILLATION_TYPE, taught, self.teacher(images), train.DISTILLATION_TAU)
        return {
            "loss": Term(loss, count, weight=1.0 - share),
            "distillation": Term(lesson, count, weight=share),
            "top-1": shown_accuracy,
        }

    def training_images(self, batch: dict[str, paddle.Tensor], step: Step) -> tuple[paddle.Tensor, Mix | None]:
        """The model's input, normalised, erased and mixed, and how it was mixed."""
        images = self.normaliser(batch["images"])
        if self.erasing is not None:
            images = self.erasing.fill(images, batch)
        mix = self._draw_mix(images.shape, step)
        return (images if mix is None else mix.images(images)), mix

    def _draw_mix(self, shape: Sequence[int], step: Step) -> Mix | None:
        """How to mix this process's micro-batch; None: not at all."""
        if self.mixing is None:
            return None
        generator = np.random.default_rng([self.config.SEED, step.update, rank(), step.micro])
        return self.mixing.draw(generator, tuple(shape))

    def _cross_entropy(self, logits: paddle.Tensor, labels: paddle.Tensor, mix: Mix | None) -> paddle.Tensor:
        """Summed over the batch. Label smoothing (Szegedy et al., 2016, arXiv 1512.00567, section 7) mixes the true
        label's loss with the mean over all classes."""
        smoothing = self.config.TRAIN.SMOOTHING
        if self.class_weights is not None:
            shares = smooth_targets(labels, logits.shape[-1], 0.0)
            targets = smooth_targets(labels, logits.shape[-1], smoothing)
            if mix is not None:
                shares, targets = mix.targets(shares), mix.targets(targets)
            return weighted_cross_entropy(logits, shares, targets, to_device(self.class_weights))
        if mix is not None:
            return soft_cross_entropy(logits, mix.targets(smooth_targets(labels, logits.shape[-1], smoothing)))
        true_label = F.cross_entropy(logits, labels, reduction="sum")
        if not smoothing:
            return true_label
        uniform = -F.log_softmax(logits, axis=-1).mean(axis=-1).sum()
        return (1.0 - smoothing) * true_label + smoothing * uniform

    def recomputed_layers(self, model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
        blocks = contract_of(model).recomputed_layers()
        if not blocks and has_batch_norm(model):
            raise UserError(
                f"TRAIN.RECOMPUTE: {self.config.MODEL.NAME} has batch norms, which would count each batch twice; leave "
                "it out"
            )
        if not blocks:
            raise UserError(
                f"TRAIN.RECOMPUTE: {self.config.MODEL.NAME} has no LayerList named 'blocks'; leave it out or rename"
            )
        return blocks

    def expected_losses(self) -> dict[str, float]:
        return {} if self.class_weights is not None else {"loss": math.log(self.num_classes)}


class Teacher:
    """A model that is never trained: outside the data-parallel model, its averages and its checkpoints.

    Args:
        name: a registered model, or an exported one by its path without extension (TRAIN.TEACHER_MODEL).
        weights: of a registered one, as ``load_weights`` takes them (TRAIN.TEACHER_WEIGHTS).
        num_classes, image_size, in_channels: the student's.

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
        """Logits float32 (batch, classes) of the images that the student sees, normalised and mixed."""
        logits = self.model(images).astype("float32")
        if logits.shape[-1] != self.num_classes:
            raise UserError(
                f"TRAIN.TEACHER_MODEL {self.name} has {logits.shape[-1]} classes, the student {self.num_classes}"
            )
        return logits


def teacher_of(train: Any, num_classes: int, data: Any) -> Teacher | None:
    """The teacher that the TRAIN section asks for; None without distillation.

    Raises:
        UserError: distillation without a teacher, or as ``Teacher``.
    """
    if train.DISTILLATION_TYPE == "none":
        return None
    if train.TEACHER_MODEL is None:
        raise UserError(f"TRAIN.DISTILLATION_TYPE {train.DISTILLATION_TYPE} needs TRAIN.TEACHER_MODEL")
    return Teacher(train.TEACHER_MODEL, train.TEACHER_WEIGHTS, num_classes, data.IMAGE_SIZE, data.IMAGE_CHANNELS)


def distillation_loss(kind: str, student: paddle.Tensor, teacher: paddle.Tensor, temperature: float) -> paddle.Tensor:
    """Summed over the batch: cross-entropy with the teacher's decision (hard), or ``temperature ** 2`` times the
    divergence KL(teacher || student) of the softened distributions (soft).

    Args:
        kind: "hard" or "soft".
        student, teacher: logits float32 (batch, classes).
        temperature: of the soft one; DISTILLATION_TAU.
    """
    if kind == "hard":
        return F.cross_entropy(student, teacher.argmax(axis=-1), reduction="sum")
    softened = F.softmax(teacher / temperature, axis=-1)
    return F.kl_div(F.log_softmax(student / temperature, axis=-1), softened, reduction="sum") * temperature**2
