"""Images with boxes in COCO's layout, or in another layout with annotation files in COCO's format."""

import hashlib
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ....core.runtime.errors import UserError
from ....core.runtime.files import open_regular, readable
from ....core.runtime.spelling import compose, find_spelling
from ....core.tasks.dataset import require_split
from ...data.annotated_files import list_image_names
from ...data.box_layouts import is_coco, list_json_files, names_split
from ...data.formats import SPLIT_WORDS, list_folders
from ...data.reading import SPLITS, require_folder
from ...run_lengths import outline
from ...settings import ObjectSettings
from ..coco_files import CocoFile, CocoImage, file_name, segmentation_at
from ..json_lists import elements
from ..odd_objects import note_boxes, require_sides
from ..settings import DetectionSettings
from .indexed_images import (
    IMAGE,
    OBJECT,
    VERSION,
    AnnotationSource,
    IndexedDetectionImages,
    SourceFacts,
    ensure_annotation_index,
)
from .stored_sizes import fill_in_sizes

_LAYOUT = (
    "with annotations/instances_train2017.json, annotations/instances_val2017.json, train2017/ and val2017/, or with "
    "one such file and folder for each split (DATA.TRAIN_ANNOTATIONS and so on name them)"
)
_BESIDE = ("data", "images", "img")  # folders next to a split's file, as of FiftyOne, Label Studio and Supervisely
_PROBED = 40  # images whose files are searched to find their folder


class Coco(IndexedDetectionImages):
    """Images whose boxes and masks are in a file in COCO's format; masks are read from the file on demand."""

    layout = _LAYOUT
    #: name of the dataset, in messages and file names of its index
    name = "coco"
    declares_ids = True
    #: beginning of the name of the file that is read if a folder has several
    preferred = "instances"

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
        """Open ``split``: "train", "val" or another word in the names of files.

        Args:
            data_path: folder of the dataset, or its file of training annotations.
            annotations: annotation file, absolute or below ``data_path``; None: the file with the split's name.
            images: folder of the images, likewise; None: the folder that contains them.
            turned: whether boxes refer to the images after their EXIF rotation; None: only if the file gives no sizes.
            anywhere: whether images may be outside of ``data_path`` and ``images``.

        Raises:
            UserError: the file or folder is not found or ambiguous, or the file is not in COCO's format.
        """
        self.split = split
        data_path, file = _folder_and_file(data_path)
        root = require_folder(data_path, self.name, self.layout)
        annotations = annotations or (file if split == "train" else None)
        file, folder = find_files(root, split, annotations, images, self.preferred, self.layout)
        self._file, self._below = file, os.path.relpath(folder, root)
        inside = () if anywhere else (root, folder)
        key = _digest(self.name, file, turned, folder, *inside)
        index = ensure_annotation_index(
            cache_folder, f"{self.name}-{split}", key, lambda: self.read_source(file, folder, turned, inside)
        )
        super().__init__(folder, index, os.path.basename(file), index.about.is_turned)
        self.notices = [f"{split}: {file}, images in {folder}", *self.notices]
        self._stream: BinaryIO | None = None

    @staticmethod
    def read_source(file: str, folder: str, turned: bool | None, inside: Sequence[str]) -> AnnotationSource:
        """Read an annotation file as ``read_coco`` does; called only if its index is not in the cache folder."""
        return read_coco(CocoFile(file), folder, turned, inside)

    @classmethod
    def open(cls, config: DetectionSettings, split: str, cache_folder: Path) -> "Coco":
        """Open the split of a configuration."""
        return cls(*cls.list_options(config, split, cache_folder))

    @staticmethod
    def list_options(config: ObjectSettings, split: str, cache_folder: Path) -> tuple[Any, ...]:
        """Return the arguments that open the split of a configuration."""
        data = config.DATA
        split_files = {
            "train": (data.TRAIN_ANNOTATIONS, data.TRAIN_IMAGES),
            "val": (data.VAL_ANNOTATIONS, data.VAL_IMAGES),
        }
        files = split_files.get(split, (None, None))
        return data.DATA_PATH, split, cache_folder, *files, data.EXIF_ROTATE, data.SEARCH_IMAGES_RECURSIVELY

    @staticmethod
    def has_validation(data_path: str | None) -> bool:
        """Return whether the name of a file says that it is for validation."""
        return bool(_find_named_after(list_json_files(_folder_and_file(data_path)[0] or ""), "val"))

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "_stream": None}

    def identity(self, index: int) -> str:
        """Return the path of image ``index`` relative to the dataset's folder."""
        return os.path.normpath(os.path.join(self._below, self._index.paths.path(index)))

    def list_unannotated(self) -> list[str]:
        """Return the images in the folder that the annotations do not name."""
        annotated = {compose(os.path.normpath(self._index.paths.path(index))) for index in range(len(self))}
        return [name for name in list_image_names(self.root) if compose(name) not in annotated]

    def masks(self, index: int) -> list[Any]:
        """Return the masks of image ``index``, read from the annotation file."""
        return [self._mask(row) for row in self._index.get_objects(index)]

    def find_masked(self, index: int) -> np.ndarray:
        """Return which objects of image ``index`` have a mask in the file, not only a box, bool (n,)."""
        return self._index.get_objects(index)["bytes"] > 0

    def _mask(self, row: np.void) -> Any:
        if not row["bytes"]:
            return outline(row["box"].tolist())
        if self._stream is None:
            self._stream = open_regular(self._file, "rb")
        return segmentation_at(self._stream, int(row["start"]), int(row["bytes"]), int(row["id"]))


