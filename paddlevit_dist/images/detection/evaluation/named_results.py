"""Results that name their images and categories, whose numbers then need not be those of the annotations."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ....runtime.errors import UserError
from ....runtime.printing import shorten
from ...data.data_warnings import count
from ..coco_files import Id, as_id, elements
from ..matched_names import match_categories, match_files, require_categories, require_images

if TYPE_CHECKING:
    from .scored_files import AnnotationFile

Named = tuple[str, int | float | str]  # the name that a result has, and the number beside it


class NamedPositions(NamedTuple):
    """Where images and categories of results are in the annotations.

    Attributes:
        of_image_id, of_category_id: positions in the annotations, by their ids.
        images: position of each image, by its name and number in the results; None: numbers decide.
        labels: likewise of each category, -1 where the annotations do not have it.
        unknown: names of the categories that the annotations do not have.
        matched: what was matched by names; empty where numbers decide for both.
        notices: why numbers decide although the results have names.
    """

    of_image_id: Mapping[Id, int]
    of_category_id: Mapping[Id, int]
    images: Mapping[Named, int] | None = None
    labels: Mapping[Named, int] | None = None
    unknown: Sequence[str] = ()
    matched: str = ""
    notices: Sequence[str] = ()

    def image(self, result: Any, own: Id) -> int | None:
        """The position of the image that a result is of; None: the annotations do not have it.

        Args:
            own: the id of the image in the result.
        """
        return self.of_image_id.get(own) if self.images is None else self.images[result.file_name, result.image_id]

    def label(self, result: Any, own: Id) -> int:
        """The same for its category; -1: the annotations do not have it."""
        if self.labels is None:
            return self.of_category_id.get(own, -1)
        return self.labels[result.category_name, result.category_id]

    def require_plain(self, path: str, number: int, result: Any) -> None:
        """Refuse a name in a file whose first result has none."""
        if not self.matched and not self.notices:
            require_alike(path, number, list_names(result), [])


class _NamedResult(msgspec.Struct, gc=False):
    image_id: int | float | str
    category_id: int | float | str
    file_name: Any = None
    category_name: Any = None


def match_names(path: str, annotations: "AnnotationFile") -> NamedPositions:
    """Match the names in a file of results with those in annotations. The first result decides whether all have a
    ``file_name``, and a ``category_name``; where they have none, numbers decide.

    Raises:
        OSError, ValueError: see ``coco_files.elements``.
        UserError: only some results have a name, or a name stands for nothing or for several things.
    """
    ids = [
        {own: position for position, own in enumerate(some)}
        for some in (annotations.image_ids, annotations.category_ids)
    ]
    first: list[str] | None = None
    images: dict[Named, None] = {}
    categories: dict[Named, None] = {}
    for number, result, *_ in elements(path, {"": _NamedResult}).get("", ()):
        has = list_names(result)
        first = has if first is None else first
        if not first:  # as most files have it: the others are looked at when all of them is read
            return NamedPositions(*ids)
        require_alike(path, number, has, first)
        images[result.file_name, result.image_id] = None
        categories[result.category_name, result.category_id] = None
    images_of = labels_of = None
    said, notices = [], []
    if "file_name" in (first or ()):
        if any(annotations.file_names):
            images_of, told = _match_images(path, list(images), annotations)
            said.append(told)
        else:
            notices.append(f"{path}: image_id decides, since {annotations.path} has no file names of its images")
    if "category_name" in (first or ()):
        if any(annotations.own_names):
            labels_of, told = _match_labels(path, list(categories), annotations)
            said.append(told)
        else:
            notices.append(f"{path}: category_id decides, since {annotations.path} does not name its categories")
    unknown = dict.fromkeys(name for (name, _), label in (labels_of or {}).items() if label < 0)
    matched = f"matched by name: {', '.join(said)}" if said else ""
    return NamedPositions(*ids, images_of, labels_of, list(unknown), matched, notices)


def list_names(result: Any) -> list[str]:
    """Which names a result has."""
    values = (("file_name", result.file_name), ("category_name", result.category_name))
    return [name for name, value in values if isinstance(value, str) and value]


def require_alike(path: str, number: int, has: Sequence[str], first: Sequence[str]) -> None:
    """Refuse a result that has other names than the first.

    Raises:
        UserError: says which.
    """
    if has != first:
        other = next(iter({*has} ^ {*first}))
        raise UserError(
            f"{path}: result {number} has {'a' if other in has else 'no'} {other}, unlike the first result: give all "
            "results one, or none"
        )


def _match_images(path: str, images: Sequence[Named], annotations: "AnnotationFile") -> tuple[dict[Named, int], str]:
    """The position of each image, and what to tell of them."""
    known = annotations.file_names
    names = list(dict.fromkeys(name for name, _ in images))
    of_name = dict(zip(names, match_files(names, known)))
    found = [_decide(own, of_name[own[0]], known, annotations.image_ids) for own in images]
    all_names = [name for name, _ in images]
    require_images(all_names, found, annotations.image_ids, annotations.path, f"{path}: ")
    told = f"{count(len(names), 'image')} of the results (of {len(known):,} in the annotations)"
    return {own: positions[0] for own, positions in zip(images, found)}, told


def _match_labels(
    path: str, categories: Sequence[Named], annotations: "AnnotationFile"
) -> tuple[dict[Named, int], str]:
    """The label of each category, -1 where the annotations do not have it, and what to tell of them."""
    known = annotations.own_names
    names = list(dict.fromkeys(name for name, _ in categories))
    of_name = dict(zip(names, match_categories(names, known)))
    found = [_decide(own, of_name[own[0]], known, annotations.category_ids) for own in categories]
    all_names = [name for name, _ in categories]
    first = require_categories(all_names, found, known, annotations.path, f"{path}: ")
    similar = [f"{name} for {known[label]}" for label, name in first.items() if name != known[label]]
    spelled = f", spelled otherwise: {shorten(', '.join(similar))}" if similar else ""
    told = f"{len(first):,} of the {count(len(names), 'category')} of the results{spelled}"
    return {own: positions[0] if positions else -1 for own, positions in zip(categories, found)}, told


def _decide(own: Named, positions: list[int], known: Sequence[str], ids: Sequence[Id]) -> list[int]:
    """Of several entries of one name take that with the number beside the name, if there is one."""
    if len(positions) < 2 or len({known[position] for position in positions}) > 1:
        return positions
    return [position for position in positions if ids[position] == as_id(own[1], True)] or positions
