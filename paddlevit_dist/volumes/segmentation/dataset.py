"""Base classes of datasets of volumes with label maps, and the cache of decoded label maps."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.printing import describe_value
from ...core.tasks.class_names import make_class_names
from ...core.tasks.dataset import Dataset
from ...core.tasks.listed_dataset import create_dataset
from ...core.tasks.sample_arrays import to_classes
from ...core.tasks.sample_checks import BadSample
from ..dataset import NamedVolumes
from ..geometry import VolumeGeometry, describe_difference
from ..reading import VolumeHeader
from ..settings import MAX_VOXELS
from ..store import DecodedStore, DecodedVolume, read_stored, read_upright
from ..volume_fields import check_place, check_volume, place_labels
from .regions import LabelRegion
from .settings import VolumeSegmentationSettings

IGNORED = 255  # label of a voxel without a class; a dataset has at most 255 classes
NOT_IN_FILES = 1 << 16  # from here on, numbers of classes that no label map has
_PLACES = 500  # stored voxels of each class, as centers of training crops


class SegmentationOptions(NamedTuple):
    """Settings for reading a dataset; fields correspond to the keys VOLUMES.*."""

    spacing_mm: Sequence[float] | None = None
    max_voxels: int = MAX_VOXELS
    fold: int = 0


DEFAULT_OPTIONS = SegmentationOptions()


class LabelSource(NamedTuple):
    """Reference volume of a label map."""

    file: str | None  # file of its first channel; None: a synthetic volume
    geometry: VolumeGeometry  # geometry of that file, with the stored order of axes


_NEARLY_WHOLE = 1e-3  # largest deviation of a label from an integer; some tools write a slope of 1.0000000591


class LabelMap(NamedTuple):
    """Classes of a volume's voxels."""

    array: np.ndarray  # uint8 (depth, height, width), classes from 0 or ``IGNORED``; axes are aligned with the world's
    geometry: VolumeGeometry  # geometry of the array
    # by class, without the background, some of its voxels z, y, x: int (at most 500, 3)
    places: Mapping[int, np.ndarray]

    @classmethod
    def from_array(cls, array: np.ndarray, geometry: VolumeGeometry) -> "LabelMap":
        """Create a label map; the drawn voxels are the same on every machine."""
        places, generator = {}, np.random.default_rng(0)
        occurring = np.bincount(array.reshape(-1), minlength=IGNORED + 1) > 0
        for label in np.flatnonzero(occurring[1:IGNORED]) + 1:
            voxels = np.flatnonzero(array == label)
            if len(voxels) > _PLACES:
                voxels = voxels[np.sort(generator.integers(0, len(voxels), _PLACES))]
            places[int(label)] = np.stack(np.unravel_index(voxels, array.shape), axis=1)
        return cls(array, geometry, places)


def make_label_map(
    array: Any,
    *,
    axes: str | None = None,
    spacing: Any = None,
    affine: Any = None,
    class_names: Sequence[str] | None = None,
) -> LabelMap:
    """Create a label map with axes aligned with the world's. Labels are never shifted: label 1 stays label 1.

    Keep the result rather than creating it at each read: this takes several passes over the voxels.

    Args:
        array: integers of any type, whole numbers, truth values or names of classes, with three axes; 0 is the
            background, ``IGNORED`` (255) a voxel without a class.
        axes: the order of the array's axes; for this, spacing and affine see ``make_volume``.
        spacing: millimeters along the array's axes.
        affine: from voxel indices x, y, z to millimeters.
        class_names: names of the classes, the background first; None: names are not looked up.

    Raises:
        BadSample: an argument has another form, or a label is out of range.
    """
    names = [] if class_names is None else make_class_names(class_names, "class_names")
    upright, geometry = place_labels(array, axes, spacing, affine)
    return LabelMap.from_array(
        to_classes(upright, "labels", names, len(names) or IGNORED, IGNORED).astype(np.uint8), geometry
    )


def require_known(labels: np.ndarray, count: int) -> None:
    """Check that the labels of voxels are from 0 up to ``count``, or ``IGNORED``; raises BadSample."""
    is_unknown = (labels >= count) & (labels != IGNORED)
    if is_unknown.any():
        raise BadSample(
            f"{np.count_nonzero(is_unknown):,} of {labels.size:,} voxels have a label that is out of range, such as "
            f"{int(labels[is_unknown].max())}: with {count} classes labels go from 0, the background, to {count - 1}, "
            f"and {IGNORED} means no class"
        )


