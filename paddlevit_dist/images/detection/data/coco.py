"""Images with boxes in COCO's layout, or in any other with files of annotations in COCO's format."""

import hashlib
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....runtime.errors import UserError
from ....runtime.files import open_regular
from ....tasks.dataset import require_split
from ...data.annotated_files import list_image_names
from ...data.box_layouts import is_coco, list_json_files, names_split
from ...data.formats import SPLIT_WORDS, list_folders
from ...data.reading import SPLITS, require_folder
from ...run_lengths import outline
from ..coco_files import CocoFile, CocoImage, elements, file_name, require_sides, segmentation_at
from ..settings import DetectionSettings
from .indexed_images import (
    IMAGE,
    OBJECT,
    VERSION,
    AnnotationSource,
    IndexedDetectionImages,
    SourceFacts,
    ensure_annotation_index,
    fill_in,
)

_LAYOUT = (
    "with annotations/instances_train2017.json, annotations/instances_val2017.json, train2017/ and val2017/, or with "
    "one such file and folder for each split (DATA.TRAIN_ANNOTATIONS and so on name them)"
)
_LOOKED_AT = 40  # images, to find their folder


class Coco(IndexedDetectionImages):
    """Images whose boxes, and perhaps masks, are in a file in COCO's format.

    Its index, in the cache folder, belongs to the file's content; masks are read from the file itself when they are
    needed.
    """

    layout = _LAYOUT

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path,
        annotations: str | None = None,
        images: str | None = None,
        turned: bool | None = None,
        anywhere: bool = False,
    ) -> None:
        """Serve ``split``, "train", "val" or another that files are named after.

        Args:
            annotations: its file, absolute or below ``data_path``; None: the one whose name says the split.
            images: folder of its images, likewise; None: the one that has them.
            turned: boxes were drawn on the images as their EXIF orientation turns them; None: if the file does not
                say how large any image is.
            anywhere: images may lie outside of ``data_path`` and ``images``.
        Raises:
            UserError: they are not found, or there are several; or the file is not as COCO describes it.
        """
        self.split = split
        data_path, file = _folder_and_file(data_path)
        root = require_folder(data_path, "coco", _LAYOUT)
        file, folder = find_files(root, split, annotations or (file if split == "train" else None), images)
        self._file, self._below = file, os.path.relpath(folder, root)
        inside = () if anywhere else (root, folder)
        key = _digest(file, turned, *inside)
        index = ensure_annotation_index(
            cache_folder, f"coco-{split}", key, lambda: read_coco(file, folder, turned, inside)
        )
        super().__init__(folder, index, os.path.basename(file), index.about.is_turned)
        self.notices = [f"{split}: {file}, images in {folder}", *self.notices]
        self._stream: Any = None

    @classmethod
    def open(cls, config: DetectionSettings, split: str, cache_folder: Path) -> "Coco":
        data = config.DATA
        own = {
            "train": (data.TRAIN_ANNOTATIONS, data.TRAIN_IMAGES),
            "val": (data.VAL_ANNOTATIONS, data.VAL_IMAGES),
        }
        files = own.get(split, (None, None))
        return cls(data.DATA_PATH, split, cache_folder, *files, data.EXIF_ROTATE, data.SEARCH_IMAGES_RECURSIVELY)

    @staticmethod
    def has_validation(data_path: str) -> bool:
        """Whether a file's name says that it is for validation."""
        return bool(_find_named_after(list_json_files(_folder_and_file(data_path)[0] or ""), "val"))

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "_stream": None}

    def identity(self, index: int) -> str:
        return os.path.normpath(os.path.join(self._below, self._index.paths.path(index)))

    def beside(self) -> list[str]:
        named = {os.path.normpath(self._index.paths.path(index)) for index in range(len(self))}
        return [name for name in list_image_names(self.root) if name not in named]

    def masks(self, index: int) -> list[Any]:
        return [self._mask(row) for row in self._index.get_objects(index)]

    def _mask(self, row: Any) -> Any:
        if not row["bytes"]:
            return outline(row["box"].tolist())
        if self._stream is None:
            self._stream = open_regular(self._file, "rb")
        return segmentation_at(self._stream, int(row["start"]), int(row["bytes"]), int(row["id"]))


def _folder_and_file(data_path: str | None) -> tuple[str | None, str | None]:
    """The folder of data, and the file of training annotations where it is that which ``-data_path`` names."""
    path = data_path and os.path.abspath(os.path.expanduser(os.fspath(data_path)))
    if not path or not os.path.isfile(path):
        return data_path, None
    folder = os.path.dirname(path)
    return os.path.dirname(folder) if os.path.basename(folder).lower() == "annotations" else folder, path


