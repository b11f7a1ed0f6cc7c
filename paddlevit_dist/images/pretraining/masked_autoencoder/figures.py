"""Images of a masked autoencoder: what it sees, and what it makes of the rest."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ....core.runtime.errors import UserError
from ....core.tasks.aspects import TaskAspect
from ....core.tasks.dataset import TransformedDataset
from ....core.tasks.figures import Figure, Gallery
from ....core.tasks.model import as_model
from ....core.tasks.protocols import Recomputable, Reportable
from ...drawing import join_cells
from ..checks import PretrainingDrawing
from . import masks
from .task import MaskedAutoencoding

_SHOWN = 8
_GAP_PX = 2


class MaskedRecomputation(TaskAspect, Recomputable):
    """Recomputes the blocks of the encoder."""

    task: MaskedAutoencoding

    def recomputed_layers(self, model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
        """Return the blocks of the encoder."""
        return as_model(model).recomputed_layers()


class MaskedImageDrawing(PretrainingDrawing):
    """Draws images as the encoder sees them: masked patches are gray."""

    task: MaskedAutoencoding

    def visualize_batch(self, dataset: Any, batch: dict[str, np.ndarray], epoch: int) -> list[tuple[np.ndarray, str]]:
        """Return a collated training batch as the model sees it: uint8 (height, width[, 3]) images."""
        images = self.task.normalize(paddle.to_tensor(batch["images"]))
        model = self.task.build_outline()
        seen = hide_patches(images, paddle.to_tensor(batch["restore"]), model.kept, model.grid, model.patch_size)
        return [(pixels, "") for pixels in self.task.normalizer.pixels(seen)]


class ReconstructionFigures(TaskAspect, Reportable):
    """Shows the first evaluated images, what is left of them, and what the network predicts for the rest."""

    task: MaskedAutoencoding

    def figures(
        self, dataset: TransformedDataset, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Build a gallery of evenly spaced images with their fixed masks; unreadable images are skipped."""
        places = np.unique(np.linspace(0, len(records) - 1, min(_SHOWN, len(records))).astype(int)).tolist()
        samples, captions = [], []
        for index, loss in (records[place] for place in places):
            try:
                samples.append(dataset.sample(index, np.random.default_rng(0)))
            except (UserError, OSError):
                continue
            captions.append(f"loss {loss:.3f}\n{dataset.describe(index)}")
        if not samples:
            return []
        rows = self.draw(model, self.task.collate(samples))
        note = "Each image, the patches that the encoder sees, and its prediction of the others; masks are fixed."
        if self.task.config.MASKED_AUTOENCODER.NORMALIZED_PATCHES:
            note += " Predictions have the mean and the deviation of their patch, which are not predicted."
        return [Gallery("Reconstructions", list(zip(rows, captions)), note)]

    def draw(self, model: Any, batch: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Return for each image of a batch the image, the masked image and its reconstruction, side by side."""
        tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
        _, (prediction, pixels) = self.task.predict(model, tensors)
        if self.task.config.MASKED_AUTOENCODER.NORMALIZED_PATCHES:
            deviation = (pixels.var(axis=-1, keepdim=True) + 1e-6).sqrt()
            prediction = prediction * deviation + pixels.mean(axis=-1, keepdim=True)
        is_masked = (tensors["restore"] >= model.kept).astype("float32").unsqueeze(-1)
        completed = pixels * (1 - is_masked) + prediction * is_masked
        images, filled = (
            masks.join_patches(patches, model.grid, model.patch_size, model.in_channels)
            for patches in (pixels, completed)
        )
        seen = hide_patches(images, tensors["restore"], model.kept, model.grid, model.patch_size)
        columns = [self.task.normalizer.pixels(each) for each in (images, seen, filled)]
        return [join_cells(row, _GAP_PX) for row in zip(*columns)]


def hide_patches(
    images: paddle.Tensor, restore: paddle.Tensor, kept: int, grid: tuple[int, int], side: int
) -> paddle.Tensor:
    """Return normalized images (batch, channels, height, width) with 0, the mean, in the places of masked patches.

    ``restore`` is the place of each patch in the drawn order, int64 (batch, patches); the first ones are ``kept``.
    """
    is_seen = (restore < kept).astype(images.dtype).unsqueeze(-1)
    return masks.join_patches(masks.cut_patches(images, side) * is_seen, grid, side, images.shape[1])
