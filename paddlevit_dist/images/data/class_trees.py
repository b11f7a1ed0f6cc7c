"""Where class folders are: below folders of splits, or in the one folder that an archive unpacks; without label maps.

A folder is searched from its top: folders of splits, by the names that people give them; else its folders are classes,
but for label maps of others; if only one has images, the same holds for that one.
"""

import itertools
import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import is_folder, read_regular, readable
from ...core.runtime.spelling import compose
from ...core.runtime.text_files import read_text
from .formats import (
    SPLIT_WORDS,
    find_hint,
    get_suffix,
    iterate_entries,
    list_folders,
    list_names,
    readable_suffixes,
    split_in_name,
)
from .reading import UnreadableImage, open_image

_DEEPEST = 4  # levels below a folder that are searched for an image
_MOST_NAMES = 20_000  # read from a folder; it may have a million
_MOST_COMPARED = 6  # folders that are searched for label maps of each other's images
_FEWEST_COPIED = 3  # folders, one of them a copy of the others
_PROBED = 20  # names of images that are looked for in another folder
_DECODED = 3  # images of a folder that show whether it has label maps
_FEW_LEVELS, _MOST_PIXELS = 16, 0.95  # gray levels that have this share of the pixels of a label map
_MASK_WORD = re.compile(rb"mask|label|gt|seg", re.IGNORECASE)
_MASK_NAME = re.compile(r"(.+?)[ _-]?(?:masks?|labels?|gt|seg|segmentation)(?:_\d+)?", re.IGNORECASE)
_DICOM_SUFFIXES = (".dcm", ".dicom", ".ima")  # slices of a volume


class ClassTree(NamedTuple):
    """Where the class folders of a folder are; all paths are relative to it.

    Attributes:
        top: folder with the splits or with the class folders; "" if it is the folder itself.
        splits: split -> its folder.
        labeled: the splits with class folders; images of other splits can be predicted, but not evaluated.
    """

    top: str
    splits: dict[str, str]
    labeled: frozenset[str] = frozenset()


def find_class_tree(root: str) -> ClassTree:
    """Find the folders of splits, or else the folder of the class folders, in ``root`` or the one folder inside it.

    A name that is exactly a split's word comes first, in any case, such as Train or valid; then one with words for a
    set of images, such as seg_test; then one that contains the word, if classes below it are also below the folder of
    another split, or all folders have such names. A folder with nothing but one folder of class folders stands for that
    one. Folders with a split's word are classes, like the others next to them, if none has classes below it.

    Raises:
        UserError: two folders may be the same split, or a folder cannot be listed.
    """
    for top, names in _descend(root, ""):
        folders = [name for name in names if has_image(os.path.join(root, top, name))]
        tree = _find_splits(root, top, names, folders)
        if tree.splits or len(folders) > 1:
            return tree
    return ClassTree("", {})


def list_class_folders(root: str, folder: str = "") -> list[str]:
    """Return the sorted names of the folders in a folder, without label maps of the others' images, and copies.

    A copy has folders of other folders' names only, as archives have them that were packed twice.
    """
    paths = list_folders(os.path.join(root, folder) if folder else root, may_be_absent=False)
    masks, names = find_label_map_folders(paths), set(map(os.path.basename, paths))

    def is_copy(path: str) -> bool:
        if len(paths) < _FEWEST_COPIED or split_in_name(os.path.basename(path)) or has_own_image(path):
            return False
        inner = list_folders(path, most=_MOST_NAMES)
        return len(inner) > 1 and set(map(os.path.basename, inner)) <= names - {os.path.basename(path)}

    return [os.path.basename(path) for path in paths if path not in masks and not is_copy(path)]


def find_inner_folder(root: str) -> str:
    """Return the one folder that an archive has unpacked into; "" if there are others, or it is that of a split."""
    inner = list_folders(root, most=_MOST_NAMES)
    return inner[0] if len(inner) == 1 and split_in_name(os.path.basename(inner[0])) is None else ""


