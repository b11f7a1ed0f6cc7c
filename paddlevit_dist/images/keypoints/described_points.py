"""What annotations and keys say about the points of categories, completed to one ``KeypointSet`` a category."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...core.runtime.errors import UserError
from ...core.runtime.printing import count, shorten
from ..data.data_warnings import first_names
from .keypoint_set import COCO_PERSON, KeypointSet

SIGMA = 0.05  # of points whose sigma nothing gives
_Links = Sequence[Sequence[int]]
# Words of a name, also of LeftEye and L_eye; Chinese writes a name without spaces.
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[左右]|[^\W\d_a-zA-Z左右]+")
_OPPOSITES = {"left": "right", "l": "r", "左": "右"}
_OPPOSITES |= {right: left for left, right in _OPPOSITES.items()}


class DescribedPoints(NamedTuple):
    """What the annotations say about the points of a category; None: nothing."""

    number: int  # of points; 0: objects of this category have none
    names: Sequence[str] | None = None
    pairs: _Links | None = None  # numbers from 0
    sigmas: Sequence[float] | None = None
    skeleton: _Links | None = None  # numbers from 0


def complete_sets(
    class_names: Sequence[str], described: Sequence[DescribedPoints], keys: Any = None
) -> tuple[tuple[KeypointSet, ...], list[str]]:
    """Return the points of each category, and log lines that say where pairs and sigmas are from.

    Args:
        described: of each category, what its annotations say.
        keys: the keys of KEYPOINTS, which win; None: there are none.

    Raises:
        UserError: a key names a point that a category lacks, or has another number of values than it has points.
    """
    _require_known(described, keys)
    sets, remarks = [], dict[str, list[str]]()
    for name, points in zip(class_names, described):
        if not points.number:
            sets.append(KeypointSet((), (), (), ()))
            remarks.setdefault("without points", []).append(name)
            continue
        names = _choose_names(name, points, keys)
        pairs, pairs_from = _choose_pairs(names, points, keys)
        sigmas, sigmas_from = choose_sigmas(name, names, points, None if keys is None else keys.SIGMAS)
        sets.append(KeypointSet(names, pairs, sigmas, _choose_skeleton(names, points, keys)))
        remarks.setdefault(f"{count(len(names), 'point')}, {pairs_from}; {sigmas_from}", []).append(name)
    return tuple(sets), [f"keypoints of {first_names(names)}: {remark}" for remark, names in remarks.items()]


def find_opposites(names: Sequence[str]) -> list[tuple[int, int]]:
    """Return the points whose names differ only in left and right (also l and r), smaller numbers first."""
    spelled = [tuple(word.lower() for word in _WORDS.findall(name)) for name in names]
    if not any(word in _OPPOSITES for words in spelled for word in words):  # lefteye, as in CelebA's table
        spelled = [tuple(re.split("(left|right)", name.lower())) for name in names]
    pairs = []
    for number, words in enumerate(spelled):
        opposite = tuple(_OPPOSITES.get(word, word) for word in words)
        if opposite != words and spelled.count(words) == spelled.count(opposite) == 1:
            pairs.append((number, spelled.index(opposite)))
    return [pair for pair in pairs if pair[0] < pair[1]]


def pair_up(mirror: Any, number: int) -> list[tuple[int, int]] | None:
    """Return the pairs of a mirror as in YOLO's ``flip_idx``, also of points with themselves; None if it is wrong."""
    if not isinstance(mirror, list) or len(mirror) != number or not all(type(other) is int for other in mirror):
        return None
    if not all(0 <= other < number and mirror[other] == point for point, other in enumerate(mirror)):
        return None
    return [(point, other) for point, other in enumerate(mirror) if point <= other]


def _require_known(described: Sequence[DescribedPoints], keys: Any) -> None:
    """Raise UserError if a link of KEYPOINTS.PAIRS or SKELETON is wrong, or joins points that no category has both."""
    if keys is None:
        return
    names = [_list_names(points, keys) for points in described if points.number]
    for key in ("PAIRS", "SKELETON"):
        for link in getattr(keys, key) or ():
            if link.count("/") != 1:
                reason = "one slash is needed"
            elif any(_parse_links([link], known) for known in names):
                continue
            else:
                reason = "the points are not of one category"
            first = names[0]
            raise UserError(
                f"KEYPOINTS.{key} {shorten(link, 60)}: {reason}; expected two of {first_names(first)} or of the "
                f"numbers 1 to {len(first)}, such as {first[0]}/{first[-1]}"
            )


