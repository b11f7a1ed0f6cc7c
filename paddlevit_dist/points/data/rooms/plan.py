"""Placement of things in a room and on its walls."""

from __future__ import annotations

import math
from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from .furniture import Item
from .surfaces import Surfaces

Rectangle = Tuple[float, float, float, float]  # low and high of one axis, then of the other

_TRIES = 40
_GAP = 0.06  # metres between things
_HIDDEN = 0.08  # fraction of a surface behind or under furniture that a scanner still sees
_SHADED = 0.6  # the same under a table or chair

# Furniture closed on all sides, which hides what is behind and under it.
CLOSED = ("bed", "sofa", "cabinet", "bookshelf", "refrigerator", "bathtub", "toilet")


class Placed(NamedTuple):
    """An object in the room: its class, its shape, its rotation and its translation."""

    class_name: Optional[str]  # None: unlabelled
    item: Item
    angle: float  # radians around z
    offset: Tuple[float, float, float]  # metres

    def rectangle(self, in_front: float = 0.0) -> Rectangle:
        """The part of the floor that it occupies, with some space in front, as an axis-aligned rectangle."""
        half, depth = self.item.width / 2, self.item.depth + in_front
        cosine, sine = math.cos(self.angle), math.sin(self.angle)
        corners = [(x * cosine - y * sine, x * sine + y * cosine) for x in (-half, half) for y in (0.0, depth)]
        xs, ys = zip(*corners)
        return (
            self.offset[0] + min(xs),
            self.offset[0] + max(xs),
            self.offset[1] + min(ys),
            self.offset[1] + max(ys),
        )


class Wall:
    """One side of the room: where it starts, its length, the rotation of things on it, and what is on it."""

    def __init__(self, start: Tuple[float, float], length: float, angle: float) -> None:
        self.start = start
        self.length = length
        self.angle = angle
        self.taken: List[Rectangle] = []  # along the wall, then height
        self.openings: List[Rectangle] = []
        self.covered: List[Rectangle] = []

    def offset(self, along: float, away: float) -> Tuple[float, float, float]:
        """Room coordinates of a point on or in front of the wall."""
        cosine, sine = math.cos(self.angle), math.sin(self.angle)
        return (self.start[0] + along * cosine - away * sine, self.start[1] + along * sine + away * cosine, 0.0)


