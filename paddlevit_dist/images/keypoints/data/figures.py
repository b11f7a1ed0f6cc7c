"""Figures of thick lines with known points: people and hands, posed at random.

All numbers are integers scaled from raw random words, so that figures are the same on every machine. A person is seen
from the front, with a face and stripes, or from behind: only that tells left from right, also in a mirrored image. A
hand is a left or a right one, and its points are the same in both.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...data.drawn_shapes import PortableRandom
from ..keypoint_set import KeypointSet

FINE = 16  # steps of the grid in a pixel
_UNIT = 1024  # figures are posed in a square of this radius, and then scaled
_TURNS = 256  # directions
_COSINES = [round(_UNIT * math.cos(2 * math.pi * turn / _TURNS)) for turn in range(_TURNS)]
_SIGMA = 0.05

_Point = tuple[int, int]
_PERSON = ("head", "neck", "left_hand", "right_hand", "hip", "left_foot", "right_foot")
_HAND = ("wrist", "thumb", "index_finger", "middle_finger", "ring_finger", "little_finger")
FIGURE_SETS = {
    "person": KeypointSet(
        _PERSON,
        ((0, 0), (1, 1), (2, 3), (4, 4), (5, 6)),
        (_SIGMA,) * 7,
        ((0, 1), (1, 2), (1, 3), (1, 4), (4, 5), (4, 6)),
    ),
    "hand": KeypointSet(
        _HAND, tuple((point, point) for point in range(6)), (_SIGMA,) * 6, tuple((0, finger) for finger in range(1, 6))
    ),
}
# Direction of each finger from the middle of the hand, in turns from straight up, and its length.
_FINGERS = ((-47, 640), (-17, 850), (-5, 930), (7, 860), (20, 720))


class Line(NamedTuple):
    """A line with round ends, all points within ``radius`` of it; on the grid."""

    start: _Point  # x, y
    end: _Point
    radius: int

    def fill(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return which places are in it, bool; x and y are int64 of shapes that broadcast."""
        (x0, y0), (x1, y1) = self.start, self.end
        along_x, along_y, limit = x1 - x0, y1 - y0, self.radius**2
        squared = along_x**2 + along_y**2
        from_start = (x - x0) ** 2 + (y - y0) ** 2
        if not squared:
            return from_start <= limit
        along = (x - x0) * along_x + (y - y0) * along_y
        is_near = ((x - x0) * along_y - (y - y0) * along_x) ** 2 <= limit * squared
        is_between = (along >= 0) & (along <= squared)
        return (is_near & is_between) | (from_start <= limit) | ((x - x1) ** 2 + (y - y1) ** 2 <= limit)

    def find_extent(self, height: int, width: int) -> tuple[int, int, int, int] | None:
        """Return x0, y0, x1, y1 of its part in an image of this size on the grid; None if it is outside.

        The part is that of a line that is cut where it leaves the image by more than its radius.
        """
        cut = _cut(self.start, self.end, (-self.radius, -self.radius), (width + self.radius, height + self.radius))
        if cut is None:
            return None
        xs, ys = sorted((cut[0][0], cut[1][0])), sorted((cut[0][1], cut[1][1]))
        x0, x1 = max(xs[0] - self.radius, 0), min(xs[1] + self.radius, width)
        y0, y1 = max(ys[0] - self.radius, 0), min(ys[1] + self.radius, height)
        return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None


def _cut(start: _Point, end: _Point, low: _Point, high: _Point) -> tuple[_Point, _Point] | None:
    """Return the part of a line between two corners of a box; None if there is none."""
    for axis in (0, 1):
        if min(start[axis], end[axis]) > high[axis] or max(start[axis], end[axis]) < low[axis]:
            return None
        start, end = (_move_to(one, other, axis, low, high) for one, other in ((start, end), (end, start)))
    return start, end


def _move_to(point: _Point, other: _Point, axis: int, low: _Point, high: _Point) -> _Point:
    """Return the point of a line, next to ``point``, that is within the limits of an axis."""
    limit = min(max(point[axis], low[axis]), high[axis])
    if limit == point[axis]:
        return point
    across = 1 - axis
    moved = point[across] + (other[across] - point[across]) * (limit - point[axis]) // (other[axis] - point[axis])
    return (limit, moved) if axis == 0 else (moved, limit)


class Figure(NamedTuple):
    """A posed figure."""

    body: list[Line]
    front: list[Line]  # face and stripes, drawn in another color on the body
    points: list[_Point]


def pose(name: str, draws: PortableRandom, center: _Point, radius: int) -> Figure:
    """Pose a figure, "person" or "hand", at random around a center, with its radius; both on the grid."""
    body, front, points = _POSES[name](draws)
    turn = draws.between(-24, 24)
    cosine, sine = _COSINES[turn % _TURNS], _COSINES[(turn - _TURNS // 4) % _TURNS]

    def place(point: _Point) -> _Point:
        x, y = point
        return (
            center[0] + (x * cosine - y * sine) * radius // _UNIT**2,
            center[1] + (x * sine + y * cosine) * radius // _UNIT**2,
        )

    def scale(lines: Sequence[Line]) -> list[Line]:
        return [Line(place(line.start), place(line.end), max(line.radius * radius // _UNIT, FINE)) for line in lines]

    return Figure(scale(body), scale(front), [place(point) for point in points])


def _reach(origin: _Point, turn: int, length: int) -> _Point:
    """Return the point at a distance in a direction, which is clockwise from straight up."""
    x, y = _COSINES[(turn - _TURNS // 4) % _TURNS] * length // _UNIT, -_COSINES[turn % _TURNS] * length // _UNIT
    return origin[0] + x, origin[1] + y


def _pose_person(draws: PortableRandom) -> tuple[list[Line], list[Line], list[_Point]]:
    is_front = draws.below(2) == 1
    head, neck, hip = (draws.between(-60, 60), -760), (0, -480), (draws.between(-70, 70), 180)
    hands, feet = [], []
    for side in (-1, 1):  # left and right in the image
        hands.append(_reach(neck, side * draws.between(22, 106), draws.between(520, 640)))
        feet.append(_reach(hip, side * draws.between(98, 122), draws.between(700, 800)))
    body = [Line(head, head, 250), Line(neck, hip, 130), *(Line(neck, hand, 75) for hand in hands)]
    body += [Line(head, neck, 70), *(Line(hip, foot, 90) for foot in feet)]
    if is_front:  # the person's left is at the right in the image
        hands.reverse()
        feet.reverse()
    stripes = [Line(neck, hip, 50), *(Line(neck, hand, 35) for hand in hands), *(Line(hip, foot, 40) for foot in feet)]
    return body, [Line(head, head, 160), *stripes] if is_front else [], [head, neck, *hands, hip, *feet]


def _pose_hand(draws: PortableRandom) -> tuple[list[Line], list[Line], list[_Point]]:
    side = 2 * draws.below(2) - 1
    middle, wrist = (0, 150), (draws.between(-80, 80), 640)
    body, points = [Line(middle, middle, 330), Line(middle, wrist, 190)], [wrist]
    for turn, length in _FINGERS:
        tip = _reach(middle, side * (turn + draws.between(-2, 2)), length * draws.between(85, 110) // 100)
        body.append(Line(middle, tip, 80))
        points.append(tip)
    return body, [], points


_Pose = Callable[[PortableRandom], tuple[list[Line], list[Line], list[_Point]]]
_POSES: dict[str, _Pose] = {"person": _pose_person, "hand": _pose_hand}