def _list_names(points: DescribedPoints, keys: Any) -> tuple[str, ...]:
    """Return the names of a category's points, by KEYPOINTS.NAMES, the annotations, or numbers."""
    if keys is not None and keys.NAMES is not None:
        return tuple(keys.NAMES)
    if _is_coco_person(points):
        return COCO_PERSON.names
    return tuple(points.names or (f"point {number}" for number in range(1, points.number + 1)))


def _is_coco_person(points: DescribedPoints) -> bool:
    """Return whether points without names have the number and the pairs of COCO's people, as in coco-pose.yaml."""
    exchanged = {tuple(pair) for pair in points.pairs or () if pair[0] != pair[1]}
    return points.names is None and points.number == len(COCO_PERSON.names) and exchanged == set(COCO_PERSON.pairs)


def _choose_names(category: str, points: DescribedPoints, keys: Any) -> tuple[str, ...]:
    if keys is None or keys.NAMES is None:
        return _list_names(points, keys)
    _require_number("KEYPOINTS.NAMES", len(keys.NAMES), category, points.number)
    if len(set(keys.NAMES)) < len(keys.NAMES):
        raise UserError(f"KEYPOINTS.NAMES {shorten(str(list(keys.NAMES)))}: expected each name only once")
    return tuple(keys.NAMES)


def _require_number(option: str, number: int, category: str, expected: int) -> None:
    if number != expected:
        raise UserError(f"{option} has {number} values, but {category} has {expected} points: write one for each point")


def _choose_pairs(
    names: tuple[str, ...], points: DescribedPoints, keys: Any
) -> tuple[tuple[tuple[int, int], ...], str]:
    """Return the mirrored pairs of a category, and what the log says about them."""
    if keys is not None and keys.PAIRS is not None:
        pairs, source = _parse_links(keys.PAIRS, names), "KEYPOINTS.PAIRS"
    elif points.pairs is not None:
        pairs, source = [(one, other) for one, other in points.pairs], "the annotations"
    else:
        pairs, source = find_opposites(names), "left and right in their names"
    once = [number for pair in pairs for number in set(pair)]
    if len(set(once)) < len(once):
        twice = next(names[number] for number in once if once.count(number) > 1)
        raise UserError(f"KEYPOINTS.PAIRS: {twice} is in two pairs; expected each point at most once")
    if not pairs:
        return (), "no mirrored pairs, so images are not mirrored (KEYPOINTS.PAIRS names pairs; a/a: a is its own)"
    number = sum(one != other for one, other in pairs)
    if not number and points.number > 1:  # Roboflow writes such a flip_idx for all data, also of left and right points
        return tuple(pairs), f"images are mirrored and no points exchanged, by {source} (KEYPOINTS.PAIRS names pairs)"
    return tuple(pairs), f"{number} mirrored pair{'' if number == 1 else 's'} by {source}"


def choose_sigmas(
    category: str,
    names: tuple[str, ...],
    points: DescribedPoints,
    values: Sequence[float] | float | None,
    option: str = "KEYPOINTS.SIGMAS",
) -> tuple[tuple[float, ...], str]:
    """Return the sigmas of a category, and what the log says about them.

    Args:
        values: a sigma for each point, or one for all; None: by the annotations.
        option: what sets these values, for messages.

    Raises:
        UserError: there are other numbers of sigmas and points.
    """
    if values is not None:
        own: list[float] = [values] * len(names) if isinstance(values, (int, float)) else list(values)
        _require_number(option, len(own), category, len(names))
        return tuple(map(float, own)), f"sigmas by {option}"
    if points.sigmas is not None:
        return tuple(points.sigmas), "sigmas by the annotations"
    if names == COCO_PERSON.names:
        return COCO_PERSON.sigmas, "COCO's sigmas for its 17 points"
    return (SIGMA,) * len(names), f"sigma {SIGMA} of all points, since nothing gives them ({option})"


def _choose_skeleton(names: tuple[str, ...], points: DescribedPoints, keys: Any) -> tuple[tuple[int, int], ...]:
    if keys is not None and keys.SKELETON is not None:
        return tuple(_parse_links(keys.SKELETON, names))
    if points.skeleton is not None:
        return tuple((one, other) for one, other in points.skeleton)
    return COCO_PERSON.skeleton if names == COCO_PERSON.names else ()


def _parse_links(links: Sequence[str], names: tuple[str, ...]) -> list[tuple[int, int]]:
    """Return the numbers, from 0, of two points with a slash between them, each a name or a number from 1.

    Links of points that a category lacks are of other categories, see ``_require_known``.
    """
    numbers = {str(number): number - 1 for number in range(1, len(names) + 1)}
    numbers |= {name: number for number, name in enumerate(names)}
    split = ([end.strip() for end in link.split("/")] for link in links)
    return [(numbers[one], numbers[other]) for one, other in split if one in numbers and other in numbers]
