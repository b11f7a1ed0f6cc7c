"""Masked autoencoding: a ViT learns by predicting the pixels of the patches that it does not see.

Source: K. He et al., Masked Autoencoders Are Scalable Vision Learners, 2021 (section 3; appendix A.1).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import paddle

from ....core.runtime import autocast
from ....core.runtime.transfers import read_later
from ....core.tasks.model_factory import build_outline
from ....core.tasks.step_types import EvaluationStep, LossTerm, StepPosition
from ....core.tasks.task import Records
from ...data.image_dataset import ImageDataset
from ...image_size import ImageSize, as_pair
from ..samples import PretrainingSamples
from ..task import PretrainingTask
from . import masks
from .losses import normalize_patches, reconstruction_losses
from .network import MaskedAutoencoder
from .settings import MaskedAutoencoderSettings


class MaskedSamples(PretrainingSamples):
    """Images, each with the order in which its patches are kept."""

    num_patches = 0

    def draw(self, generator: np.random.Generator) -> tuple[Any, ...]:
        """Draw the order of an image's patches, int64 (patches,)."""
        return (masks.draw_order(self.num_patches, generator),)


class MaskedAutoencoding(PretrainingTask):
    """Trains a ViT with a decoder on images alone; the loss is of masked patches."""

    aspects = {
        "Drawable": ".figures:MaskedImageDrawing",
        "Recomputable": ".figures:MaskedRecomputation",
        "Reportable": ".figures:ReconstructionFigures",
    }
    config: MaskedAutoencoderSettings
    _samples_type = MaskedSamples
    traits = replace(PretrainingTask.traits, supports_to_static=False, supports_capture=True)

    def build_samples(self, dataset: ImageDataset, transform: Any, is_training: bool) -> MaskedSamples:
        """Create the samples of a split."""
        samples = super().build_samples(dataset, transform, is_training)
        assert isinstance(samples, MaskedSamples)
        samples.num_patches = self.build_outline().num_patches
        return samples

    def build_outline(self) -> MaskedAutoencoder:
        """Build the network without weights, for its sizes."""
        network: MaskedAutoencoder = build_outline(lambda: self.create_network(0))
        return network

    def create_network(self, num_classes: int) -> MaskedAutoencoder:
        """Create the encoder and its decoder with their initial weights."""
        keys = self.config.MASKED_AUTOENCODER
        encoder: Any = super().create_network(0)
        sizes = keys.DECODER_WIDTH, keys.DECODER_DEPTH, keys.DECODER_HEADS
        return MaskedAutoencoder(encoder, keys.MASK_SHARE, *sizes)

    def collate(self, samples: Sequence[Any]) -> dict[str, np.ndarray]:
        """Stack images, classes and masks to a batch."""
        batch = super().collate(samples)
        order = np.stack([sample[2] for sample in samples])  # int64 (batch, patches), the kept ones first
        return {**batch, "order": order, "restore": masks.sort_noise(order)}

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Compute the loss of a batch."""
        losses, _ = self.predict(model, batch)
        return {"loss": LossTerm(losses.sum(), losses.shape[0])}

    def predict(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor]
    ) -> tuple[paddle.Tensor, tuple[paddle.Tensor, paddle.Tensor]]:
        """Compute the loss of each image, float (batch,), and the prediction with the pixels of all patches."""
        # Pixels of all patches, (batch, patches, pixels), cut once for the encoder and as the target.
        pixels = masks.cut_patches(
            self.normalize(batch["images"]), _find_patch_size(self.config.DATA.IMAGE_SIZE, batch["order"].shape[1])
        )
        prediction = model(pixels, batch["order"], batch["restore"])
        with autocast.off():
            target = normalize_patches(pixels) if self.config.MASKED_AUTOENCODER.NORMALIZED_PATCHES else pixels
            kept = masks.count_kept(target.shape[1], self.config.MASKED_AUTOENCODER.MASK_SHARE)
            prediction = prediction if prediction.dtype == paddle.float64 else prediction.astype("float32")
            return reconstruction_losses(prediction, target, batch["restore"], kept), (prediction, pixels)

    def eval_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: EvaluationStep
    ) -> Records | None:
        """Add the loss of fixed masks, and with classes the features of whole images."""
        losses, _ = self.predict(model, batch)
        features = model(self.normalize(batch["images"])) if self.has_classes else None
        step.metrics.update({"loss": losses}, features, batch["labels"])
        if not step.keeps_records:
            return None
        arrived = read_later(losses)
        return lambda: [float(loss) for loss in arrived()[0]]


def _find_patch_size(image_size: ImageSize, patches: int) -> int:
    """Return the side of a patch in pixels from the number of an image's patches."""
    height, width = as_pair(image_size)
    return math.isqrt(height * width // patches)
