"""Images with boxes in Pascal VOC's layout: an XML file for each image, and lists of the images of each split."""

import math
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
from tqdm import tqdm

from ....core.runtime.errors import UserError
from ....core.runtime.printing import count
from ....core.runtime.spelling import compose
from ....core.runtime.text_files import read_bytes
from ....core.tasks.dataset import refuse_split
from ...data.annotated_files import list_image_names, map_images_by_stem, stamp
from ...data.box_layouts import VOC_ANNOTATIONS, VOC_IMAGES
from ...data.data_warnings import DataWarnings
from ...data.formats import SPLIT_WORDS, list_folders, list_names, split_in_name
from ...data.image_dataset import read_class_names
from ...data.listed_names import find_listed_name, read_name_lines, remove_image_suffix
from ...data.reading import require_folder
from ..odd_objects import CLIPPED, require_pixels
from ..settings import EDGES, PIXELS, DetectionSettings
from .indexed_images import (
    OBJECT,
    VERSION,
    AnnotationSource,
    IndexedDetectionImages,
    SourceFacts,
    ensure_annotation_index,
)
from .stored_sizes import fill_in_sizes

_LARGEST_BYTES = 1 << 24
_TRUE = ("1", "true", "yes")
_MARKS = ("-1", "0", "1")  # of an image that does not show a class, shows only difficult ones, shows it
_DIFFICULT = "marked as difficult: skipped in training and ignored in the evaluation, like COCO's crowds"
_FROM_0 = (
    "with corners at 0 or -1, although VOC counts pixels from 1: if these are distances from the image's edges, set "
    f"DATA.VOC_CORNERS {EDGES}"
)
_LAYOUT = (
    "with Annotations/*.xml, JPEGImages/ and ImageSets/Main/train.txt and val.txt (VOCdevkit/VOC2007, for example), or "
    "with train/ and val/ that contain images and their .xml files"
)


class VocPart(NamedTuple):
    """Images and their annotations, for example of one year."""

    annotations: str  # folder of the XML files
    images: str  # folder of the images
    lists: str | None  # folder of the lists of splits, or None
    name: str  # name in messages


class Voc(IndexedDetectionImages):
    """Images whose boxes are in Pascal VOC's XML files.

    Objects marked as difficult are treated like COCO's crowds: they are not learned, and detections of them are neither
    right nor wrong, as in VOC's own evaluation. Categories are the sorted names in all XML files, or the lines of
    ``classes.txt``; their ids start at 1.
    """

    layout = _LAYOUT

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path,
        chosen: str | None = None,
        turned: bool | None = None,
        corners: str = PIXELS,
    ) -> None:
        """Open ``split``: the images of the list or of the folder with this name.

        Args:
            chosen: name of another list, such as "trainval".
            turned: whether boxes refer to the images after their EXIF rotation; None: only if no file gives a size.
            corners: ``PIXELS``: corners count pixels from 1 and are inside the box, as in VOC's rules; ``EDGES``: they
                are distances from the image's edges.

        Raises:
            UserError: the folder has another layout, a file is missing, or a file is not in VOC's format.
        """
        self.split = split
        root = require_folder(data_path, "voc", _LAYOUT)
        stems, notices = _stems(root, chosen or split)
        all_parts = list_parts(root)
        annotated = [os.path.join(part.annotations, name) for part in all_parts for name in _xml_files(part)]
        names = read_class_names(root)
        split_images = "\n".join(f"{part.annotations} {stem}" for part, stem in stems)
        key = stamp(f"voc {VERSION} {names} {turned} {corners}\n{split_images}\n", annotated)
        index = ensure_annotation_index(
            cache_folder, f"voc-{split}", key, lambda: _read(root, stems, annotated, names, turned, corners)
        )
        self._parts = list(dict.fromkeys(each for each, _ in stems))
        super().__init__(root, index, "its XML file", index.about.is_turned)
        part_names = ", ".join(dict.fromkeys(part.name for part, _ in stems))
        self.notices = [f"{split}: {count(len(stems), 'image')} of {part_names}", *notices, *self.notices]

    @classmethod
    def open(cls, config: DetectionSettings, split: str, cache_folder: Path) -> "Voc":
        """Open the split of a configuration."""
        data = config.DATA
        lists = {"train": data.TRAIN_ANNOTATIONS, "val": data.VAL_ANNOTATIONS}
        return cls(data.DATA_PATH, split, cache_folder, lists.get(split), data.EXIF_ROTATE, data.VOC_CORNERS)

    @staticmethod
    def has_validation(data_path: str | None) -> bool:
        """Return whether there is a list, or a folder, of images for validation."""
        return bool(_find_stems(list_parts(require_folder(data_path, "voc", _LAYOUT)), "val")[0])

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "_parts": ()}

    def list_unannotated(self) -> list[str]:
        """Return the images in the folders that have no annotations, relative to the dataset's folder."""
        listed = {self.describe(index) for index in range(len(self))}
        paths = []
        for part in self._parts:
            annotated = {name[: -len(".xml")] for name in _xml_files(part)}
            part_paths = (os.path.join(part.images, name) for name in list_image_names(part.images))
            paths += [path for path in part_paths if os.path.splitext(os.path.basename(path))[0] not in annotated]
        return [os.path.relpath(path, self.root) for path in paths if path not in listed]