def _folder_and_file(data_path: str | None) -> tuple[str | None, str | None]:
    """Return the dataset's folder, and the training annotations if ``-data_path`` names that file."""
    path = data_path and os.path.abspath(os.path.expanduser(os.fspath(data_path)))
    if not path or not os.path.isfile(path):
        return data_path, None
    folder = os.path.dirname(path)
    return os.path.dirname(folder) if os.path.basename(folder).lower() == "annotations" else folder, path


def find_files(
    root: str,
    split: str,
    annotations: str | None,
    images: str | None,
    preferred: str = "instances",
    layout: str = _LAYOUT,
) -> tuple[str, str]:
    """Return a split's annotation file and the folder of its images, which may be configured.

    Of several files the one whose name begins with ``preferred`` is taken; ``layout`` is for messages.

    Raises:
        UserError: nothing matches, or several things do.
    """
    file = _find_by_name(root, annotations, _key(split, "ANNOTATIONS"), os.path.isfile, "file")
    file = file or _find_annotations(root, split, preferred, layout)
    folder = _find_by_name(root, images, _key(split, "IMAGES"), os.path.isdir, "folder")
    return file, folder or _find_folder(root, split, file)


def _key(split: str, part: str) -> str:
    """Return the key that names a part of a split; the keys of "val" serve all other splits."""
    return f"DATA.{split.upper()}_{part}" if split in SPLITS else f"-split=val DATA.VAL_{part}"


def _find_by_name(root: str, name: str | None, key: str, exists: Callable[[str], bool], kind: str) -> str | None:
    if name is None:
        return None
    path = os.path.join(root, name)
    if not exists(path):
        raise UserError(f"{key} {name}: there is no {kind} {path}")
    return path


def _find_annotations(root: str, split: str, beginning: str, layout: str) -> str:
    files = list_json_files(root)
    matches = _find_named_after(files, split)
    preferred = [file for file in matches if os.path.basename(file).startswith(beginning)] or matches
    if len(preferred) == 1:
        return preferred[0]
    if preferred:
        names = ", ".join(os.path.relpath(file, root) for file in preferred[:4])
        raise UserError(
            f"{root} has {len(preferred)} files of annotations for {split}: {names}; name one with "
            f"{_key(split, 'ANNOTATIONS')}"
        )
    unnamed = [file for file in files if is_coco(file) and not any(_find_named_after([file], word) for word in SPLITS)]
    if split == "train" and len(unnamed) == 1:
        return unnamed[0]
    if split not in SPLITS:
        require_split(split, [name for name in SPLITS if _find_named_after(files, name)], root)
    can_divide = split == "val" and (_find_named_after(files, "train") or len(unnamed) == 1)
    divide = ", or set DATA.VAL_FRACTION to split the training set" if can_divide else ""
    present = f"; there is {', '.join(os.path.relpath(file, root) for file in files[:4])}" if files else ""
    raise UserError(
        f"{root} has no file of {split} annotations{present}; name one with "
        f"{_key(split, 'ANNOTATIONS')}{divide}; expected a folder {layout}"
    )


def _find_named_after(files: Sequence[str], split: str) -> list[str]:
    """Return the files whose name, or else folder, contains the split's name: valid/_annotations.coco.json."""
    for part in (0, 1):
        matches = [file for file in files if names_split(Path(file).parts[-1 - part], split)]
        matches = [
            file for file in matches if not part or not any(names_split(Path(file).name, word) for word in SPLITS)
        ]
        if matches:
            return matches
    return []


def _find_folder(root: str, split: str, file: str) -> str:
    """Return the folder that contains the images of an annotation file."""
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
    folders += [os.path.join(parent, name) for parent in (os.path.dirname(file), root) for name in _BESIDE]
    folders = [folder for folder in dict.fromkeys(map(os.path.normpath, folders)) if os.path.isdir(folder)]
    hits = [sum(_has_file(folder, name) for name in names) for folder in folders]
    if not names:
        return folders[0]
    if not any(hits):
        found = next((folder for folder in folders if _are_base_names_meant(names, folder)), None)
        if found is not None:
            return found
        searched = ", ".join(os.path.relpath(folder, root) for folder in folders[:4])
        raise UserError(
            f"the images of {file}, such as {', '.join(names[:3])}, are not below {root} (searched {searched}): name "
            f"their folder with {_key(split, 'IMAGES')}, with paths relative to it, or set -data_path to one with both"
        )
    return folders[hits.index(max(hits))]