class SegmentedVolumes(NamedVolumes):
    """Base class of datasets of volumes with one or several channels and a class for each voxel.

    ``read(index)`` returns ``(channels, labels)``. Label 0 is the background. ``make_volume`` creates a channel, and
    ``make_label_map`` the labels.
    """

    holds = "volumes with label maps"
    #: names of the network's outputs: of the labels, the background first, or of the regions
    class_names: Sequence[str] = []
    #: number of each label in the files; empty: 0, 1 and so on
    numbers: Sequence[int] = []
    #: regions of labels, each with an output; empty: each label has an output
    regions: Sequence[LabelRegion] = ()
    #: names of the channels, such as "CT"
    channels: Sequence[str] = ["intensity"]
    #: target spacing, millimeters (depth, height, width)
    spacing: Any  # of an own dataset also a list
    #: region of each channel's mean and deviation, set by the task, see ``nonzero``; None: always the whole volume
    within: Sequence[str] | None = None
    makers = {**Dataset.makers, "stored_labels": "make_stored_labels"}

    @classmethod
    def open(cls, config: VolumeSegmentationSettings, split: str, cache_folder: Path) -> "SegmentedVolumes":
        """Open a split with the DATA and VOLUMES keys of a configuration."""
        volumes = config.VOLUMES
        options = SegmentationOptions(volumes.SPACING_MM, volumes.MAX_VOXELS, volumes.FOLD)
        return create_dataset(cls, config.DATA.DATA_PATH, split, cache_folder, options)

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        """Number of outputs of a network: classes with the background, or regions."""
        return 0 if self.class_names is None else len(self.class_names)

    def make_sample(self, sample: Any) -> tuple[list[DecodedVolume], LabelMap | None]:
        """Return what ``read`` of a derived class returned; BadSample if a part is wrong. Voxels are not read."""
        if not isinstance(sample, (tuple, list)) or len(sample) != 2 or isinstance(sample, DecodedVolume):
            what = f"{self.own_class.__name__}.read returns {describe_value(sample)}"
            raise BadSample(f"{what}, expected (channels, labels)")
        channels = [sample[0]] if isinstance(sample[0], DecodedVolume) else sample[0]
        if not isinstance(channels, (tuple, list)) or len(channels) != len(self.channels):
            number, names = len(self.channels), ", ".join(self.channels)
            raise BadSample(
                f"channels are {describe_value(channels)}, expected a list of {number} DecodedVolume ({names})"
            )
        spacing = getattr(self, "spacing", None)
        volumes = [check_volume(each, f"channel {name}", spacing) for name, each in zip(self.channels, channels)]
        for name, volume in zip(self.channels, volumes):
            if volume.array.shape != volumes[0].array.shape:
                shapes = f"{volume.array.shape}, and channel {self.channels[0]} {volumes[0].array.shape}"
                raise BadSample(f"channel {name} has the shape {shapes}: expected the same")
            _require_same_place(f"channel {name}", volume.geometry, volumes[0].geometry, f"channel {self.channels[0]}")
        labels = self.make_stored_labels(sample[1])
        if labels is not None and labels.array.shape != volumes[0].array.shape:
            shapes = f"{labels.array.shape}, and the channels {volumes[0].array.shape}"
            raise BadSample(f"the label map has the shape {shapes}: expected the same")
        if labels is not None:
            _require_same_place("the label map", labels.geometry, volumes[0].geometry, f"channel {self.channels[0]}")
        return volumes, labels

    def make_stored_labels(self, labels: Any) -> LabelMap | None:
        """Return what ``stored_labels`` of a derived class returned; BadSample if it is wrong. Voxels are not read."""
        if labels is None:
            return None
        if not isinstance(labels, LabelMap):
            raise BadSample(f"labels are {describe_value(labels)}, expected a LabelMap: make_label_map creates one")
        array = labels.array
        if not isinstance(array, np.ndarray) or array.dtype != np.uint8:
            raise BadSample(f"the label map has {describe_value(array)}, expected uint8: make_label_map creates one")
        count = len(self.numbers) or len(self.class_names)
        if max(labels.places, default=0) >= count:
            require_known(array, count)
        return labels._replace(geometry=check_place(array, labels.geometry, "the label map"))

    @abstractmethod
    def read(self, index: int) -> tuple[list[DecodedVolume], LabelMap | None]:
        """Read the channels of volume ``index``, which have one geometry, and the labels; None without labels."""

    def stored_labels(self, index: int) -> LabelMap | None:
        """Return the labels at their stored spacing, by default those that ``read`` returns; None without labels."""
        return self.read(index)[1]

    def stored(self, index: int) -> list[np.ndarray]:
        """Return the channels at their stored spacing, without resampling; by default the channels of ``read``."""
        return [np.asarray(channel.array) for channel in self.read(index)[0]]

    def source(self, index: int) -> LabelSource:
        """Return the file and geometry of the labels of volume ``index``; by default that of its channels.

        Labels of another size than the channels need it.
        """
        return LabelSource(None, self.read(index)[0][0].geometry)


