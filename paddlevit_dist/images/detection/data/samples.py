"""A dataset of pictures with boxes as a loader process reads it, and the arrays of a batch."""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ....contracts.dataset import Samples
from ....contracts.sample_checks import BadSample
from ....errors import UserError
from ...data.quarantine import Replacements
from ..run_lengths import decode
from .detection_dataset import Annotations, DetectionDataset
from .views import View, whole_view

_POOL = 64  # groups that are formed together: more make shapes more similar, fewer keep company more random
_POOLS = 4  # at least, or every epoch of a small dataset would have the same groups


class DetectionSample(NamedTuple):
    """A picture as the network sees it, with n objects; in an evaluation n is 0, whatever is annotated.

    Attributes:
        index: of the sample.
        is_training: what is annotated comes with it.
        image: uint8 (3, height, width); float32 where levels are not whole (``DATA.EVAL_RESIZE torchvision``).
        original_size: height and width of the stored picture.
        boxes: float32 (n, 4), x0, y0, x1, y1 in pixels of ``image``.
        labels: int64 (n,).
        masks: uint8 (n, height, width), 1 inside; None: not asked for.
    """

    index: int
    is_training: bool
    image: np.ndarray
    original_size: Tuple[int, int]
    boxes: np.ndarray
    labels: np.ndarray
    masks: Optional[np.ndarray] = None


class DetectionSamples(Samples):
    """A dataset of pictures with boxes with its transform.

    Args:
        is_training: samples carry what is annotated, except crowds and boxes without an area.
        with_masks: they carry masks too.
        group: so many pictures that follow one another in an epoch have similar shapes; 0: the order is free.
    Raises:
        UserError: masks are asked for, and the dataset has none.
    """

    def __init__(
        self,
        dataset: DetectionDataset,
        transform: Callable[[View, np.random.Generator], View],
        is_training: bool,
        with_masks: bool = False,
        group: int = 0,
    ) -> None:
        if is_training and with_masks and not dataset.has_masks:
            raise UserError(
                "the training data have boxes but no masks, which this model learns from: take one that finds boxes "
                "only, such as detr_resnet50"
            )
        self.dataset = dataset
        self.transform = transform
        self.is_training = is_training
        self.with_masks = with_masks and is_training
        self.group = group
        self.notices: List[str] = []
        self.replacements: Optional[Replacements] = None  # replaces unreadable pictures

    @property
    def labelled(self) -> bool:  # type: ignore[override] # the dataset knows
        return self.dataset.labelled

    @property
    def class_names(self) -> Optional[Sequence[str]]:
        """Name of each category, in the order of labels."""
        return self.dataset.class_names

    @property
    def is_share(self) -> bool:  # type: ignore[override] # the dataset knows
        return self.dataset.is_share

    def draw_order(self, generator: np.random.Generator) -> Optional[np.ndarray]:
        return draw_grouped_order(self.dataset.sizes, self.group, generator) if self.group else None

    def sample(self, index: int, generator: np.random.Generator) -> DetectionSample:
        if self.replacements is not None:
            return self.replacements.read(lambda index: self._sample(index, generator), index, self.dataset)
        return self._sample(index, generator)

    def _sample(self, index: int, generator: np.random.Generator) -> DetectionSample:
        picture, annotations = self.dataset.read(index)
        kept = np.flatnonzero(annotations.is_learnable) if self.is_training else np.empty(0, np.int64)
        view = self.transform(whole_view(picture, annotations.boxes[kept], kept), generator)
        masks = self._masks(view, annotations, (picture.size[1], picture.size[0])) if self.with_masks else None
        return DetectionSample(
            index,
            self.is_training,
            np.ascontiguousarray(np.asarray(view.picture).transpose(2, 0, 1)),
            (picture.size[1], picture.size[0]),
            view.boxes.astype(np.float32),
            annotations.labels[view.objects],
            masks,
        )

    def _masks(self, view: View, annotations: Annotations, stored_size: Tuple[int, int]) -> np.ndarray:
        masks = np.zeros((len(view.objects), *view.size), np.uint8)
        if annotations.masks is not None:
            for row, which in enumerate(view.objects.tolist()):
                try:
                    masks[row] = view.mask(decode(annotations.masks[which], *stored_size))
                except ValueError as error:
                    raise BadSample(
                        f"its object {annotations.ids[which]} cannot be used: its segmentation {error}"
                    ) from error
        return masks


