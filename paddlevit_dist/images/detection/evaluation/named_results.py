"""Results that name their images and categories; their ids then need not match the annotations."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from ....core.runtime.errors import UserError
from ....core.runtime.printing import count, shorten
from ....core.runtime.text_files import is_whole
from ...data.formats import stems
from ..coco_files import Id, as_id
from ..json_lists import elements
from ..matched_ids import match_categories, match_files, require_categories, require_images
from .matching import AnnotationFile

NameAndId = tuple[str, int | float | str]  # name and id in a result


class NamedResult(msgspec.Struct, gc=False):
    """Ids and names of a result as its file has them."""

    form: ClassVar[str] = '"bbox": [x, y, width, height]'  # what else it has, for messages
    image_id: int | float | str
    category_id: int | float | str
    file_name: Any = None
    category_name: Any = None


_BY_STEM = "matched by name: each image_id is the name of an image's file, without folder and suffix"


class NamedPositions(NamedTuple):
    """Positions in the annotations of results' images and categories; where images or labels are None, ids decide."""

    image_id_positions: Mapping[Id, int]  # image id in the annotations, or name of its file -> position
    category_id_positions: Mapping[Id, int]  # category id in the annotations -> position
    images: Mapping[NameAndId, int] | None = None  # (name, id) in the results -> position of the image
    labels: Mapping[NameAndId, int] | None = None  # (name, id) in the results -> label, -1 if the annotations lack it
    unknown: Sequence[str] = ()  # names of the categories that the annotations lack
    matched: str = ""  # message on what was matched by name; empty if ids decide for both
    notices: Sequence[str] = ()  # why ids decide although the results have names

    def image(self, result: NamedResult, image_id: Id) -> int | None:
        """Return the position of the image of a result with this id; None: the annotations lack it."""
        return (
            self.image_id_positions.get(image_id)
            if self.images is None
            else self.images[result.file_name, result.image_id]
        )

    def label(self, result: NamedResult, category_id: Id) -> int:
        """Return the label of a result's category; -1: the annotations lack it."""
        if self.labels is None:
            return self.category_id_positions.get(category_id, -1)
        return self.labels[result.category_name, result.category_id]

    def require_plain(self, path: str, number: int, result: NamedResult) -> None:
        """Raise if a result has names although the first result has none."""
        if result.file_name is None and result.category_name is None:  # the usual case
            return
        if not self.matched and not self.notices:
            _require_same_names(path, number, list_names(result), [])


def match_names(path: str, annotations: AnnotationFile) -> NamedPositions:
    """Match the names in a file of results with the names in the annotations.

    The first result decides whether all have a ``file_name``, and a ``category_name``; without names, ids decide. If
    its ``image_id`` is not one, but the name of an image, all are: Ultralytics wrote no ``file_name`` at first.

    Raises:
        OSError, ValueError: see ``coco_files.elements``.
        UserError: only some results have a name, or a name matches nothing or several things.
    """
    image_id_positions: dict[Id, int] = {id_: position for position, id_ in enumerate(annotations.image_ids)}
    category_id_positions: dict[Id, int] = {id_: position for position, id_ in enumerate(annotations.category_ids)}
    first: list[str] | None = None
    images: dict[NameAndId, None] = {}
    categories: dict[NameAndId, None] = {}
    for number, result, *_ in elements(path, {"": NamedResult}, has_places=False).get("", ()):
        present_names = list_names(result)
        first = present_names if first is None else first
        if not first:  # the usual case; the other results are checked when they are read in full
            by_stem = {} if as_id(result.image_id, True) in image_id_positions else _map_stems(annotations.file_names)
            if as_id(result.image_id, True) in by_stem:
                return NamedPositions(by_stem, category_id_positions, matched=_BY_STEM)
            return NamedPositions(image_id_positions, category_id_positions)
        _require_same_names(path, number, present_names, first)
        images[result.file_name, result.image_id] = None
        categories[result.category_name, result.category_id] = None
    image_positions = label_positions = None
    messages, notices = [], []
    if "file_name" in (first or ()):
        if any(annotations.file_names):
            image_positions, message = _match_images(path, list(images), annotations)
            messages.append(message)
        else:
            notices.append(f"{path}: images are matched by image_id, since {annotations.path} has no file names")
    if "category_name" in (first or ()):
        if any(annotations.original_names):
            label_positions, message = _match_labels(path, list(categories), annotations)
            messages.append(message)
        else:
            notices.append(
                f"{path}: categories are matched by category_id, since {annotations.path} has no category names"
            )
    unknown = dict.fromkeys(name for (name, _), label in (label_positions or {}).items() if label < 0)
    matched = f"matched by name: {', '.join(messages)}" if messages else ""
    return NamedPositions(
        image_id_positions, category_id_positions, image_positions, label_positions, list(unknown), matched, notices
    )


