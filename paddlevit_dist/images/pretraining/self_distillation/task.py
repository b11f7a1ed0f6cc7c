"""Self-distillation: a student learns the outputs of its average for other views of the same image, without labels.

Source: M. Caron et al., Emerging Properties in Self-Supervised Vision Transformers, 2021, arXiv 2104.14294.
"""

from collections.abc import Sequence
from dataclasses import replace
from textwrap import shorten
from typing import Any

import numpy as np
import paddle

from ....core.distributed import set_batch_norm_momentum
from ....core.losses import log_softmax
from ....core.runtime import autocast, device_graph
from ....core.runtime.errors import UserError
from ....core.runtime.transfers import read_later
from ....core.tasks.aspects import get_aspect
from ....core.tasks.model_factory import accelerate, model_options
from ....core.tasks.protocols import StateKeeping
from ....core.tasks.step_types import EvaluationStep, LossTerm, StepPosition
from ....core.tasks.task import Records
from ...data.image_dataset import ImageDataset
from ...image_size import as_pair
from ...models.resampling import OFFSET
from ..task import PretrainingTask
from .losses import LARGE_VIEWS, STUDENT_TEMPERATURE, distillation_losses, entropies, sharpen, teacher_temperature
from .network import DistillationNetwork, ProjectionHead
from .settings import SelfDistillationSettings
from .teacher import DistillationState, TeacherKeeping
from .views import ViewSamples, build_views

_NEEDS_CLASSES = "name images with classes with PRETRAINING.LABELED_PATH"
_SHAPE_ERRORS = (UserError, ValueError, RuntimeError, AssertionError)  # by which networks refuse a size
_RANDOM = ("dropout", "attention_dropout", "drop_path")  # options that the teacher has at 0


