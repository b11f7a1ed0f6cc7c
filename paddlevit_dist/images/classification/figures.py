"""Figures of a classifier's evaluation, including attention rollout of transformers.

Source: Abnar and Zuidema, Quantifying Attention Flow in Transformers, 2020, section 3 ("Attention rollout"): each
layer's attention, averaged over its heads, is mixed half and half with the identity for the residual connection. The
products of all layers are the shares of each input token in each token above.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from PIL import Image

from ...core.metrics.classification import join_records, require_num_classes
from ...core.metrics.classifier_figures import EvaluatedPredictions, galleries, most_confident_mistakes, tables
from ...core.runtime.errors import UserError
from ...core.runtime.paddle_versions import as_written
from ...core.runtime.text_rendering import printable_or
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import Figure, Gallery
from ...core.tasks.protocols import Drawable, Reportable
from ...core.tasks.step_types import StepPosition
from ..models.attention import attention
from ..models.cait import CaiT
from ..models.vit import VisionTransformer
from .samples import ClassificationSamples, evaluation_transform
from .task import Classification, LabeledImageTask

_LOOKED_AT = 8  # images whose attention is shown


class LabeledImageFigures(TaskAspect, Reportable):
    """Makes the figures of a classifier's evaluation."""

    task: LabeledImageTask

    def figures(
        self, dataset: TransformedDataset, records: Sequence[tuple[int, bytes]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Build the figures of an evaluation."""
        evaluated = EvaluatedPredictions(
            *join_records(records), require_num_classes(self.task.num_classes), dataset.class_names
        )
        return report_figures(evaluated, dataset, lambda images: attention_rollout(model, self.task.normalizer(images)))


class LabeledImageDrawing(TaskAspect, Drawable):
    """Draws images with their classes."""

    task: LabeledImageTask

    def visualize_batch(
        self, dataset: ClassificationSamples, batch: dict[str, np.ndarray], epoch: int
    ) -> list[tuple[np.ndarray, str]]:
        """Return a collated training batch as the model sees it: uint8 (height, width[, 3]) images with captions."""
        images, labels = self.task.normalize(paddle.to_tensor(batch["images"])), paddle.to_tensor(batch["labels"])
        shares = F.one_hot(labels, require_num_classes(self.task.num_classes))
        return self.caption_images(images, shares.numpy(), dataset.class_names)

    def visualize_eval_samples(
        self, dataset: ClassificationSamples, indices: Sequence[int]
    ) -> list[tuple[np.ndarray, str]]:
        """Return the images as an evaluation sees them, with captions."""
        transform = evaluation_transform(self.task.config.DATA, dataset.dataset.kind)
        readings = [dataset.dataset.read(index) for index in indices]
        images = np.stack([transform(image, np.random.default_rng(0)) for image, _ in readings])
        shares = F.one_hot(paddle.to_tensor([label for _, label in readings]), self.task.num_classes)
        return self.caption_images(self.task.normalize(paddle.to_tensor(images)), shares.numpy(), dataset.class_names)

    def caption_images(
        self, images: paddle.Tensor, shares: np.ndarray, class_names: Sequence[str] | None
    ) -> list[tuple[np.ndarray, str]]:
        """Return normalized images (n, channels, height, width) as uint8, with labels of ``shares`` (n, classes)."""
        return list(zip(self.task.normalizer.pixels(images), (format_labels(row, class_names) for row in shares)))


class MixedImageDrawing(LabeledImageDrawing):
    """Draws images that may be mixed, with their classes."""

    task: Classification

    def visualize_batch(
        self, dataset: ClassificationSamples, batch: dict[str, np.ndarray], epoch: int
    ) -> list[tuple[np.ndarray, str]]:
        """Return a collated training batch as the model sees it: uint8 (height, width[, 3]) images with captions."""
        tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
        # Any update number will do: it only seeds mixing.
        images, mix = self.task.training_images(tensors, StepPosition(epoch, epoch, epoch + 1))
        targets = F.one_hot(tensors["labels"], self.task.num_classes)
        shares = (targets if mix is None else mix.targets(targets)).numpy()  # (batch, classes)
        return self.caption_images(images, shares, dataset.class_names)


def attention_rollout(model: paddle.nn.Layer, images: paddle.Tensor) -> np.ndarray | None:
    """Compute the share of each patch in the class token, float32 (batch, rows, columns); shares of an image sum to 1.

    For ViT and DeiT, this is the class token after the last block (DeiT's distilled form: the mean of its two tokens).
    For CaiT, it is the class token, which joins in the last blocks and reads the patches of all blocks before. None for
    a model without global attention, or whose attention cannot be observed. Images are normalized.
    """
    if not isinstance(model, (VisionTransformer, CaiT)):
        return None
    patch_rollout, token_rollout = _AttentionRollout(), _AttentionRollout()
    watched = [(block.attn, patch_rollout) for block in model.blocks]
    if isinstance(model, CaiT):
        watched += [(block.attn, token_rollout) for block in model.blocks_token_only]
    with _watch_attention(watched), attention(fused=False), as_written(), paddle.no_grad():
        model(images)
    if patch_rollout.layers + token_rollout.layers != len(watched):
        return None
    shares = patch_rollout.shares  # (batch, tokens, tokens)
    if isinstance(model, CaiT):  # the token reads the patches after their own blocks
        patches = np.einsum("bp,bpq->bq", token_rollout.shares[:, 0, 1:], shares)  # (batch, patches)
    else:
        prefix = model.num_prefix_tokens
        patches = shares[:, :prefix, prefix:].mean(axis=1)  # (batch, patches)
    patches = patches / np.maximum(patches.sum(axis=1, keepdims=True), 1e-12)
    return patches.reshape(-1, *model.patch_embed.grid).astype(np.float32)


def report_figures(
    evaluated: EvaluatedPredictions,
    dataset: TransformedDataset,
    compute_shares: Callable[[paddle.Tensor], np.ndarray | None],
) -> list[Figure]:
    """Build all figures, the most informative first; images that can no longer be read are skipped.

    ``compute_shares`` maps images uint8 (batch, channels, height, width) to the share of each patch in the class token,
    (batch, rows, columns), or None.
    """

    @functools.cache
    def read_image(index: int) -> np.ndarray | None:
        try:
            image = dataset.sample(index, np.random.default_rng(0))[0]  # uint8 ([views, ]channels, height, width)
            return image if image.ndim == 3 else image[0]
        except (UserError, OSError):
            return None

    def draw(index: int) -> np.ndarray | None:
        image = read_image(index)
        return None if image is None else _pixels(image)

    places = _choose_images(evaluated)
    chosen = [(read_image(index), place, index) for place, index in zip(places, evaluated.indices[places].tolist())]
    captioned = [
        (picture, evaluated.caption(place, dataset.describe(index)))
        for picture, place, index in chosen
        if picture is not None
    ]
    shares = compute_shares(paddle.to_tensor(np.stack([picture for picture, _ in captioned]))) if captioned else None
    attention: list[Figure] = []
    if shares is not None:
        images = [
            (overlay_shares(_pixels(picture), share), caption) for (picture, caption), share in zip(captioned, shares)
        ]
        note = "Brighter patches reach the classifier more (attention rollout, Abnar and Zuidema 2020)."
        attention = [Gallery("What the model looks at", images, note)]
    return [*galleries(evaluated, draw, dataset.describe), *tables(evaluated), *attention]


def _choose_images(evaluated: EvaluatedPredictions) -> np.ndarray:
    """Choose positions of some images: the most confident mistakes, and evenly spaced correct ones."""
    sure, right = most_confident_mistakes(evaluated), np.flatnonzero(evaluated.is_right)
    half = _LOOKED_AT // 2
    number = min(len(right), max(half, _LOOKED_AT - len(sure)))
    return np.concatenate([sure[:half], right[np.linspace(0, len(right) - 1, number).astype(np.int64)]])


def _pixels(image: np.ndarray) -> np.ndarray:
    """Convert (channels, height, width) to (height, width[, 3]); only the first channel is used unless there are 3."""
    return image.transpose(1, 2, 0) if len(image) == 3 else image[0]


class _AttentionRollout:
    """The product of the attention of layers, the first layer on the right.

    ``shares`` are float64 (batch, tokens, tokens), of each token below in each token above.
    """

    def __init__(self) -> None:
        self.layers = 0
        self.shares = np.ones((1, 1, 1))

    def add(self, weights: np.ndarray) -> None:
        """Multiply by a layer's attention; CaiT mixes its heads after the softmax: negative attention is set to 0.

        ``weights`` are (batch, tokens, attended tokens), or (batch, 1, attended tokens) for a layer that changes the
        first token only.
        """
        weights = np.maximum(weights.astype(np.float64), 0.0)
        weights /= np.maximum(weights.sum(axis=-1, keepdims=True), 1e-12)
        layer = np.tile(np.eye(weights.shape[-1]), (len(weights), 1, 1))
        changed = weights.shape[1]
        layer[:, :changed] = 0.5 * layer[:, :changed] + 0.5 * weights
        self.shares = layer @ self.shares if self.layers else layer
        self.layers += 1


@contextlib.contextmanager
def _watch_attention(layers: Sequence[tuple[Any, _AttentionRollout]]) -> Iterator[None]:
    """Add each layer's attention weights to its rollout inside the block; these layers then use unfused attention."""

    def adds_to(total: _AttentionRollout) -> Any:
        def hook(layer: paddle.nn.Layer, inputs: tuple[paddle.Tensor, ...]) -> None:
            total.add(inputs[0].astype("float32").mean(axis=1).numpy())  # (batch, heads, ...) -> (batch, ...)

        return hook

    hooks = [layer.attention_dropout.register_forward_pre_hook(adds_to(total)) for layer, total in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def overlay_shares(pixels: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Darken the less important patches of an image and put the result next to it: uint8 (height, 2 x width, 3).

    ``pixels`` are uint8 (height, width[, 3]), ``shares`` float32 (rows, columns) of the patches.
    """
    color = np.stack([pixels] * 3, axis=-1) if pixels.ndim == 2 else pixels
    low, high = np.percentile(shares, (5, 99))
    level = np.clip((shares - low) / max(high - low, 1e-12), 0.0, 1.0)
    mask = Image.fromarray(np.rint(255 * level).astype(np.uint8)).resize(
        (color.shape[1], color.shape[0]), Image.Resampling.BICUBIC
    )
    weight = 0.15 + 0.85 * np.asarray(mask, np.float32)[..., None] / 255.0
    warm = np.array([255.0, 150.0, 30.0], np.float32)
    lit = color * weight * 0.8 + warm * (weight - 0.15) * 0.3
    return np.concatenate([color, np.clip(lit, 0, 255).astype(np.uint8)], axis=1)


def format_labels(shares: np.ndarray, class_names: Sequence[str] | None) -> str:
    """Format the names of the labels, with their shares if there are several."""
    best = [label for label in np.argsort(-shares)[:2].tolist() if shares[label] > 0.005]
    names = [printable_or(class_names[label], f"class {label}") if class_names else str(label) for label in best]
    return names[0] if len(best) == 1 else " ".join(f"{n} {shares[i]:.0%}" for n, i in zip(names, best))