def _require_same_place(field: str, geometry: VolumeGeometry, first: VolumeGeometry, first_field: str) -> None:
    """Raise a BadSample if a part of a sample says another place than its first channel, by the rule for files."""
    what = describe_difference(first, geometry)
    if what:
        raise BadSample(
            f"{field} and {first_field} have different geometries: {what}; make both with the same affine, or both "
            "with the same spacing, or resample one to the other"
        )


class VolumeFiles(SegmentedVolumes):
    """Volumes with label maps, in files."""

    names: Sequence[str]  # names of the volumes
    files: Sequence[Sequence[str]]  # files of each volume's channels
    headers: Sequence[VolumeHeader]  # header of the first file of each volume
    max_voxels: int
    within: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.files)

    def stored(self, index: int) -> list[np.ndarray]:
        """Read the channels of volume ``index`` at their stored spacing."""
        files = self.files[index]
        return [read_stored(file, self.max_voxels, first=files[0])[0] for file in files]

    def source(self, index: int) -> LabelSource:
        """Return the file and geometry of the labels of volume ``index``."""
        return LabelSource(self.files[index][0], self.headers[index].geometry)

    def case(self, index: int) -> str:
        """Return the name of volume ``index``."""
        return self.names[index]

    def describe(self, index: int) -> str:
        """Return the path of volume ``index``, for messages."""
        return self.files[index][0]


class LabelStore(DecodedStore):
    """Cache of decoded label maps in a folder, as classes, whose numbers in the files are ``numbers``.

    ``ignored`` is the number of voxels without a class; None: all voxels have one.
    """

    def __init__(
        self,
        folder: Path,
        spacing: Sequence[float] | None,
        max_voxels: int,
        numbers: Sequence[int],
        ignored: int | None = None,
    ) -> None:
        super().__init__(folder, spacing, max_voxels)
        self.numbers, self.ignored = list(numbers), ignored
        self._meaning = [self.numbers, ignored]

    def labels(self, file: str, first: str) -> LabelMap:
        """Return the label map of a file; ``first`` is the volume's first file, see ``read_stored``.

        UserError is as from ``DecodedStore.get``, or if a voxel has a number that is not a class.
        """
        stored, array = self._read_kept(file, "labels", first)
        places = {int(label): np.array(voxels, np.int64) for label, voxels in stored["places"].items()}
        return LabelMap(array, VolumeGeometry(array.shape, np.array(stored["affine"])), places)

    def _read(self, file: str, *within: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        array, affine = read_upright(file, self.spacing, self.max_voxels, self.find_classes, within[1])
        places = LabelMap.from_array(array, VolumeGeometry(array.shape, affine)).places
        return array, affine, {"places": {label: voxels.tolist() for label, voxels in places.items()}}

    def find_classes(self, file: str, voxels: np.ndarray) -> np.ndarray:
        """Convert numbers to classes, uint8; numbers scaled by a header may differ from an integer by a thousandth."""
        numbers = np.array([*self.numbers, *([] if self.ignored is None else [self.ignored])])
        classes = np.array([*range(len(self.numbers)), IGNORED][: len(numbers)], np.uint8)
        order = np.argsort(numbers)
        result = np.empty(voxels.shape, np.uint8)
        for depth, plane in enumerate(voxels):  # slice by slice, since indices take 8 bytes per voxel
            if plane.dtype.kind == "f":
                whole = np.rint(plane)
                plane = np.where(np.abs(plane - whole) <= _NEARLY_WHOLE, whole, plane)
            index = np.minimum(np.searchsorted(numbers[order], plane), len(numbers) - 1)
            unknown = np.argwhere(numbers[order][index] != plane)
            if len(unknown):
                y, x = unknown[0].tolist()
                known = ", ".join(str(number) for number in sorted(numbers.tolist()) if number < NOT_IN_FILES)
                raise UserError(
                    f"{file}: voxel {x}, {y}, {depth} (x, y, z from 0) has the label {plane[y, x]}, which is not in "
                    f"dataset.json ({known}): add it there or correct the file"
                )
            result[depth] = classes[order][index]
        return result