def _map_stems(file_names: Sequence[str]) -> dict[Id, int]:
    """Return the position of each image whose file's name without suffix is of no other, by the id that it may be.

    Ultralytics writes digits as a number.
    """
    positions: dict[Id, list[int]] = {}
    for position, stem in enumerate(stems(file_names)):
        ids: set[Id] = {stem, int(stem)} if stem.isascii() and is_whole(stem) else {stem}
        for id_ in ids:
            positions.setdefault(id_, []).append(position)
    return {id_: places[0] for id_, places in positions.items() if len(places) == 1}


def list_names(result: NamedResult) -> list[str]:
    """Return the keys of the names that a result has."""
    values = (("file_name", result.file_name), ("category_name", result.category_name))
    return [name for name, value in values if isinstance(value, str) and value]


def _require_same_names(path: str, number: int, present_names: Sequence[str], first: Sequence[str]) -> None:
    """Raise UserError if a result has other kinds of names than the first result."""
    if present_names != first:
        other = next(iter({*present_names} ^ {*first}))
        has = "a" if other in present_names else "no"
        raise UserError(
            f"{path}: result {number} has {has} {other}, unlike the first result: give all results one, or none"
        )


def _match_images(
    path: str, images: Sequence[NameAndId], annotations: AnnotationFile
) -> tuple[dict[NameAndId, int], str]:
    """Return the position of each image, and a message on the matches."""
    file_names = annotations.file_names
    names = list(dict.fromkeys(name for name, _ in images))
    name_positions = dict(zip(names, match_files(names, file_names, annotations.root)))
    candidates = [_decide(image, name_positions[image[0]], file_names, annotations.image_ids) for image in images]
    all_names = [name for name, _ in images]
    candidates = _decide_by_ids(images, candidates, annotations.image_ids)
    require_images(all_names, candidates, annotations.image_ids, annotations.path, f"{path}: ")
    message = f"{count(len(names), 'image')} of the results (of {len(file_names):,} in the annotations)"
    return {image: positions[0] for image, positions in zip(images, candidates)}, message


def _match_labels(
    path: str, categories: Sequence[NameAndId], annotations: AnnotationFile
) -> tuple[dict[NameAndId, int], str]:
    """Return the label of each category, -1 if the annotations lack it, and a message on the matches."""
    known_names = annotations.original_names
    names = list(dict.fromkeys(name for name, _ in categories))
    name_positions = dict(zip(names, match_categories(names, known_names, annotations.names)))
    candidates = [
        _decide(category, name_positions[category[0]], known_names, annotations.category_ids) for category in categories
    ]
    all_names = [name for name, _ in categories]
    first = require_categories(all_names, candidates, known_names, annotations.path, f"{path}: ")
    similar = [f"{name} for {known_names[label]}" for label, name in first.items() if name != known_names[label]]
    spelled = f", spelled differently: {shorten(', '.join(similar))}" if similar else ""
    message = f"{len(set(first.values())):,} of the {count(len(names), 'category')} of the results{spelled}"
    return {category: positions[0] if positions else -1 for category, positions in zip(categories, candidates)}, message


def _decide_by_ids(images: Sequence[NameAndId], candidates: list[list[int]], ids: Sequence[Id]) -> list[list[int]]:
    """Among several images that a name may mean, return the one with its id, if each name may mean that with its id.

    So it is in a data set that ``predict -save_as`` wrote together with the results.
    """
    own = [[k for k in places if ids[k] == as_id(id_, True)] for (_, id_), places in zip(images, candidates)]
    return own if all(own) else candidates


def _decide(name_and_id: NameAndId, positions: list[int], known_names: Sequence[str], ids: Sequence[Id]) -> list[int]:
    """Among several entries of one name, return the entry whose id is next to the name, if there is one."""
    if len(positions) < 2 or len({known_names[position] for position in positions}) > 1:
        return positions
    return [position for position in positions if ids[position] == as_id(name_and_id[1], True)] or positions