def list_parts(root: str) -> list[VocPart]:
    """List the parts in a folder: one, or one for each year or split."""
    for folder in (root, os.path.join(root, "VOCdevkit")):
        candidates = [_part(folder, "")]
        inner = ((path, os.path.basename(path)) for path in list_folders(folder))
        reserved = VOC_ANNOTATIONS + VOC_IMAGES
        candidates += [_part(path, name) for path, name in inner if name not in reserved]
        parts = [part for part in candidates if part is not None]
        if parts:
            return parts
    if any(file.lower().endswith(".xml") for file in list_names(root)):
        return [VocPart(root, root, None, os.path.basename(root))]
    return []


def _part(folder: str, name: str) -> VocPart | None:
    """Return the part in a folder, if there is one."""
    part_name = name or os.path.basename(folder)
    annotations = _first_existing(folder, VOC_ANNOTATIONS)
    if annotations and any(file.lower().endswith(".xml") for file in list_names(annotations)[:50]):
        lists = os.path.join(folder, "ImageSets", "Main")
        lists = lists if os.path.isdir(lists) else os.path.join(folder, "ImageSets")
        images = _first_existing(folder, VOC_IMAGES) or folder
        has_lists = any(file.lower().endswith(".txt") for file in list_names(lists)) if os.path.isdir(lists) else False
        return VocPart(annotations, images, lists if has_lists else None, part_name)
    if os.path.isdir(folder) and name and any(file.lower().endswith(".xml") for file in list_names(folder)[:50]):
        return VocPart(folder, folder, None, part_name)
    return None


def _first_existing(folder: str, names: tuple[str, ...]) -> str | None:
    return next((path for path in (os.path.join(folder, name) for name in names) if os.path.isdir(path)), None)


def _xml_files(part: VocPart) -> list[str]:
    return [name for name in list_names(part.annotations) if name.lower().endswith(".xml")]


def _find_stems(parts: list[VocPart], split: str) -> tuple[list[tuple[VocPart, str]], list[str]]:
    """Return the part and the name without suffix of each image of a split, and lines on skipped images.

    There are no images if nothing has the name of the split.
    """
    words = SPLIT_WORDS.get(split, (split,))
    listed = [
        (part, os.path.join(part.lists, name))
        for part in parts
        if part.lists
        for word in words
        for name in list_names(part.lists)
        if os.path.splitext(name)[0] == word and name.lower().endswith(".txt")
    ] or _find_only_list(parts, split)
    if listed:
        pairs, notices = list[tuple[VocPart, str]](), list[str]()
        for part, file in listed:
            annotated = {compose(name[: -len(".xml")]) for name in _xml_files(part)}
            part_stems, num_skipped = read_list(file, annotated)
            pairs += [(part, stem) for stem in part_stems]
            if num_skipped:
                notices.append(f"{count(num_skipped, 'image')} of {file} skipped: marked -1, without the class")
        return pairs, notices
    named = [part for part in parts if part.name.lower() in words or split_in_name(part.name) == split]
    folder_parts = [part for part in named if not part.lists]
    if split == "train" and len(parts) == 1 and not parts[0].lists:
        folder_parts = parts  # one folder of images, which DATA.VAL_FRACTION may divide
    return [(part, name[: -len(".xml")]) for part in folder_parts for name in _xml_files(part)], []


def _find_only_list(parts: list[VocPart], split: str) -> list[tuple[VocPart, str]]:
    """Return, for "train", the only list of all parts if its name names no split, such as CVAT's default.txt."""
    if split != "train" or any(not part.lists or split_in_name(part.name) for part in parts):
        return []
    listed = [(part, os.path.join(part.lists or "", name)) for part in parts for name in _list_splits(part)]
    return listed if len(listed) == 1 and split_in_name(Path(listed[0][1]).stem) is None else []


def _list_splits(part: VocPart) -> list[str]:
    """Return the lists of images of a part that are not of a class."""
    return [name for name in list_names(part.lists or "") if name.lower().endswith(".txt") and "_" not in name]


