"""Samples of a dataset of volumes with label maps: random crops for training, whole volumes for evaluation."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.sample_checks import BadSample
from ..geometry import VolumeGeometry, nearest_axes, turned_spacing
from ..intensities import IntensityConfig
from ..samples import (
    NO_AUGMENTATION,
    AugmentationConfig,
    CropMap,
    CropSize,
    augment_intensities,
    center_range,
    cut,
    cut_labels,
    draw_matrix,
    snap_to_grid,
    to_crop_size,
)
from .dataset import LabelMap, SegmentedVolumes

HOST = "__host__"  # key of a batch: values that a step reads without waiting for the device
_SPREAD = 0.25  # of a crop's size: largest distance of its center from the voxel that it is drawn around


class SegmentedVolume(NamedTuple):
    """Predicted labels of a volume's voxels."""

    # index of the volume
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    labels: np.ndarray  # uint8 (depth, height, width), stored size of the labels, along the world's axes
    volume: np.ndarray  # float32 (depth, height, width), first channel of the network's input
    spacing: np.ndarray  # steps of ``labels``, float64 (3, 3), see ``turned_spacing``


class VolumeRecord(NamedTuple):
    """Facts about an evaluated volume that stay on the host."""

    # index of the sample
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    stored: tuple[int, ...]  # shape (depth, height, width) of the stored labels, along the world's axes
    stored_spacing: tuple[tuple[float, ...], ...]  # steps of the stored labels, see ``turned_spacing``
    spacing: tuple[float, ...]  # spacing of the volume, millimeters (depth, height, width)


class SegmentedSamples(TransformedDataset):
    """Samples that a loader process reads.

    Args:
        crop_size: (depth, height, width) of training crops; None: whole volumes.
        foreground_share: fraction of crops drawn around a voxel of a class other than the background.
        mirror_axes: axes along which crops are mirrored, 0 depth, 1 height, 2 width.
    """

    def __init__(
        self,
        dataset: SegmentedVolumes,
        intensities: IntensityConfig,
        crop_size: Sequence[int] | None = None,
        augmentation: AugmentationConfig = NO_AUGMENTATION,
        foreground_share: float = 0.0,
        mirror_axes: Sequence[int] = (),
        notices: Sequence[str] = (),
    ) -> None:
        self.dataset, self.intensities = dataset, intensities
        self.crop_size = None if crop_size is None else to_crop_size(crop_size)
        self.augmentation, self.foreground_share = augmentation, foreground_share
        self.mirror_axes, self.notices = list(mirror_axes), notices

    # the dataset knows them
    labeled = property(lambda samples: samples.dataset.labeled)
    class_names = property(lambda samples: samples.dataset.class_names)

    def sample(self, index: int, generator: np.random.Generator) -> dict[str, Any]:
        """Return one crop or whole volume: ``volume`` float32 (channels, depth, height, width) and ``labels`` uint8.

        Labels of a whole volume have their stored spacing, without resampling; its ``VolumeRecord`` is added.
        """
        if self.crop_size is None:
            return self._whole(index)
        channels, labels = self.dataset.read(index)
        if labels is None:
            raise BadSample("labels are None, expected a LabelMap: volumes to learn from have labels")
        crop = self._draw_map(labels, channels[0].geometry.spacing, self.crop_size, generator)
        volume = np.empty((len(channels), *crop.size), np.float32)
        for number, decoded in enumerate(channels):
            scaling = self.intensities.scaling(number, decoded)
            scaled = scaling(cut(decoded.array, crop, outside=scaling.zero))
            volume[number] = augment_intensities(scaled, self.augmentation, generator)
        return {"volume": volume, "labels": cut_labels(labels.array, crop)}

    def _whole(self, index: int) -> dict[str, Any]:
        channels, _ = self.dataset.read(index)
        scaled = [self.intensities.scaling(number, decoded)(decoded.array) for number, decoded in enumerate(channels)]
        labels, geometry = self.dataset.stored_labels(index), self.dataset.source(index).geometry
        steps = tuple(map(tuple, turned_spacing(geometry).tolist()))
        record = VolumeRecord(index, upright_shape(geometry), steps, tuple(channels[0].geometry.spacing.tolist()))
        stored = np.zeros(0, np.uint8) if labels is None else np.asarray(labels.array)
        return {"volume": np.stack(scaled), "labels": stored, HOST: record}

    def _draw_map(
        self, labels: LabelMap, spacing: np.ndarray, crop_size: CropSize, generator: np.random.Generator
    ) -> CropMap:
        """Draw a crop anywhere, or around a voxel of a random class: rare classes are as frequent as others.

        Source: F. Isensee et al., 2021, "nnU-Net", Nature Methods 18, where a third of each batch is drawn this way.
        """
        size = np.array(crop_size)
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
            center = snap_to_grid(center, size)
        return CropMap(center, matrix, crop_size, False)


def upright_shape(geometry: VolumeGeometry) -> tuple[int, ...]:
    """Return the shape of an array after its axes are aligned with the world's."""
    order, _ = nearest_axes(geometry.affine)
    return tuple(geometry.shape[::-1][axis] for axis in order)[::-1]


def collate(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Collate N samples to a batch: in training ``volume`` (N, channels, depth, height, width) and ``labels``, uint8.

    In evaluation, where sizes differ and nothing is padded, separate arrays of each volume, see ``split_batch``.
    """
    if HOST not in samples[0]:
        return {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}
    arrays = {f"{name} {index}": sample[name] for index, sample in enumerate(samples) for name in ("volume", "labels")}
    return {**arrays, HOST: [tuple(sample[HOST]) for sample in samples]}


def split_batch(batch: dict[str, Any]) -> Iterator[tuple[VolumeRecord, Any, Any]]:
    """Yield an evaluation batch's records, volumes float32 (channels, depth, height, width), and labels, uint8.

    Labels have the stored shape or (0,). Volumes are processed separately, so results do not depend on the batch.
    """
    for index, facts in enumerate(batch[HOST]):
        yield VolumeRecord(*facts), batch[f"volume {index}"], batch[f"labels {index}"]