class SelfDistillation(PretrainingTask):
    """Trains a network and its head on views of images; evaluations have the teacher's weights."""

    aspects = {
        "Drawable": ".figures:ViewDrawing",
        "LogContributor": ".figures:CollapseLog",
        "Recomputable": ".figures:ViewRecomputation",
        "StateKeeping": ".teacher:TeacherKeeping",
    }
    config: SelfDistillationSettings
    _samples_type = ViewSamples
    traits = replace(PretrainingTask.traits, supports_to_static=False, supports_capture=True, communicates_in_step=True)

    def _choose_metric(self, has_classes: bool) -> None:
        """Take the last weights without classes: a network whose outputs are all equal has the smallest loss.

        A ``UserError`` says that TRAIN.PATIENCE needs classes.
        """
        super()._choose_metric(has_classes)
        self.traits = replace(self.traits, takes_last="" if has_classes else _NEEDS_CLASSES)
        patience = self.config.TRAIN.PATIENCE
        if not has_classes and patience and not self.config.EVAL:
            raise UserError(f"TRAIN.PATIENCE {patience}: no score tells when to stop: {_NEEDS_CLASSES}")

    def build_samples(self, dataset: ImageDataset, transform: Any, is_training: bool) -> ViewSamples:
        """Create the samples of a split."""
        views = build_views(self.config, dataset.kind)
        samples = super().build_samples(dataset, views if is_training else transform, is_training)
        assert isinstance(samples, ViewSamples)
        samples.second = views.large[0]
        return samples

    def collate(self, samples: Sequence[Any]) -> dict[str, np.ndarray]:
        """Stack large views, small views if there are any, each view by view, and classes to a batch."""
        large, small, labels = zip(*samples)
        batch = {"images": _join_views(large), "labels": np.asarray(labels, np.int64)}
        return {**batch, "small": _join_views(small)} if len(small[0]) else batch

    def create_network(self, num_classes: int) -> DistillationNetwork:
        """Create the student with its initial weights."""
        return self._create(self.model_options)

    def create_teacher(self) -> DistillationNetwork:
        """Create a network like the student's, without what is random in its forward pass."""
        defaults = model_options(self.config.MODEL.NAME).defaults
        fixed = {name: 0.0 for name in _RANDOM if isinstance(defaults.get(name), (int, float))}
        teacher = self._create({**self.model_options, **fixed})
        accelerate(teacher)
        momentum = self.config.TRAIN.BATCH_NORM_MOMENTUM
        if momentum is not None:
            set_batch_norm_momentum(teacher, momentum)
        return teacher

    def _create(self, options: dict[str, Any]) -> DistillationNetwork:
        keys = self.config.SELF_DISTILLATION
        if keys.SMALL_VIEWS:  # positions of small views are resized as the authors do
            uses, defaults = {"any_size": True, "resampling": OFFSET}, model_options(self.config.MODEL.NAME).defaults
            options = {**{key: value for key, value in uses.items() if key in defaults}, **options}
        backbone = self._create_model(0, options)
        sizes = keys.HEAD_WIDTH, keys.BOTTLENECK, keys.OUTPUTS, keys.NORM_LAST_LAYER
        return DistillationNetwork(backbone, ProjectionHead(backbone.embed_dim, *sizes))

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Build the student; a ``UserError`` says that its kind does not take small views."""
        model = self.create_network(0)
        if self.config.SELF_DISTILLATION.SMALL_VIEWS and not self.config.EVAL:
            self._require_small_views(model)
        return model

    @paddle.no_grad()
    def _require_small_views(self, model: DistillationNetwork) -> None:
        keys, data = self.config.SELF_DISTILLATION, self.config.DATA
        model.eval()
        # A network that fails on large views is broken, which no setting fixes.
        model(paddle.zeros([1, data.IMAGE_CHANNELS, *as_pair(data.IMAGE_SIZE)]))
        try:
            model(paddle.zeros([1, data.IMAGE_CHANNELS, keys.SMALL_SIZE, keys.SMALL_SIZE]))
        except _SHAPE_ERRORS as error:
            raise UserError(
                f"{self.config.MODEL.NAME} does not take views of {keys.SMALL_SIZE} pixels besides {data.IMAGE_SIZE}: "
                "set another SELF_DISTILLATION.SMALL_SIZE or SMALL_VIEWS 0, or choose a ViT, Swin, ConvNeXt, ResNet "
                f"or HGNetV2 (it says: {shorten(' '.join(str(error).split()), 200)})"
            ) from error
        model.train()

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Compute the loss of a batch, the entropy of the teacher's outputs, and the deviation of its features."""
        keys, state = self.config.SELF_DISTILLATION, self._state
        large = self.normalize(batch["images"])
        small = self.normalize(batch["small"]) if "small" in batch else None
        features, taught = state.teach(large)
        outputs = model(large, small, is_projected=True)
        with autocast.off():
            taught, outputs = (
                each if each.dtype == paddle.float64 else each.astype("float32") for each in (taught, outputs)
            )
            warmup = *keys.TEACHER_TEMPERATURES, keys.TEMPERATURE_WARMUP_EPOCHS

            def make_temperature(now: StepPosition) -> paddle.Tensor:
                return paddle.full([1], teacher_temperature(*warmup, now.epoch - 1), state.center.dtype)

            shares = sharpen(taught, state.center, device_graph.enter_value(make_temperature, step))
            entropy, spread = state.collect(step, features, taught, shares)
            views = LARGE_VIEWS + keys.SMALL_VIEWS
            losses = distillation_losses(outputs, shares, views, STUDENT_TEMPERATURE)
            rows = losses.shape[0]
            return {
                "loss": LossTerm(losses.sum(), rows),
                "entropy": LossTerm(entropy.sum(), entropy.shape[0], weight=0.0),
                "deviation": LossTerm(spread * float(rows), rows, weight=0.0),
            }

    @property
    def _state(self) -> DistillationState:
        keeping = get_aspect(self, StateKeeping)
        assert isinstance(keeping, TeacherKeeping) and keeping.state is not None, "build the state of the run first"
        return keeping.state

    def eval_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: EvaluationStep
    ) -> Records | None:
        """Add how well one view of an image predicts the outputs for the whole, their entropy, and the features."""
        keys = self.config.SELF_DISTILLATION
        features = model(self.normalize(batch["images"]))
        whole, second = paddle.split(model.pretraining_head(features).astype("float32"), LARGE_VIEWS)
        with autocast.off():
            shares = sharpen(whole, paddle.zeros_like(whole[0]), keys.TEACHER_TEMPERATURES[1])
            logs = log_softmax(second / STUDENT_TEMPERATURE)
            losses = -(shares * logs).sum(axis=-1)
        numbers = {"loss": losses, "entropy": entropies(shares)}
        of_whole = paddle.split(features, LARGE_VIEWS)[0]
        step.metrics.update(numbers, of_whole if self.has_classes else None, batch["labels"])
        if not step.keeps_records:
            return None
        arrived = read_later(losses)
        return lambda: [float(loss) for loss in arrived()[0]]


def _join_views(samples: Sequence[np.ndarray]) -> np.ndarray:
    """Join views of several images, uint8 (views, channels, height, width) each, view by view."""
    return np.concatenate([np.stack(views) for views in zip(*samples)])