class Plan:
    """A room being furnished.

    Args:
        size: of the floor in x and y, metres.
        height: of the walls.
    """

    def __init__(self, size: Tuple[float, float], height: float, generator: np.random.Generator) -> None:
        width, depth = size
        self.size = size
        self.height = height
        self.generator = generator
        self.placed: List[Placed] = []
        self.walls = [
            Wall((0.0, 0.0), width, 0.0),
            Wall((width, 0.0), depth, 0.5 * math.pi),
            Wall((width, depth), width, math.pi),
            Wall((0.0, depth), depth, 1.5 * math.pi),
        ]
        self._floor: List[Rectangle] = []

    def stand(self, name: str, item: Item, in_front: float = 0.0) -> Optional[Tuple[Wall, float, Placed]]:
        """Place an object with its back to some wall, where there is room for it plus ``in_front`` metres."""
        for wall, along in self._places(item.width):
            away = self.generator.uniform(0.01, 0.05)
            thing = Placed(name, item, wall.angle + self.generator.normal(0.0, 0.015), wall.offset(along, away))
            taken = (along - item.width / 2, along + item.width / 2, 0.0, item.height)
            if self._is_free(thing.rectangle(in_front)) and not _any_overlap(taken, wall.taken):
                wall.taken.append(taken)
                if name in CLOSED:
                    wall.covered.append(taken)
                self.add(thing, in_front)
                return wall, along, thing
        return None

    def hang(
        self, name: str, item: Item, width: float = 0.0, opening: bool = False, in_front: float = 0.0
    ) -> Optional[Tuple[Wall, float]]:
        """Place an object on some wall; an ``opening`` cuts a hole in it. ``width`` is the clearance needed along the
        wall if more than the object's, ``in_front`` the clearance needed on the floor."""
        width = max(width, item.width)
        for wall, along in self._places(width):
            taken = (along - width / 2, along + width / 2, item.lowest, item.height)
            thing = Placed(name, item, wall.angle, wall.offset(along, 0.0))
            if _any_overlap(taken, wall.taken) or (in_front and not self._is_free(thing.rectangle(in_front))):
                continue
            behind = (along - item.width / 2, along + item.width / 2, item.lowest, item.height)
            wall.taken.append(taken)
            (wall.openings if opening else wall.covered).append(behind)
            self.placed.append(thing)
            if in_front:
                self._floor.append(thing.rectangle(in_front))
            return wall, along
        return None

    def stand_free(self, name: Optional[str], item: Item, around: float) -> Optional[Placed]:
        """Place an object anywhere on the floor with ``around`` metres of clearance on all sides."""
        for _ in range(_TRIES):
            angle = 0.5 * math.pi * float(self.generator.integers(4)) + self.generator.normal(0.0, 0.05)
            centre = self.generator.uniform((0.0, 0.0), self.size)
            thing = self.centred(name, item, angle, centre)
            x_low, x_high, y_low, y_high = thing.rectangle()
            if self._is_free((x_low - around, x_high + around, y_low - around, y_high + around)):
                self.add(thing)
                return thing
        return None

    def stand_at(self, thing: Placed, neighbour: Rectangle) -> bool:
        """Place an object at a given spot, where it may overlap ``neighbour`` but nothing else."""
        if not self._is_free(thing.rectangle(), neighbour):
            return False
        self.add(thing)
        return True

    def add(self, thing: Placed, in_front: float = 0.0) -> None:
        """Place an object unconditionally."""
        self.placed.append(thing)
        self._floor.append(thing.rectangle(in_front))

    @staticmethod
    def centred(name: Optional[str], item: Item, angle: float, centre: Sequence[float]) -> Placed:
        """An object with its footprint centred on ``centre``."""
        back = (
            centre[0] + 0.5 * item.depth * math.sin(angle),
            centre[1] - 0.5 * item.depth * math.cos(angle),
            0.0,
        )
        return Placed(name, item, angle, back)

    def _places(self, width: float) -> List[Tuple[Wall, float]]:
        """Random walls and positions along them where something of this width fits between the corners."""
        places = []
        for _ in range(_TRIES):
            wall = self.walls[int(self.generator.integers(4))]
            margin = width / 2 + _GAP
            share = self.generator.random()
            if wall.length > 2 * margin:
                places.append((wall, margin + share * (wall.length - 2 * margin)))
        return places

    def _is_free(self, rectangle: Rectangle, ignored: Optional[Rectangle] = None) -> bool:
        x_low, x_high, y_low, y_high = rectangle
        inside = x_low > -0.01 and y_low > -0.01 and x_high < self.size[0] + 0.01 and y_high < self.size[1] + 0.01
        return inside and not _any_overlap(rectangle, [other for other in self._floor if other != ignored])

    def wall_surfaces(self) -> List[Surfaces]:
        """Each wall minus its openings, in room coordinates."""
        return [self._wall_surface(wall) for wall in self.walls]

    def _wall_surface(self, wall: Wall) -> Surfaces:
        surfaces = Surfaces()
        start, end = wall.offset(0.0, 0.0), wall.offset(1.0, 0.0)
        along = (end[0] - start[0], end[1] - start[1])
        hidden = [(rectangle, _HIDDEN) for rectangle in wall.covered] + [
            (rectangle, 0.0) for rectangle in wall.openings
        ]
        for (low, high, bottom, top), kept in _cells((0.0, wall.length, 0.0, self.height), hidden):
            corner = (start[0] + low * along[0], start[1] + low * along[1], bottom)
            first = ((high - low) * along[0], (high - low) * along[1], 0.0)
            surfaces.panel(corner, first, (0.0, 0.0, top - bottom), 0, kept)
        return surfaces

    def floor_surface(self) -> Surfaces:
        """The floor, hardly visible under closed furniture and partly hidden under other furniture."""
        surfaces = Surfaces()
        hidden = [
            (thing.rectangle(), _HIDDEN if thing.class_name in CLOSED else _SHADED)
            for thing in self.placed
            if thing.offset[2] == 0.0 and thing.item.depth > 0.2  # anything flatter hangs on a wall
        ]
        for (x_low, x_high, y_low, y_high), kept in _cells((0.0, self.size[0], 0.0, self.size[1]), hidden):
            surfaces.panel((x_low, y_low, 0.0), (x_high - x_low, 0.0, 0.0), (0.0, y_high - y_low, 0.0), 0, kept)
        return surfaces


def _any_overlap(rectangle: Rectangle, others: Sequence[Rectangle]) -> bool:
    a_low, a_high, b_low, b_high = rectangle
    return any(
        a_low < other[1] + _GAP and other[0] < a_high + _GAP and b_low < other[3] + _GAP and other[2] < b_high + _GAP
        for other in others
    )


def _cells(whole: Rectangle, hidden: Sequence[Tuple[Rectangle, float]]) -> List[Tuple[Rectangle, float]]:
    """Cut a rectangle along the edges of others; each part gets the smallest fraction that applies, 0 is dropped."""
    first = _edges(whole[:2], [rectangle[:2] for rectangle, _ in hidden])
    second = _edges(whole[2:], [rectangle[2:] for rectangle, _ in hidden])
    cells = []
    for a_low, a_high in zip(first, first[1:]):
        for b_low, b_high in zip(second, second[1:]):
            a, b = (a_low + a_high) / 2, (b_low + b_high) / 2
            shares = [kept for (i, j, k, m), kept in hidden if i < a < j and k < b < m]
            kept = min(shares, default=1.0)
            if kept > 0.0:
                cells.append(((a_low, a_high, b_low, b_high), kept))
    return cells


def _edges(whole: Tuple[float, float], others: Sequence[Tuple[float, float]]) -> List[float]:
    low, high = whole
    return sorted({low, high, *(min(max(edge, low), high) for pair in others for edge in pair)})
