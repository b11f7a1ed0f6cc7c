"""Images with one object each, whose keypoints are in a table: cephalograms, hands, fish, machine parts."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....core.runtime.errors import UserError
from ....core.tasks.dataset import require_split
from ...data.annotated_files import stamp
from ...data.data_warnings import DataWarnings
from ...data.formats import stems
from ...data.label_rows import describe_other_splits
from ...data.label_tables import find_images, find_tables_of_objects, has_validation
from ...data.reading import require_folder
from ...data.table_files import ImageFinder
from ...detection.data.indexed_images import (
    OBJECT,
    VERSION,
    AnnotationSource,
    SourceFacts,
    ensure_annotation_index,
)
from ...detection.data.stored_sizes import measure
from ...detection.odd_objects import find_outside, require_pixel_points
from ..described_points import DescribedPoints
from ..settings import KeypointSettings
from .indexed_points import IndexedKeypointImages, with_points
from .point_tables import PointRows, describe_rows, group_splits, holds_points, read_points

_SPACINGS = "spacings_mm"  # key of what the index keeps
_OBJECT = "object"  # name of the only category
_LAYOUT = "with a table such as points.csv (columns image,x1,y1,x2,y2 or image,point,x,y), or the table itself"


class KeypointTable(IndexedKeypointImages):
    """Images with the points of one object each; its box is the whole image.

    Columns of a row for each image are ``x1, y1, x2, y2`` or ``nose_x, nose_y``, also with ``v1`` or ``nose_v``, COCO's
    visibility; of a row for each point ``image, point, x, y``. An empty cell is a point that is not labeled. A column
    ``split``, or a table for each split, divides the images; "test" replaces a missing "val". A column ``spacing_mm``
    gives the size of a pixel.
    """

    layout = _LAYOUT
    #: whether each image has one object, the whole image
    has_whole_objects = True

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path,
        table: str | None = None,
        images: str | None = None,
        turned: bool = True,
        keys: Any = None,
    ) -> None:
        """Open ``split``, with points on images ``turned`` by EXIF or not; most programs display them turned.

        Args:
            data_path: folder with a table for all splits or for each, or a table.
            table: the split's table, absolute or below ``data_path``; None: found by its name.
            images: folder of the images, likewise; None: that of the table.
            keys: keys below KEYPOINTS, if there are any.

        Raises:
            UserError: there is no table or split, its columns or cells are wrong, or images are missing.
        """
        self.split = split
        tables, self._base = find_tables_of_objects(data_path, "keypoint_table", _LAYOUT, holds_points, split, table)
        parts = group_splits({word: read_points(path) for word, path in tables.items()})
        used = "test" if split == "val" and "val" not in parts and "test" in parts else split
        remark = ": add a column split or a table val.csv, or set DATA.VAL_FRACTION 0.2" if split == "val" else ""
        require_split(used, list(parts), f"keypoint_table ({self._base})", remark)
        rows, chosen = parts[used]
        root = self._base if images is None else require_folder(os.path.join(self._base, images), "images", "of images")
        names = [rows.names[row] for row in chosen.tolist()]
        files = find_images(ImageFinder(root), rows.path, names, root, used, "DATA.TRAIN_IMAGES and DATA.VAL_IMAGES")
        content = hashlib.sha256(rows.points[chosen].tobytes() + repr((rows.point_names, rows.spacings)).encode())
        key = stamp(f"keypoint_table {VERSION} {turned} {content.hexdigest()}\n", files)
        index = ensure_annotation_index(
            cache_folder, f"keypoint_table-{split}", key, lambda: _build(rows, chosen, root, files, turned)
        )
        super().__init__(root, index, rows.path, turned)
        self.published_as = {"split": used}
        note = [f"note: the {split} images are the {used} images of {rows.path}"] if used != split else []
        is_first = "" in tables and (used == "train" or "train" not in parts)
        others = describe_other_splits(rows) if is_first else []
        self.notices = [f"{split}: {describe_rows(rows)}", *others, *note, *self.notices]
        self.describe_points(keys=keys)
        self._spacing = None if keys is None or keys.SPACING_MM is None else float(keys.SPACING_MM)

    @classmethod
    def open(cls, config: KeypointSettings, split: str, cache_folder: Path) -> "KeypointTable":
        """Open the split of a configuration."""
        data = config.DATA
        options = {"train": (data.TRAIN_ANNOTATIONS, data.TRAIN_IMAGES), "val": (data.VAL_ANNOTATIONS, data.VAL_IMAGES)}
        table, images = options.get(split, (None, None))
        turned = data.EXIF_ROTATE is not False
        return cls(data.DATA_PATH, split, cache_folder, table, images, turned, config.KEYPOINTS)

    @staticmethod
    def has_validation(data_path: str | None) -> bool:
        """Return whether there are rows or a table of validation images, or else of test images."""
        return has_validation(data_path, holds_points)

    def spacing_mm(self, index: int) -> tuple[float, float] | None:
        """Return width and height of a pixel of image ``index`` in millimeters; None: not known."""
        if self._spacing is not None:
            return self._spacing, self._spacing
        spacings = self._index.about.more[_SPACINGS]
        return None if spacings is None else tuple(spacings[index])


def _build(rows: PointRows, chosen: np.ndarray, root: str, files: Sequence[str], turned: bool) -> AnnotationSource:
    """Return the source of the chosen images, whose sizes are measured."""
    sizes, points, odd = measure(files, turned), rows.points[chosen], DataWarnings()
    odd.note_all("image", "that cannot be read: its points are lost", np.array(files)[sizes[:, 0] == 0].tolist())
    labeled = points[:, :, 2] > 0
    if not labeled.any():
        raise UserError(f"{rows.path}: no point of its images has coordinates")
    require_pixel_points(rows.path, points, sizes)
    is_outside = find_outside(points, sizes) & (sizes[:, 0] > 0)
    odd.note_all("image", "with a point outside, scored but not learned", np.array(files)[is_outside].tolist())
    odd.note_all("image", "without a labeled point, not learned", np.array(files)[~labeled.any(axis=1)].tolist())
    objects = np.zeros((len(files), 1), OBJECT)
    objects["box"][:, 0, 2:], objects["area"][:, 0] = sizes[:, ::-1], sizes.prod(axis=1)
    about = SourceFacts([_OBJECT], [1], False, True, odd.lines())
    source = AnnotationSource.from_files(about, root, files, stems(files), sizes, list(objects))
    described = DescribedPoints(points.shape[1], rows.point_names)
    source = with_points(source, points, [described])
    spacings = None if rows.spacings is None else rows.spacings[chosen].tolist()
    return source._replace(about=source.about._replace(more={**source.about.more, _SPACINGS: spacings}))
