"""Images with keypoints in COCO's layout, or in another layout with annotation files in COCO's format."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...detection.data.coco import Coco, read_coco
from ...detection.data.indexed_images import AnnotationSource
from ...detection.odd_objects import POINT_OUTSIDE, find_outside, require_pixel_points
from ..settings import KeypointSettings
from .coco_points import KeypointFile
from .indexed_points import IndexedKeypointImages, with_points


class CocoKeypoints(IndexedKeypointImages, Coco):
    """Images whose objects have boxes and points in a file in COCO's format, also of CVAT, Datumaro or Roboflow."""

    name = "coco_keypoints"
    preferred = "person_keypoints"
    layout = (
        "with annotations/person_keypoints_train2017.json, annotations/person_keypoints_val2017.json, train2017/ and "
        "val2017/, or with one such file and folder for each split (DATA.TRAIN_ANNOTATIONS and so on name them)"
    )

    def __init__(self, data_path: str | None, split: str, cache_folder: Path, *options: Any, keys: Any = None) -> None:
        """Open a split as ``Coco`` does, with its ``options``; ``keys`` are those below KEYPOINTS, if there are any.

        Raises:
            UserError: the file has no points, or points that are wrong, or the keys do not fit its points.
        """
        super().__init__(data_path, split, cache_folder, *options)
        self.describe_points(keys=keys)

    @classmethod
    def open(cls, config: KeypointSettings, split: str, cache_folder: Path) -> "CocoKeypoints":  # type: ignore[override]
        """Open the split of a configuration."""
        return cls(*cls.list_options(config, split, cache_folder), keys=config.KEYPOINTS)

    @staticmethod
    def read_source(file: str, folder: str, turned: bool | None, inside: Sequence[str]) -> AnnotationSource:
        """Read an annotation file with its points; called only if its index is not in the cache folder."""
        coco = KeypointFile(file)
        source = read_coco(coco, folder, turned, inside)
        points = coco.points[coco.has_owner]
        sizes = np.stack([source.images["height"], source.images["width"]], axis=1)[source.owners]
        require_pixel_points(f"{file}, keypoints", points, sizes)
        is_outside = find_outside(points, sizes)
        coco.odd.note_all("object", POINT_OUTSIDE, source.objects["id"][is_outside])
        return with_points(
            source._replace(about=source.about._replace(notices=coco.odd.lines())), points, coco.described
        )