def find_listed_classes(folder: str) -> dict[str, str]:
    """Return the class of each image that a list in a folder names, as Tiny ImageNet's val_annotations.txt; or none.

    Paths of images are relative to the folder. A line is the name of an image, in the folder or in ``images``, a tab,
    and its class; more columns are not read. The classes of a damaged list are none.
    """
    for name in list_names(folder, may_be_absent=True, most=_MOST_NAMES):
        if not name.lower().endswith("_annotations.txt"):
            continue
        file = os.path.join(folder, name)
        with readable(file):
            lines = [line.split("\t") for line in read_text(file).splitlines() if line.strip()]
        is_list = bool(lines) and all(len(words) > 1 and "/" not in words[0] for words in lines)
        for place in ("images", "") if is_list else ():
            if os.path.isfile(os.path.join(folder, place, lines[0][0])):
                return {os.path.join(place, words[0]): compose(words[1].strip()) for words in lines}
    return {}


def _find_splits(root: str, top: str, names: Sequence[str], folders: Sequence[str]) -> ClassTree:
    """Find the folders of splits among ``names``; ``folders`` are the names of those with images."""
    ranked: dict[str, list[tuple[int, int, str]]] = {}  # split -> rank of a name, place of its word, name
    for name in names:
        split = split_in_name(name, is_whole=False)
        if split is None:
            continue
        words = SPLIT_WORDS[split]
        rank = 0 if name.lower() in words else 1 if split_in_name(name) else 2
        if rank == 0 or name in folders:
            ranked.setdefault(split, []).append((rank, words.index(name.lower()) if rank == 0 else 0, name))
    levels = {name: list(_descend(root, os.path.join(top, name))) for names in ranked.values() for *_, name in names}
    classes = {name: {compose(each) for _, found in levels[name] for each in found} for name in levels}
    is_any_split = len(folders) > 1 and set(folders) <= set(levels)
    if not is_any_split:
        for split, candidates in ranked.items():
            others = [each for own, rest in ranked.items() if own != split for each in rest]
            shared = set[str]().union(*(classes[name] for *_, name in others))
            ranked[split] = [each for each in candidates if each[0] < 2 or classes[each[2]] & shared]
    found: dict[str, str] = {}
    for split, candidates in ranked.items():
        best = [each for each in sorted(candidates) if each[0] == min(candidates)[0]]
        alike = [name for rank, _, name in best if rank and classes[name]]
        if len(alike) > 1:
            raise UserError(
                f"{os.path.join(root, top)} has {' and '.join(alike)}, which may all be the {split} images: name one "
                f"of them {split}, and move the others away"
            )
        if best:
            found[split] = alike[0] if alike else best[0][2]
    if len(found) == 1 and set(folders) - set(levels) and not any(classes[name] for name in found.values()):
        return ClassTree(top, {})  # a class, next to others, such as train and bus
    train: set[str] = classes.get(found.get("train", ""), set())
    splits, labeled = dict[str, str](), set[str]()
    for split, name in found.items():
        several = [level for level in levels[name] if len(level[1]) > 1] or levels[name]
        known = [level for level in levels[name] if split != "train" and train.intersection(map(compose, level[1]))]
        splits[split], inside = (known or several)[0]
        is_labeled = inside and not (train and len(inside) == 1 and not known and split != "train")
        if is_labeled or train & set(find_listed_classes(os.path.join(root, splits[split])).values()):
            labeled.add(split)
    return ClassTree(top, splits, frozenset(labeled))


def _descend(root: str, folder: str) -> Iterator[tuple[str, list[str]]]:
    """Yield a folder and the names of the class folders in it, then the same of the one with images in it, if any."""
    while True:
        names = list_class_folders(root, folder)
        inner = [name for name in names[:_MOST_COMPARED] if has_image(os.path.join(root, folder, name))]
        is_last = len(inner) != 1 or len(names) > _MOST_COMPARED or has_own_image(os.path.join(root, folder, inner[0]))
        is_twice = is_last and inner == [os.path.basename(folder)]  # test/test/1.jpg, as archives unpack
        yield folder, [] if is_twice else names
        if is_last:
            return
        folder = os.path.join(folder, inner[0])


def has_image(folder: str, deepest: int = _DEEPEST) -> bool:
    """Return whether a folder has images up to ``deepest`` levels down, including formats that cannot be opened."""
    if has_own_image(folder):
        return True
    return deepest > 0 and any(has_image(path, deepest - 1) for path in list_folders(folder, most=_MOST_NAMES))


def has_own_image(folder: str) -> bool:
    """Return whether images are directly in a folder."""
    return next(_iterate_images(folder), None) is not None