def _stems(root: str, split: str) -> tuple[list[tuple[VocPart, str]], list[str]]:
    """Return what ``_find_stems`` does; raise UserError if there are no images."""
    parts = list_parts(root)
    if not parts:
        raise UserError(f"{root} has no XML annotations; expected a folder {_LAYOUT}")
    stems, notices = _find_stems(parts, split)
    if stems:
        return stems, notices
    splits = [name[: -len(".txt")] for part in parts if part.lists for name in _list_splits(part)]
    splits = splits or [part.name for part in parts if not part.lists]
    can_divide = split == "val" and bool(_find_stems(parts, "train")[0])
    advice = "; set DATA.VAL_FRACTION to split the training set" if can_divide else ""
    advice += (
        "; set DATA.TRAIN_ANNOTATIONS and DATA.VAL_ANNOTATIONS to use other lists, such as trainval" if splits else ""
    )
    refuse_split(split, [name for name in sorted(set(splits)) if name != split], f"voc at {root}", advice)


def read_list(file: str, annotated: Collection[str]) -> tuple[list[str], int]:
    """Read the images of a list: names of the ``annotated`` images, without suffix and in composed form.

    A line is a name, or a name and a mark: -1, 0 or 1, as in VOC's lists of a class. In such a list, called
    ``CLASS_SPLIT.txt``, -1 means that the image does not show the class: it is skipped. In the list of a split, all
    images are of the split. Also return the number of skipped images. A line that names no annotated image is returned
    without folder and suffix.
    """
    is_of_class = "_" in os.path.basename(file)
    stems, num_skipped = list[str](), 0
    for line in read_name_lines(file):
        stem, (_, *mark) = _find_stem(line, annotated), line.rsplit(None, 1)
        if stem is None and mark and mark[0] in _MARKS:
            if is_of_class and mark[0] == "-1":
                num_skipped += 1
                continue
            name = line.rstrip()[: -len(mark[0]) - 1]
            stem = _find_stem(name, annotated) or _base_stem(name.strip())
        stems.append(_base_stem(line.strip()) if stem is None else stem)
    if len(set(stems)) < len(stems):
        duplicate = next(stem for stem in stems if stems.count(stem) > 1)
        raise UserError(f"{file} lists {duplicate} twice: list each image once")
    return stems, num_skipped


def _find_stem(text: str, annotated: Collection[str]) -> str | None:
    """Return the annotated image that a text names, with or without the folder that some lists contain."""
    texts = (text, os.path.basename(text), os.path.basename(text.replace("\\", "/")))
    return next(filter(None, (find_listed_name(each, annotated) for each in texts)), None)


def _base_stem(path: str) -> str:
    return remove_image_suffix(os.path.basename(path.replace("\\", "/")))


def _without_suffix(file: str) -> str:
    """Return the path of an XML file as lists name it: some programs write .XML."""
    return compose(os.path.splitext(file)[0])


def _read(
    root: str,
    stems: list[tuple[VocPart, str]],
    annotated: list[str],
    names: list[str] | None,
    turned: bool | None,
    corners: str,
) -> AnnotationSource:
    """Read the annotations of the split, and the categories of all XML files."""
    found_labels: dict[str, int] = {}  # names of categories, in order of appearance
    odd = DataWarnings()
    images = {piece.images: map_images_by_stem(piece.images) for piece in dict.fromkeys(each for each, _ in stems)}
    positions = {compose(os.path.join(piece.annotations, base)): at for at, (piece, base) in enumerate(stems)}
    missing = [f"{path}.xml" for path in sorted(set(positions).difference(map(_without_suffix, annotated)))]
    if missing:
        verb, total = ("are", f"them ({len(missing):,} of {len(stems):,} are missing)") if missing[1:] else ("is", "it")
        raise UserError(f"{', '.join(missing[:3])} {verb} missing, but a list of the split names {total}")
    paths, sizes, objects = [""] * len(stems), np.zeros((len(stems), 2), np.int64), [np.zeros(0, OBJECT)] * len(stems)
    for file in tqdm(annotated, desc="reading XML", unit="file", delay=1.0, disable=None, leave=False):
        tree = _tree(file)
        _learn_names(file, tree, names, found_labels)
        position = positions.get(_without_suffix(file))
        if position is not None:
            part, stem = stems[position]
            paths[position] = os.path.join(part.images, _image(stem, tree, images[part.images]))
            sizes[position] = _side(tree, "height"), _side(tree, "width")
            objects[position] = _objects(file, tree, found_labels, 1 if corners == PIXELS else 0, odd)
    is_turned, unknown, note = fill_in_sizes(sizes, paths.__getitem__, turned, root, odd)
    odd.note_all("image", f"without a size in the XML file, measured{note}", [paths[row] for row in unknown])
    rows, first = np.concatenate([np.zeros(0, OBJECT), *objects]), 1 if corners == PIXELS else 0
    written = np.concatenate([rows["box"][:, :2] + first, rows["box"][:, :2] + rows["box"][:, 2:]], axis=1)
    require_pixels(root, written, np.repeat(sizes, [len(rows) for rows in objects], axis=0))
    for path, size, rows in zip(paths, sizes, objects):
        low, high = rows["box"][:, :2], rows["box"][:, :2] + rows["box"][:, 2:]
        is_clipped = (low < -1).any(axis=1) | (high > size[::-1] + 1).any(axis=1)
        odd.note_all("object", CLIPPED, [path] * int(is_clipped.sum()))
    ordered = names if names is not None else sorted(found_labels)
    if not ordered:
        raise UserError(f"{root} has no XML file with an object; expected boxes in <object> elements")
    facts = SourceFacts(ordered, list(range(1, len(ordered) + 1)), False, True, odd.lines(), is_turned)
    source = AnnotationSource.from_files(facts, root, paths, [base for _, base in stems], sizes, objects)
    label_map = np.array([ordered.index(name) for name in found_labels], dtype=np.int64)
    source.objects["label"] = label_map[source.objects["label"]]
    return source


