"""Pair the images of a split with their label maps, in a layout that fits."""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from ...core.runtime.errors import UserError
from ...core.runtime.spelling import compose
from ...core.tasks.dataset import refuse_split
from .formats import SPLIT_WORDS, is_hidden, walk_files
from .listed_names import has_image_suffix
from .map_layouts import ENDS, MatchedLayout, find_split_folders, list_files
from .map_lists import read_list, read_pairs


class LabelMapPairs(NamedTuple):
    """The images of a split and the label map of each; "" if an image has none."""

    images: list[str]
    labels: list[str]
    notices: list[str]


def find_pairs(match: MatchedLayout, split: str) -> LabelMapPairs:
    """Pair the images of a split and their label maps, sorted; a ``UserError`` if there are none or one is missing."""
    layout, top = match
    folders = find_split_folders(layout, top, split)
    files = list_files(layout, top, split) if layout.lists else []
    if folders is None or (layout.lists and not files):
        _refuse_split(match, split)
    if layout.lists and not layout.images:
        rows, notices = read_pairs(files[0], top)
        return LabelMapPairs([image for image, _ in rows], [label for _, label in rows], notices)
    images, labels = (_files(folder, suffix) for folder, suffix in zip(folders, (None, layout.end)))
    images = {stem.removesuffix(layout.image_end): name for stem, name in images.items()}
    if layout.is_flat:
        images = _flatten(images, folders[0])
    end = "" if layout.end else _find_label_end(images, labels, folders[0] == folders[1])
    if end:
        images = {stem: name for stem, name in images.items() if folders[0] != folders[1] or not stem.endswith(end)}
        labels = {stem.removesuffix(end): name for stem, name in labels.items() if stem.endswith(end)}
    if files:
        stems = read_list(files[0], images, labels, folders)
        notices = []
    else:
        stems, notices = _match(split, images, labels, folders)
    expected = layout.published.get(split, len(stems))
    if len(stems) != expected:
        notices.append(f"{split}: {len(stems):,} images; the published {layout.dataset} has {expected:,}")
    image_files = [os.path.join(folders[0], images[stem]) for stem in stems]
    return LabelMapPairs(image_files, [os.path.join(folders[1], labels[stem]) for stem in stems], notices)


def _refuse_split(match: MatchedLayout, split: str) -> NoReturn:
    """Raise the ``UserError`` about a split without folders or list."""
    layout, top = match
    existing = [name for name in SPLIT_WORDS if find_split_folders(layout, top, name)]
    existing = [name for name in existing if not layout.lists or list_files(layout, top, name)]
    helps = split == "val" and "train" in existing
    remark = "; set DATA.VAL_FRACTION to split the training set" if helps else ""
    refuse_split(split, [name for name in existing if name != split], f"{layout.dataset} at {top}", remark)


def _files(folder: str, end: str | None) -> dict[str, str]:
    """List the files below a folder with this end, or the images: relative path without the end -> relative path."""

    def refuse(place: bytes, reason: str) -> None:
        raise UserError(f"{os.fsdecode(place)}: {reason}")

    paths: dict[str, str] = {}
    for path in sorted(entry.path for entry in walk_files(os.fsencode(folder), refuse) if not is_hidden(entry.name)):
        name = os.fsdecode(path).removeprefix(f"{folder}{os.sep}")
        if not (name.lower().endswith(end.lower()) if end else has_image_suffix(name)):
            continue
        stem = compose(name[: -len(end)] if end else os.path.splitext(name)[0])
        if stem in paths:
            raise UserError(f"{folder} has {paths[stem]} and {name} of the same name; rename one of them")
        paths[stem] = name
    return paths


def _flatten(names: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return files by their names without folders; a ``UserError`` if two have one name."""
    flat: dict[str, str] = {}
    for stem, name in names.items():
        if (place := os.path.basename(stem)) in flat:
            raise UserError(f"{folder} has {flat[place]} and {name} of the same name; rename one of them")
        flat[place] = name
    return flat


def _find_label_end(images: Mapping[str, str], labels: Mapping[str, str], is_shared: bool) -> str:
    """Find the end that label map names have in addition to their image names: the one that fits most files."""
    fitting = {end: sum(f"{stem}{end}" in labels for stem in images) for end in ("", *ENDS)}
    if is_shared:
        del fitting[""]
    return max(fitting, key=lambda end: fitting[end])


def _match(
    split: str, images: Mapping[str, str], labels: Mapping[str, str], folders: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the names that images and label maps share, and lines about the others."""
    stems = [stem for stem in images if stem in labels]
    if not stems:
        shown = [next(iter(files.values()), "nothing") for files in (images, labels)]
        raise UserError(
            f"no image of {folders[0]} has a label map in {folders[1]}: expected equal names, found {shown[0]} and "
            f"{shown[1]}, for example"
        )
    notices = []
    for names, folder, text in (
        (images, folders[0], "images of {} have no label map and are skipped"),
        (labels, folders[1], "label maps of {} have no image and are skipped"),
    ):
        others = [name for stem, name in names.items() if stem not in (labels if names is images else images)]
        if others:
            notices.append(f"{len(others):,} {text.format(split)}, such as {os.path.join(folder, others[0])}")
    return stems, notices