def collate(samples: Sequence[DetectionSample]) -> Dict[str, np.ndarray]:
    """A batch of N pictures, padded at the right and at the bottom, for training or for an evaluation, whichever its
    samples are for; in training with at most M objects each.

    Returns:
        ``images`` uint8 (N, 3, H, W), zeros where padded; ``sizes`` int64 (N, 2), height and width of each without
        padding. In training ``boxes`` float32 (N, M, 4), x0, y0, x1, y1, zeros where there are fewer, M at least 1;
        ``labels`` int64 (N, M), -1 where there are fewer; ``box_counts`` int64 (N,); with masks ``masks`` uint8
        (N, M, H, W). In an evaluation ``indices`` int64 (N,) of the samples; ``original_sizes`` int64 (N, 2), height
        and width of the stored pictures.
    """
    number, has_masks = len(samples), samples[0].masks is not None
    sizes = np.array([sample.image.shape[1:] for sample in samples], dtype=np.int64)
    images = np.zeros((number, 3, *sizes.max(axis=0)), samples[0].image.dtype)
    for row, (sample, (height, width)) in enumerate(zip(samples, sizes.tolist())):
        images[row, :, :height, :width] = sample.image
    batch = {"images": images, "sizes": sizes}
    if not samples[0].is_training:
        batch["indices"] = np.array([sample.index for sample in samples], dtype=np.int64)
        batch["original_sizes"] = np.array([sample.original_size for sample in samples], dtype=np.int64)
        return batch
    batch["box_counts"] = np.array([len(sample.labels) for sample in samples], dtype=np.int64)
    most = max(1, int(batch["box_counts"].max()))
    batch["boxes"] = np.zeros((number, most, 4), np.float32)
    batch["labels"] = np.full((number, most), -1, np.int64)
    if has_masks:
        batch["masks"] = np.zeros((number, most, *images.shape[2:]), np.uint8)
    for row, (sample, (height, width)) in enumerate(zip(samples, sizes.tolist())):
        batch["boxes"][row, : len(sample.boxes)] = sample.boxes
        batch["labels"][row, : len(sample.labels)] = sample.labels
        if has_masks:
            batch["masks"][row, : len(sample.labels), :height, :width] = sample.masks
    return batch


def draw_grouped_order(sizes: np.ndarray, group: int, generator: np.random.Generator) -> np.ndarray:
    """A permutation of all pictures, int64 (pictures,), in which every ``group`` that follow one another, from the
    first on, are of similar proportions, so that a batch needs less padding; those that fill no group come last. Where
    nothing is grouped, a third of what a detector computes on COCO is padding.

    It depends on the generator and on ``group`` alone, not on batches and processes: an epoch that another number of
    processes continues sees every picture once.

    Args:
        sizes: int64 (pictures, 2), height and width.
    """
    order = generator.permutation(len(sizes))
    proportions = np.log(np.maximum(sizes[:, 1], 1) / np.maximum(sizes[:, 0], 1))
    grouped = len(order) // group * group
    together = group * min(_POOL, max(2, grouped // group // _POOLS))
    groups = [order[:0].reshape(0, group)]
    for first in range(0, grouped, together):
        pool = order[first : min(first + together, grouped)]
        groups.append(pool[np.argsort(proportions[pool], kind="stable")].reshape(-1, group))
    joined = np.concatenate(groups)
    return np.concatenate([joined[generator.permutation(len(joined))].reshape(-1), order[grouped:]])