def _tree(file: str) -> Element:
    try:
        return ElementTree.fromstring(read_bytes(file, _LARGEST_BYTES))  # its expat rejects entity expansion attacks
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    except (ElementTree.ParseError, LookupError) as error:  # LookupError: unknown encoding
        raise UserError(f"{file} is not an annotation: it is not XML: {error}") from error
    except ValueError as error:
        raise UserError(f"{file} is not an annotation: {error}") from error


def _image(stem: str, tree: Element, files: dict[str, str]) -> str:
    """Return the file of an image: by its name, else as its annotation gives it, else as in VOC."""
    annotated_name = os.path.basename((tree.findtext("filename") or "").strip().replace("\\", "/"))
    stems = compose(stem), compose(os.path.splitext(annotated_name)[0])
    return files.get(stems[0]) or files.get(stems[1]) or annotated_name or f"{stem}.jpg"


def _learn_names(file: str, tree: Element, allowed_names: list[str] | None, found_labels: dict[str, int]) -> None:
    """Add the categories of a file to ``found_labels``."""
    for entry in tree.iter("object"):
        name = _name(entry)
        if not name:
            raise UserError(f"{file}: an object has no name; expected the name of its category")
        if allowed_names is not None and name not in allowed_names:
            raise UserError(f"{file}: category '{name}' is not in classes.txt; add it there, or correct the file")
        found_labels.setdefault(name, len(found_labels))


def _objects(file: str, tree: Element, label_map: dict[str, int], first: int, odd: DataWarnings) -> np.ndarray:
    """Return rows of OBJECT; ``first`` is the number of the first pixel."""
    rows = []
    for entry in tree.iter("object"):
        corners = [_number(entry, f"bndbox/{side}", file) for side in ("xmin", "ymin", "xmax", "ymax")]
        x, y = corners[0] - first, corners[1] - first
        width, height = corners[2] - x, corners[3] - y
        if first and min(corners[:2]) in (0, -1):
            odd.note("object", _FROM_0, file)
        if corners[2] < corners[0] or corners[3] < corners[1]:
            odd.note("object", "whose last corner is before the first, skipped in training", file)
            width, height = max(width, 0.0), max(height, 0.0)
        is_difficult = (entry.findtext("difficult") or "").strip().lower() in _TRUE
        if is_difficult:
            odd.note("object", _DIFFICULT, file)
        rows.append(((x, y, width, height), width * height, 0, label_map[_name(entry)], is_difficult, 0, 0))
    return np.array(rows, OBJECT)


def _name(entry: Element) -> str:
    """Return the category of an object."""
    return compose((entry.findtext("name") or "").strip())


def _side(tree: Element, name: str) -> int:
    """Return a side in pixels; 0 if the file has no valid number."""
    try:
        value = float(tree.findtext(f"size/{name}") or 0)
    except ValueError:
        return 0
    return int(value) if 0 < value < 2**31 else 0


def _number(entry: Element, path: str, file: str) -> float:
    """Return a number of an object; raise UserError if it is missing or invalid."""
    text = entry.findtext(path)
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{file}: object '{_name(entry)}' has {path} {text!r}: expected a number of pixels")
    return value