def _iterate_images(folder: str) -> Iterator[os.DirEntry[str]]:
    for entry in iterate_entries(folder, may_be_absent=True, most=_MOST_NAMES):
        suffix = get_suffix(os.fsencode(entry.name))
        is_image = suffix in readable_suffixes() or find_hint(suffix.decode("ascii"))
        if is_image and not entry.name.lower().endswith(_DICOM_SUFFIXES) and not is_folder(entry):
            yield entry


def find_label_map_folders(folders: Sequence[str]) -> dict[str, str]:
    """Return the folders with label maps of the images in another of them, and this: equal names, few gray levels."""
    if not 1 < len(folders) <= _MOST_COMPARED:
        return {}
    images = {folder: _collect_images(folder) for folder in folders}
    probes = {folder: list(itertools.islice(files, _PROBED)) for folder, files in images.items()}
    found = {}
    for masks, photos in itertools.permutations(folders, 2):
        stems = [_unmask(stem) if stem not in images[photos] else stem for stem in probes[masks]]
        pairs = [images[photos][stem] for stem in stems if stem in images[photos]]
        if stems and len(pairs) == len(stems) and _are_label_maps(images[masks].values(), pairs):
            found[masks] = photos
    return found


def may_be_label_maps(folder: str, photos: str) -> bool:
    """Return whether images in a folder have few gray levels, not only one, and are as many as in folder ``photos``."""
    maps = _collect_images(folder)
    levels = [_count_levels(path) for path in itertools.islice(maps.values(), _DECODED)]
    return len(maps) == len(_collect_images(photos)) and all(levels) and max(levels, default=0) > 1


def find_label_map_files(paths: Collection[bytes], root: str) -> set[bytes]:
    """Return the label maps among the images of a class: in a folder next to the images, or named as image_mask."""
    if len({path.rpartition(b"/")[0] for path in paths}) < 2 and not _MASK_WORD.search(b"\0".join(paths)):
        return set()
    folders: dict[str, dict[str, str]] = {}
    for path in map(os.fsdecode, paths):
        folder, name = os.path.split(path)
        folders.setdefault(folder, {})[os.path.splitext(name)[0]] = os.path.join(root, path)
    found = set[str]()
    masks = find_label_map_folders([os.path.join(root, folder) for folder in folders])
    for folder, files in folders.items():
        if os.path.join(root, folder) in masks:
            found.update(files.values())
            continue
        named = {stem: file for stem, file in files.items() if _unmask(stem) != stem and _unmask(stem) in files}
        if named and _are_label_maps(named.values(), [files[_unmask(stem)] for stem in named]):
            found.update(named.values())
    return {path for path in paths if found and os.path.join(root, os.fsdecode(path)) in found}


def _unmask(stem: str) -> str:
    match = _MASK_NAME.fullmatch(stem)
    return match[1] if match else stem


def _collect_images(folder: str) -> dict[str, str]:
    """Return the first images in a folder, and those below it, by their names without suffix."""
    found, folders = dict[str, str](), [folder]
    for place in folders:
        found.update((os.path.splitext(entry.name)[0], entry.path) for entry in _iterate_images(place))
        if len(found) >= _MOST_NAMES or len(folders) >= _MOST_COMPARED:
            break
        folders += list_folders(place, most=_MOST_NAMES)
    return found


def _are_label_maps(masks: Collection[str], photos: Collection[str]) -> bool:
    """Return whether the first of ``masks`` have few gray levels, and the first of ``photos`` have not."""
    levels = [[_count_levels(path) for path in itertools.islice(paths, _DECODED)] for paths in (masks, photos)]
    return all(levels[0]) and not any(levels[1])


def _count_levels(path: str) -> int:
    """Return the number of gray levels of a label map; 0 if an image has many, colors, or cannot be read."""
    try:
        image = open_image(read_regular(path), path)
        pixels = np.asarray(image if image.mode in ("1", "L", "P", "I;16", "I") else image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, UnreadableImage):  # the dataset reports the damage
        return 0
    if pixels.ndim == 3:
        if (pixels != pixels[..., :1]).any():
            return 0
        pixels = pixels[..., 0]
    counts = np.sort(np.unique(pixels, return_counts=True)[1])
    return len(counts) if counts[-_FEW_LEVELS:].sum() >= _MOST_PIXELS * pixels.size else 0
