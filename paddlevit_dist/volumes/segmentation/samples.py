"""Samples of a dataset of volumes with label maps: random crops to train on, whole volumes to evaluate."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...tasks.dataset import TransformedDataset
from ..geometry import VolumeGeometry, nearest_axes, turned_spacing
from ..intensities import IntensityConfig
from ..samples import NOT_VARIED, AugmentationConfig, CropMap, center_range, cut, cut_labels, draw_matrix, on_grid, vary
from .dataset import LabelMap, SegmentedVolumes

HOST = "__host__"  # key of a batch: what a step knows without asking the device
_SPREAD = 0.25  # of a crop's size: how far the voxel that it is drawn around may be from its center


class VolumeRecord(NamedTuple):
    """An evaluation's knowledge of a volume on the host.

    Attributes:
        index: of the sample.
        stored: (depth, height, width) of the stored labels, along the world's axes.
        stored_spacing: their steps, see ``turned_spacing``.
        spacing: the volume's, millimeters (depth, height, width).
    """

    index: int  # type: ignore[assignment]  # a method of tuples that nobody calls on this one
    stored: tuple[int, ...]
    stored_spacing: tuple[tuple[float, ...], ...]
    spacing: tuple[float, ...]


class SegmentedSamples(TransformedDataset):
    """The samples that a loader process reads.

    Args:
        crop_size: (depth, height, width) of training crops; None serves whole volumes.
        foreground_share: of the crops that are drawn around a voxel of a class other than the background.
        mirror_axes: along which crops are mirrored, 0 depth, 1 height, 2 width.
        notices: lines for the log.
    """

    def __init__(
        self,
        dataset: SegmentedVolumes,
        intensities: IntensityConfig,
        crop_size: Sequence[int] | None = None,
        augmentation: AugmentationConfig = NOT_VARIED,
        foreground_share: float = 0.0,
        mirror_axes: Sequence[int] = (),
        notices: Sequence[str] = (),
    ) -> None:
        self.dataset, self.intensities = dataset, intensities
        self.crop_size = None if crop_size is None else tuple(int(length) for length in crop_size)
        self.augmentation, self.foreground_share = augmentation, foreground_share
        self.mirror_axes, self.notices = list(mirror_axes), notices

    @property
    def labeled(self) -> bool:  # type: ignore[override] # the dataset knows
        return self.dataset.labeled

    @property
    def class_names(self) -> Sequence[str] | None:  # type: ignore[override] # likewise
        return self.dataset.class_names

    def sample(self, index: int, generator: np.random.Generator) -> dict[str, Any]:
        """One crop or volume.

        Returns:
            ``volume`` float32 (channels, depth, height, width) and ``labels`` uint8 (depth, height, width). Those of a
            whole volume are as they are stored, without being resampled, and its ``VolumeRecord`` is beside them.
        """
        if self.crop_size is None:
            return self._whole(index)
        channels, labels = self.dataset.read(index)
        assert labels is not None  # a split that is trained on has them
        crop = self._draw_map(labels, channels[0].geometry.spacing, generator)
        volume = np.empty((len(channels), *crop.size), np.float32)
        for number, decoded in enumerate(channels):
            scaling = self.intensities.scaling(number, decoded)
            own = scaling(cut(decoded.array, crop, outside=scaling.zero))
            volume[number] = vary(own, self.augmentation, generator)
        return {"volume": volume, "labels": cut_labels(labels.array, crop)}

    def _whole(self, index: int) -> dict[str, Any]:
        channels, _ = self.dataset.read(index)
        scaled = [self.intensities.scaling(number, one)(one.array) for number, one in enumerate(channels)]
        labels, geometry = self.dataset.stored_labels(index), self.dataset.source(index).geometry
        steps = tuple(map(tuple, turned_spacing(geometry).tolist()))
        place = VolumeRecord(index, upright_shape(geometry), steps, tuple(channels[0].geometry.spacing.tolist()))
        stored = np.zeros(0, np.uint8) if labels is None else np.asarray(labels.array)
        return {"volume": np.stack(scaled), "labels": stored, HOST: place}

    def _draw_map(self, labels: LabelMap, spacing: np.ndarray, generator: np.random.Generator) -> CropMap:
        """A crop anywhere, or around a voxel of a class that is drawn first: rare classes are seen as often as others.

        Source: F. Isensee et al., 2021, "nnU-Net", Nature Methods 18, where a third of each batch is drawn so.
        """
        size = np.array(self.crop_size)
        matrix = draw_matrix(self.augmentation, spacing, generator)
        for axis in self.mirror_axes:
            if generator.random() < 0.5:
                matrix[:, axis] *= -1.0
        low, high = center_range(labels.array.shape, size)
        center = generator.uniform(low, np.maximum(high, low))
        if generator.random() < self.foreground_share and labels.places:
            places = labels.places[sorted(labels.places)[generator.integers(len(labels.places))]]
            center = places[generator.integers(len(places))] + generator.uniform(-_SPREAD, _SPREAD, 3) * size
        center = np.clip(center, low, high)
        if not self.augmentation.turns:
            center = on_grid(center, size)
        return CropMap(center, matrix, self.crop_size, False)


def upright_shape(geometry: VolumeGeometry) -> tuple[int, ...]:
    """Shape of an array once its axes are turned to the world's."""
    order, _ = nearest_axes(geometry.affine)
    return tuple(geometry.shape[::-1][axis] for axis in order)[::-1]


def collate(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A batch of N volumes.

    Returns:
        In training ``volume`` float32 (N, channels, depth, height, width) and ``labels`` uint8 (N, depth, height,
        width). In an evaluation, where sizes differ and none is padded, arrays of each volume, see ``split_batch``.
    """
    if HOST not in samples[0]:
        return {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}
    arrays = {f"{name} {place}": one[name] for place, one in enumerate(samples) for name in ("volume", "labels")}
    return {**arrays, HOST: [tuple(sample[HOST]) for sample in samples]}


def split_batch(batch: dict[str, Any]) -> Iterator[tuple[VolumeRecord, Any, Any]]:
    """The volumes of an evaluation's batch, float32 (channels, depth, height, width), each with its place and labels,
    uint8 of the stored shape or (0,): no number depends on the company that a volume keeps."""
    for place, facts in enumerate(batch[HOST]):
        yield VolumeRecord(*facts), batch[f"volume {place}"], batch[f"labels {place}"]