def find_files(root: str, split: str, annotations: str | None, images: str | None) -> tuple[str, str]:
    """A split's file of annotations, and the folder of the images that it names.

    Raises:
        UserError: nothing, or more than one thing, fits.
    """
    file = _find_by_name(root, annotations, _key(split, "ANNOTATIONS"), os.path.isfile, "file")
    file = file or _find_annotations(root, split)
    folder = _find_by_name(root, images, _key(split, "IMAGES"), os.path.isdir, "folder")
    return file, folder or _find_folder(root, split, file)


def _key(split: str, part: str) -> str:
    """The key that names a part of a split; those of validation serve any other split as well."""
    return f"DATA.{split.upper()}_{part}" if split in SPLITS else f"-split=val DATA.VAL_{part}"


def _find_by_name(root: str, name: str | None, key: str, is_there: Any, kind: str) -> str | None:
    if name is None:
        return None
    path = os.path.join(root, name)
    if not is_there(path):
        raise UserError(f"{key} {name}: there is no {kind} {path}")
    return path


def _find_annotations(root: str, split: str) -> str:
    files = list_json_files(root)
    fitting = _find_named_after(files, split)
    preferred = [file for file in fitting if os.path.basename(file).startswith("instances")] or fitting
    if len(preferred) == 1:
        return preferred[0]
    if preferred:
        names = ", ".join(os.path.relpath(file, root) for file in preferred[:4])
        raise UserError(
            f"{root} has {len(preferred)} files of annotations for {split}: {names}; name one with "
            f"{_key(split, 'ANNOTATIONS')}"
        )
    alone = [file for file in files if is_coco(file) and not any(_find_named_after([file], word) for word in SPLITS)]
    if split == "train" and len(alone) == 1:
        return alone[0]
    if split not in SPLITS:
        require_split(split, [name for name in SPLITS if _find_named_after(files, name)], root)
    helps = split == "val" and (_find_named_after(files, "train") or len(alone) == 1)
    divide = ", or let DATA.VAL_FRACTION divide the training set" if helps else ""
    found = f"; there is {', '.join(os.path.relpath(file, root) for file in files[:4])}" if files else ""
    raise UserError(
        f"{root} has no file of {split} annotations{found}; name one with "
        f"{_key(split, 'ANNOTATIONS')}{divide}; expected a folder {_LAYOUT}"
    )


def _find_named_after(files: Sequence[str], split: str) -> list[str]:
    """The files whose name, or else whose folder's name, has the split's word in it: instances_val2017.json,
    valid/_annotations.coco.json."""
    for part in (0, 1):
        found = [file for file in files if names_split(Path(file).parts[-1 - part], split)]
        found = [file for file in found if not part or not any(names_split(Path(file).name, one) for one in SPLITS)]
        if found:
            return found
    return []


def _find_folder(root: str, split: str, file: str) -> str:
    """The folder that has the images which a file of annotations names."""
    names = _first_names(file)
    words = SPLIT_WORDS.get(split, (split,))
    folders = [
        path
        for parent in (root, os.path.join(root, "images"))
        for path in list_folders(parent)
        if names_split(os.path.basename(path), split) or os.path.basename(path) in words
    ]
    folders += [os.path.join(root, "images", "default")]  # CVAT's subset where no other was named
    folders += [os.path.dirname(file), os.path.join(root, "images"), os.path.join(root, "JPEGImages"), root]
    folders = [folder for folder in dict.fromkeys(map(os.path.normpath, folders)) if os.path.isdir(folder)]
    hits = [sum(os.path.isfile(os.path.join(folder, name)) for name in names) for folder in folders]
    if not names:
        return folders[0]
    if not any(hits):
        looked = ", ".join(os.path.relpath(folder, root) for folder in folders[:4])
        raise UserError(
            f"the images of {file}, such as {names[0]}, are not below {root} (looked in {looked}): name their folder "
            f"with {_key(split, 'IMAGES')}, or give -data_path a folder that holds both"
        )
    return folders[hits.index(max(hits))]


def _first_names(file: str) -> list[str]:
    """The names of some images."""
    try:
        images = itertools.islice(elements(file, {"images": CocoImage}).get("images", ()), _LOOKED_AT)
        names = [file_name(image.value) for image in images]
    except (OSError, ValueError):  # told by whoever reads the whole file
        return []
    return [name for name in names if name is not None]


def _digest(file: str, *decides: Any) -> bytes:
    key = hashlib.sha256(f"coco {VERSION} {decides}\n".encode("utf-8", "surrogateescape"))
    try:
        with open_regular(file, "rb") as stream:
            for chunk in iter(lambda: stream.read(1 << 20), b""):
                key.update(chunk)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    return key.digest()


