"""Images with keypoints in the layout of YOLO's pose labels: boxes and points as fractions of the image's size."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....core.runtime.errors import UserError
from ....core.runtime.files import readable
from ....core.runtime.printing import count, shorten
from ....core.runtime.text_files import read_yaml
from ...data.data_warnings import first_names
from ...data.yolo_files import YoloDescription, find_label_file, read_description
from ...detection.data.indexed_images import AnnotationSource
from ...detection.data.yolo import Yolo, read_yolo
from ...detection.odd_objects import find_outside
from ..described_points import DescribedPoints, pair_up
from ..settings import KeypointSettings
from .coco_points import surround
from .indexed_points import IndexedKeypointImages

_VISIBLE = 2
_FARTHEST = 10.0  # fraction of an image; farther points are pixels


class YoloPose(IndexedKeypointImages, Yolo):
    """Images whose labels are lines ``class x y width height x1 y1 v1 x2 y2 v2 ...``, with a data.yaml.

    Its ``kpt_shape`` is [points, 3], or [points, 2] for labels without visibility: there, a point at 0, 0 or with a
    negative number is not labeled. ``flip_idx`` gives the mirrored pairs, and ``kpt_names`` the names. Fractions are of
    COCO's coordinates: x of a point is its fraction times the image's width. The area of an object is that of its box.
    """

    name = "yolo_pose"

    def __init__(
        self, data_path: str | None, split: str, cache_folder: Path, turned: bool = True, keys: Any = None
    ) -> None:
        """Open a split as ``Yolo`` does; ``keys`` are those below KEYPOINTS, if there are any.

        Raises:
            UserError: there is no data.yaml with kpt_shape, or a label file or key does not fit it.
        """
        super().__init__(data_path, split, cache_folder, turned)
        file = _read_pose_file(self._described)
        self.describe_points([file.describe(name) for name in self.class_names], keys)

    @classmethod
    def open(cls, config: KeypointSettings, split: str, cache_folder: Path) -> "YoloPose":  # type: ignore[override]
        """Open the split of a configuration."""
        data = config.DATA
        return cls(data.DATA_PATH, split, cache_folder, data.EXIF_ROTATE is not False, config.KEYPOINTS)

    def read_source(
        self, root: str, images: list[str], names: dict[int, str], turned: bool, keypoints: int
    ) -> AnnotationSource:
        """Read all labels with their points; called only if their index is not in the cache folder."""
        number, values = _read_pose_file(self._described).shape
        source, fractions = read_yolo(root, images, names, turned, keypoints)
        fractions = fractions.reshape(-1, number, values)
        sizes = np.stack([source.images["height"], source.images["width"]], axis=1)[source.owners]
        points = np.zeros((len(fractions), number, 3))
        points[:, :, :2] = fractions[:, :, :2] * sizes[:, None, ::-1]
        points[:, :, 2] = fractions[:, :, 2] if values == 3 else _find_labeled(fractions)
        _check_points(
            fractions, points, [os.path.join(root, os.fsdecode(source.paths[owner])) for owner in source.owners], root
        )
        notices = list(source.about.notices)
        if is_outside := int(find_outside(points, sizes).sum()):
            notices.append(f"{count(is_outside, 'object')} with a labeled point outside the image, not learned")
        objects = source.objects.copy()
        for row in np.flatnonzero((objects["box"][:, 2:] == 0).all(axis=1) & (points[:, :, 2] > 0).any(axis=1)):
            objects["box"][row] = surround(points[row])
            objects["area"][row] = objects["box"][row, 2:].prod()
        return source._replace(objects=objects, points=points, about=source.about._replace(notices=notices))


def _find_labeled(fractions: np.ndarray) -> np.ndarray:
    """Return visibilities of points without them, (objects, K): not labeled at 0, 0 or with a negative number."""
    is_missing = (fractions < 0).any(axis=2) | (fractions == 0).all(axis=2)
    return np.where(is_missing, 0, _VISIBLE)


def _check_points(fractions: np.ndarray, points: np.ndarray, paths: list[str], root: str) -> None:
    """Raise UserError if points, float64 (objects, K, 3), are not fractions or have another visibility.

    ``paths`` are the images of the objects.
    """
    is_far = (points[:, :, 2:] > 0) & ~(np.abs(fractions[:, :, :2]) < _FARTHEST)
    is_odd = ~np.isin(points[:, :, 2], (0, 1, 2))
    for is_wrong, expected in (
        (is_far.any(axis=(1, 2)), "points as fractions of the image from 0 to 1, not pixels"),
        (is_odd.any(axis=1), "the visibility of each point to be 0 (not labeled), 1 (hidden) or 2 (visible)"),
    ):
        if is_wrong.any():
            at = int(np.flatnonzero(is_wrong)[0])
            file = find_label_file(paths[at])
            raise UserError(
                f"{file}, object {1 + paths[:at].count(paths[at])}: expected {expected}; kpt_shape in data.yaml says "
                "how many"
            )
    if not (points[:, :, 2] > 0).any():
        raise UserError(
            f"{root}: no label file has a labeled point: expected lines class x y width height x1 y1 v1 x2 y2 v2 ...; "
            "for boxes alone choose -dataset=yolo and a recipe of a detector"
        )


class PoseFile(NamedTuple):
    """What data.yaml says about points."""

    shape: tuple[int, int]  # number of points, and 2 or 3 numbers of each
    pairs: list[tuple[int, int]] | None  # mirrored pairs; None: not given
    names: dict[str, list[str]]  # class -> names of its points, if given

    def describe(self, class_name: str) -> DescribedPoints:
        """Return what the file says about the points of a class."""
        return DescribedPoints(self.shape[0], self.names.get(class_name), self.pairs)


def _read_pose_file(root: str) -> PoseFile:
    """Read data.yaml, or the one in a folder; raise UserError if it has no ``kpt_shape``, or wrong points."""
    description = read_description(root)
    content: dict[str, Any] = {}
    if description is not None and description.keypoint_values:
        with readable(description.file):
            content = read_yaml(description.file)
    if description is None or not content:
        place = root if description is None else description.file
        raise UserError(
            f"{place} has no kpt_shape: expected data.yaml with a line such as kpt_shape: [17, 3], the number of "
            "points and 2 or 3 numbers of each; for boxes alone choose -dataset=yolo and a recipe of a detector"
        )
    number, values = content["kpt_shape"]
    mirror = content.get("flip_idx")
    pairs = None if mirror is None else pair_up(mirror, number)
    if mirror is not None and pairs is None:
        expected = f"expected the numbers 0 to {number - 1}, exchanged in pairs"
        raise UserError(f"{description.file}: flip_idx {shorten(str(mirror))}: {expected}")
    return PoseFile((number, values), pairs, _read_names(description, content.get("kpt_names"), number))


def _read_names(description: YoloDescription, given: Any, number: int) -> dict[str, list[str]]:
    """Return the names of the ``number`` points of each class, from a list for all classes or one for each."""
    names: dict[str, list[str]] = {}
    known: dict[Any, str] = {**description.names, **{name: name for name in description.names.values()}}
    for label, points in (given if isinstance(given, dict) else dict.fromkeys(description.names, given)).items():
        if points is None:
            continue
        file = f"{description.file}: kpt_names"
        if label not in known:
            labels = first_names([str(label) for label in description.names])
            expected = f"expected one of {labels}, or a name"
            raise UserError(f"{file}: there is no class {shorten(repr(label), 40)}: {expected}")
        own = [str(name) for name in points] if isinstance(points, list) else []
        if len(own) != number or len(set(own)) < number:
            raise UserError(f"{file} {shorten(str(points))}: expected {number} different names")
        names[known[label]] = own
    return names
