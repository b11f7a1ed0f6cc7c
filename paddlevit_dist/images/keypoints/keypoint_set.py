"""The points of a category: their names, mirrored pairs, sigmas and skeleton."""

from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

_MOST = 10_000  # categories, and points of one
_Id = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]
_Links = Annotated[list[tuple[Annotated[int, Meta(ge=0)], Annotated[int, Meta(ge=0)]]], Meta(max_length=_MOST)]


class KeypointSet(NamedTuple):
    """The K points of a category, which are numbered from 0.

    ``sigmas`` are COCO's: the similarity of a detected and a true point at distance d in an object of area s^2 is
    exp(-d^2 / (2 s^2 (2 sigma)^2)). Source: https://cocodataset.org/#keypoints-eval, section 1.3, with k = 2 sigma.
    """

    names: tuple[str, ...]  # K names
    pairs: tuple[tuple[int, int], ...]  # points that a mirror exchanges, such as both eyes; empty if there are none
    sigmas: tuple[float, ...]  # K standard deviations of annotators, relative to the square root of the object's area
    skeleton: tuple[tuple[int, int], ...]  # points with a line between them, for drawings

    @property
    def mirror(self) -> np.ndarray:
        """Index of the point that each point becomes in a mirrored image, int64 (K,): its partner's or its own."""
        mirror = np.arange(len(self.names), dtype=np.int64)
        for one, other in self.pairs:
            mirror[one], mirror[other] = other, one
        return mirror

    def to_plain(self) -> dict[str, Any]:
        """Return plain values that YAML can hold."""
        links = {name: [list(link) for link in getattr(self, name)] for name in ("pairs", "skeleton")}
        return {"names": list(self.names), "sigmas": list(map(float, self.sigmas)), **links}


class _StoredPoints(msgspec.Struct):
    """The points of a category in a checkpoint's metadata: ``KeypointSet.to_plain``."""

    names: Annotated[list[str], Meta(max_length=_MOST)]
    sigmas: list[Annotated[float, Meta(ge=0, le=1e6)]]
    pairs: _Links
    skeleton: _Links

    def __post_init__(self) -> None:
        number, paired = len(self.names), [end for pair in self.pairs for end in set(pair)]
        if len(self.sigmas) != number:
            raise ValueError(f"Expected {number} sigmas, a name each, got {len(self.sigmas)}")
        if max(chain((-1,), *self.pairs, *self.skeleton)) >= number:
            raise ValueError(f"Expected pairs and skeleton of points 0 to {number - 1}")
        if len(set(paired)) < len(paired):
            raise ValueError("Expected each point in at most one of the pairs")

    def to_set(self) -> KeypointSet:
        """Return the points."""
        return KeypointSet(tuple(self.names), tuple(self.pairs), tuple(self.sigmas), tuple(self.skeleton))


class KeypointFacts(msgspec.Struct):
    """Facts that tasks of keypoints store of a split; categories have all of the lists in one order."""

    points: Annotated[list[_StoredPoints], Meta(max_length=_MOST)] = []
    categories: list[str] | None = None
    category_ids: list[_Id] | None = msgspec.field(name="category ids", default=None)

    def __post_init__(self) -> None:
        for name, values in (("categories", self.categories), ("category ids", self.category_ids)):
            if self.points and values is not None and not len(set(values)) == len(values) == len(self.points):
                raise ValueError(f"Expected {len(self.points)} different {name}, one for each of the points")

    @property
    def sets(self) -> tuple[KeypointSet, ...]:
        """The points of each category."""
        return tuple(points.to_set() for points in self.points)


def can_mirror(sets: Sequence[KeypointSet]) -> bool:
    """Return whether images may be mirrored: each category with points says which of them a mirror exchanges."""
    return all(points.pairs for points in sets if points.names)


_SIDES = ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
# Names and skeleton as in person_keypoints_val2017.json, sigmas as in pycocotools' Params.
COCO_PERSON = KeypointSet(
    names=("nose", *(f"{side}_{name}" for name in _SIDES for side in ("left", "right"))),
    pairs=tuple((left, left + 1) for left in range(1, 17, 2)),
    sigmas=(
        *(0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072),
        *(0.062, 0.062, 0.107, 0.107, 0.087, 0.087, 0.089, 0.089),
    ),
    skeleton=(
        *((15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8)),
        *((7, 9), (8, 10), (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6)),
    ),
)