def read_coco(file: str, folder: str, turned: bool | None, inside: Sequence[str] = ()) -> AnnotationSource:
    """The images, objects and categories of a file.

    Args:
        folder: of the images.
        turned: boxes were drawn on the images as their EXIF orientation turns them; None: if the file does not say
            how large any image is. Images whose size is missing are measured accordingly.
        inside: folders of which one has to hold each image; none: they may be anywhere.
    Raises:
        UserError: it cannot be read, or is not as COCO describes it; the message names the file and the entry.
    """
    coco, places = CocoFile(file), [os.path.join(one, "") for one in inside]
    paths = [_path(coco, number, folder, places) for number in range(len(coco.images))]
    _, first, of_path = np.unique(paths, return_index=True, return_inverse=True)
    ids = np.array([one.id for one in coco.images])
    coco.odd.note_all("image", "whose file another one has too", ids[first[of_path] != np.arange(len(ids))])
    images, sizes = np.zeros(len(ids), IMAGE), coco.sizes
    is_turned, unknown, told = fill_in(
        sizes, lambda row: os.path.join(folder, os.fsdecode(paths[row])), turned, file, coco.odd
    )
    images["id"], images["height"], images["width"] = ids, sizes[:, 0], sizes[:, 1]
    coco.odd.note_all("image", f"without height or width: both were measured{told}", ids[unknown])
    objects = np.zeros(len(coco.numbers), OBJECT)
    objects["box"], areas = np.array(coco.boxes).reshape(-1, 4), np.array(coco.areas)
    objects["area"] = np.where(np.isnan(areas), objects["box"][:, 2:].prod(axis=1), areas)
    for field, column in zip(("id", "label", "is_crowd", "bytes", "start"), coco.columns()):
        objects[field] = column
    objects, owners = objects[coco.kept], np.array(coco.owners)[coco.kept]
    _check_boxes(coco, objects, images[owners])
    has_masks = bool((objects["bytes"] > 0).any())
    if has_masks:
        coco.odd.note_all("object", "without a mask: the box is taken", objects["id"][objects["bytes"] == 0])
    names = [category.name for category in coco.categories.values()]
    about = SourceFacts(names, list(coco.categories), has_masks, coco.has_annotations, coco.odd.lines(), is_turned)
    return AnnotationSource(about, paths, images, owners, objects)


def _path(coco: CocoFile, number: int, folder: str, inside: Sequence[str]) -> bytes:
    """The file of an image, by its position; ``inside``: folders, of which one has to hold it if there are any."""
    entry = coco.images[number]
    name = file_name(entry) or ""
    try:
        path = os.fsencode(name)
    except UnicodeEncodeError:
        path = b""
    if not path:
        raise coco.error(number, entry, "file_name", "expected the name of a file")
    if inside and (os.path.isabs(path) or b".." in path):
        place = os.path.normpath(os.path.join(folder, name))
        if not place.startswith(tuple(inside)):
            expected = f"expected an image below {inside[0]}; DATA.SEARCH_IMAGES_RECURSIVELY true allows others"
            raise coco.error(number, entry, "file_name", expected)
    if entry.file_name is None:
        coco.odd.note("image", "without file_name: the end of coco_url is taken", entry.id)
    elif "\\" in entry.file_name:
        coco.odd.note("image", "whose file_name has backslashes: taken for slashes", entry.id)
    return path


def _check_boxes(coco: CocoFile, objects: np.ndarray, images: np.ndarray) -> None:
    """Note boxes that lie outside of their images, or that all could be corners.

    Raises:
        UserError: they can hardly be x, y, width, height in pixels.
    """
    objects, images = (rows[(objects["box"][:, 2:] > 0).all(axis=1)] for rows in (objects, images))
    require_sides(coco.file, objects["box"], np.stack([images["height"], images["width"]], axis=1).astype(np.int64))
    odd, ids, low, sides = coco.odd, objects["id"], objects["box"][:, :2], objects["box"][:, 2:]
    high, limits = low + sides, np.stack([images["width"], images["height"]], axis=1)
    outside = (high <= 0).any(axis=1) | (low >= limits).any(axis=1)
    beyond = (low < -1).any(axis=1) | (high > limits + 1).any(axis=1)
    if beyond.any() and (sides > low).all() and (sides <= limits + 1).all():
        text = "with a box that would fit as x0, y0, x1, y1, as all would: COCO's are x, y, width, height"
        odd.note_all("object", text, ids)
    odd.note_all("object", "with a box outside the image: not learned", ids[outside])
    text = "with a box that reaches beyond the image by more than a pixel: cut off for training"
    odd.note_all("object", text, ids[beyond & ~outside])