def _first_names(file: str) -> list[str]:
    """Return the file names of some images."""
    try:
        images = itertools.islice(elements(file, {"images": CocoImage}).get("images", ()), _PROBED)
        names = [file_name(image.value) for image in images]
    except (OSError, ValueError):  # reported when the whole file is read
        return []
    return [name for name in names if name is not None]


def _digest(kind: str, file: str, *options: object) -> bytes:
    """Return the SHA-256 of a file, and of its kind and the options that decide its index."""
    key = hashlib.sha256(f"{kind} {VERSION} {options}\n".encode("utf-8", "surrogateescape"))
    with readable(file), open_regular(file, "rb") as stream:
        for chunk in iter(lambda: stream.read(1 << 20), b""):
            key.update(chunk)
    return key.digest()


def read_coco(coco: CocoFile, folder: str, turned: bool | None, inside: Sequence[str] = ()) -> AnnotationSource:
    """Return the images, objects and categories of a file; objects that its ``has_owner`` excludes are skipped.

    Args:
        turned: whether boxes refer to the images after their EXIF rotation; None: only if the file gives no sizes. It
            decides how images without a size are measured.
        inside: folders that have to contain each image; empty: images may be anywhere.

    Raises:
        UserError: an image has no name, or boxes are not in pixels; the message names the file and the entry.
    """
    if _are_base_names_meant([file_name(image) for image in coco.images[:_PROBED]], folder):
        for image in coco.images:
            coco.odd.note("image", "whose folder in file_name does not exist: the file's name is used", image.file_name)
            image.file_name = os.path.basename(file_name(image) or "")
    places = [os.path.join(parent, "") for parent in inside]
    paths = [_path(coco, number, folder, places) for number in range(len(coco.images))]
    _, first, path_indices = np.unique(paths, return_index=True, return_inverse=True)
    ids = np.array([image.id for image in coco.images])
    coco.odd.note_all("image", "with the same file as another image", ids[first[path_indices] != np.arange(len(ids))])
    images, sizes = np.zeros(len(ids), IMAGE), coco.sizes
    is_turned, unknown, note = fill_in_sizes(
        sizes, lambda row: os.path.join(folder, os.fsdecode(paths[row])), turned, coco.file, coco.odd
    )
    images["id"], images["height"], images["width"] = ids, sizes[:, 0], sizes[:, 1]
    coco.compare_mask_sizes(sizes)
    coco.odd.note_all("image", f"without height or width, both measured{note}", ids[unknown])
    objects = np.zeros(len(coco.numbers), OBJECT)
    objects["box"], objects["area"] = np.array(coco.boxes).reshape(-1, 4), coco.known_areas
    for field, column in zip(("id", "label", "is_crowd", "bytes", "start"), coco.columns()):
        objects[field] = column
    objects, owners = objects[coco.has_owner], np.array(coco.owners)[coco.has_owner]
    _check_boxes(coco, objects, images[owners])
    has_masks = bool((objects["bytes"] > 0).any())
    if has_masks:
        coco.odd.note_all("object", "without a mask: its box is used", objects["id"][objects["bytes"] == 0])
    names = [category.name for category in coco.categories.values()]
    facts = SourceFacts(
        names,
        list(map(int, coco.categories)),
        has_masks,
        coco.has_annotations,
        coco.odd.lines(),
        is_turned,
        broken_images=np.unique(owners[np.array(coco.broken, bool)[coco.has_owner]]).tolist(),
    )
    return AnnotationSource(facts, paths, images, owners, objects)


def _are_base_names_meant(names: Sequence[str | None], folder: str) -> bool:
    """Return whether a folder has all of these images without the folders in their names, and none with them.

    Label Studio's exports name folders of the computer that it ran on.
    """
    known = [name for name in names if name and os.path.basename(name) != name]
    return bool(known) and all(
        _has_file(folder, os.path.basename(name)) and not _has_file(folder, name) for name in known
    )


def _has_file(folder: str, name: str) -> bool:
    return os.path.isfile(find_spelling(os.path.join(folder, name)))


def _path(coco: CocoFile, number: int, folder: str, inside: Sequence[str]) -> bytes:
    """Return the file of an image, by its position; it has to be below one of ``inside`` if there are any."""
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
            expected = f"expected an image below {inside[0]}; set DATA.SEARCH_IMAGES_RECURSIVELY true to allow others"
            raise coco.error(number, entry, "file_name", expected)
    if entry.file_name is None:
        coco.odd.note("image", "without file_name: the end of coco_url is used", entry.id)
    elif "\\" in str(entry.file_name):
        coco.odd.note("image", "whose file_name has backslashes, read as slashes", entry.id)
    return path


def _check_boxes(coco: CocoFile, objects: np.ndarray, images: np.ndarray) -> None:
    """Note boxes outside of their images; raise UserError if boxes cannot be x, y, width, height in pixels."""
    objects, images = (rows[(objects["box"][:, 2:] > 0).all(axis=1)] for rows in (objects, images))
    sizes = np.stack([images["height"], images["width"]], axis=1).astype(np.int64)
    require_sides(f"{coco.file}: bbox", objects["box"], sizes)
    note_boxes(coco.odd, objects["id"], objects["box"], sizes)
