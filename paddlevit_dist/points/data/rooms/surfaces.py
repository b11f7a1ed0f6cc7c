"""Objects as flat pieces of surface, and points scattered over them."""

from __future__ import annotations

import math
from typing import List, NamedTuple, Sequence, Tuple

import numpy as np

Range = Tuple[float, float]

# The visible faces of a box that stands on the floor with its back to a wall.
STANDING = "xXYZ"
ALL_FACES = "xXyYzZ"


class Surfaces:
    """Flat pieces of one object in its own frame, in metres: x along its width with 0 at the centre, y from its back
    (0) to its front, z up from the floor. A piece has a tone, an index into the object's colours."""

    def __init__(self) -> None:
        self.corners: List[Sequence[float]] = []
        self.first_edges: List[Sequence[float]] = []
        self.second_edges: List[Sequence[float]] = []
        self.tones: List[int] = []
        self.kept: List[float] = []  # fraction of the points that a scanner would see
        self.is_triangle: List[bool] = []

    def panel(
        self,
        corner: Sequence[float],
        first: Sequence[float],
        second: Sequence[float],
        tone: int = 0,
        kept: float = 1.0,
        triangle: bool = False,
    ) -> None:
        """A parallelogram spanned by two edges from ``corner``, or the triangular half at ``corner``."""
        self.corners.append(corner)
        self.first_edges.append(first)
        self.second_edges.append(second)
        self.tones.append(tone)
        self.kept.append(kept)
        self.is_triangle.append(triangle)

    def box(self, x: Range, y: Range, z: Range, faces: str = STANDING, tone: int = 0, kept: float = 1.0) -> None:
        """Faces of a box between two corners; a lowercase letter is the face at the lower end of that axis."""
        low, high = (x[0], y[0], z[0]), (x[1], y[1], z[1])
        edges = ((x[1] - x[0], 0.0, 0.0), (0.0, y[1] - y[0], 0.0), (0.0, 0.0, z[1] - z[0]))
        for face in faces:
            axis = "xyz".index(face.lower())
            corner = list(low)
            if face.isupper():
                corner[axis] = high[axis]
            first, second = (edges[other] for other in range(3) if other != axis)
            self.panel(corner, first, second, tone, kept)

    def tube(
        self,
        centre: Tuple[float, float],
        radii: Tuple[float, float],
        z: Range,
        tone: int = 0,
        stretch: float = 1.0,
        closed: str = "",
        sides: int = 10,
    ) -> None:
        """A round column, cone or bowl between two heights, each with its own radius.

        Args:
            stretch: depth divided by width.
            closed: "z" and "Z" close the lower and the upper end.
        """
        angles = [2.0 * math.pi * side / sides for side in range(sides + 1)]
        around = [(math.cos(angle), stretch * math.sin(angle)) for angle in angles]
        for (a_x, a_y), (b_x, b_y) in zip(around, around[1:]):
            corners = [
                (centre[0] + radius * c_x, centre[1] + radius * c_y, height)
                for radius, height in zip(radii, z)
                for c_x, c_y in ((a_x, a_y), (b_x, b_y))
            ]  # lower a and b, upper a and b
            for origin, one, other in ((0, 1, 2), (3, 2, 1)):
                self.panel(corners[origin], _edge(corners, origin, one), _edge(corners, origin, other), tone, 1.0, True)
            for end, height, wanted in ((0, z[0], "z"), (2, z[1], "Z")):
                if wanted in closed:
                    middle = (centre[0], centre[1], height)
                    spokes = [tuple(p - m for p, m in zip(corners[end + k], middle)) for k in (0, 1)]
                    self.panel(middle, spokes[0], spokes[1], tone, 1.0, True)

    def folds(self, x: Range, y: float, z: Range, depth: float, length: float, tone: int = 0) -> None:
        """A hanging cloth around the plane ``y``: folds of the given depth and length, to alternating sides."""
        number = max(2, round((x[1] - x[0]) / length * 2))
        width = (x[1] - x[0]) / number
        for fold in range(number):
            start = y - depth if fold % 2 else y + depth
            side = 2.0 * depth if fold % 2 else -2.0 * depth
            self.panel((x[0] + fold * width, start, z[0]), (width, side, 0.0), (0.0, 0.0, z[1] - z[0]), tone)

    def basin(self, x: Range, y: Range, z: Range, rim: float, tone: int = 0) -> None:
        """A cavity between the heights ``z``, open at the top, inside a rim of the given width."""
        inner_x, inner_y = (x[0] + rim, x[1] - rim), (y[0] + rim, y[1] - rim)
        for left, right, back, front in (
            (x[0], x[1], y[0], inner_y[0]),
            (x[0], x[1], inner_y[1], y[1]),
            (x[0], inner_x[0], inner_y[0], inner_y[1]),
            (inner_x[1], x[1], inner_y[0], inner_y[1]),
        ):
            self.box((left, right), (back, front), (z[1], z[1]), "Z", tone)
        self.box(inner_x, inner_y, z, "xXyYz", tone)


def _edge(corners: List[Tuple[float, ...]], start: int, end: int) -> Tuple[float, ...]:
    return tuple(b - a for a, b in zip(corners[start], corners[end]))


class Pieces(NamedTuple):
    """The surfaces of a whole room as arrays, one row for each piece.

    Attributes:
        corner, first, second: float64 (pieces, 3), metres.
        is_triangle: bool (pieces,).
        kept: float64 (pieces,).
        owner: int64 (pieces,), number of the object.
        tone: int64 (pieces,).
    """

    corner: np.ndarray
    first: np.ndarray
    second: np.ndarray
    is_triangle: np.ndarray
    kept: np.ndarray
    owner: np.ndarray
    tone: np.ndarray

    @property
    def normal(self) -> np.ndarray:
        """Unit vectors (pieces, 3), 0 for a degenerate piece."""
        normal = np.cross(self.first, self.second)
        return normal / np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-12)


def join(objects: Sequence[Tuple[Surfaces, float, Sequence[float]]]) -> Pieces:
    """Put objects into a room, each rotated about z by an angle in radians and then translated."""
    columns: List[List[np.ndarray]] = [[] for _ in Pieces._fields]
    for owner, (surfaces, angle, offset) in enumerate(objects):
        cosine, sine = math.cos(angle), math.sin(angle)
        turn = np.array([[cosine, sine, 0.0], [-sine, cosine, 0.0], [0.0, 0.0, 1.0]])  # of row vectors
        number = len(surfaces.corners)
        shape = (number, 3)
        columns[0].append(np.asarray(surfaces.corners, float).reshape(shape) @ turn + np.asarray(offset, float))
        columns[1].append(np.asarray(surfaces.first_edges, float).reshape(shape) @ turn)
        columns[2].append(np.asarray(surfaces.second_edges, float).reshape(shape) @ turn)
        columns[3].append(np.asarray(surfaces.is_triangle, bool))
        columns[4].append(np.asarray(surfaces.kept, float))
        columns[5].append(np.full(number, owner))
        columns[6].append(np.asarray(surfaces.tones, np.int64))
    return Pieces(*(np.concatenate(column) for column in columns))


def scatter(pieces: Pieces, spacing_m: float, generator: np.random.Generator) -> Tuple[np.ndarray, np.ndarray]:
    """Points on the surfaces, one per grid cell of a piece, at a random place in its cell.

    Returns:
        xyz float64 (points, 3), and the piece of each point int64 (points,).
    """
    lengths = np.stack([np.linalg.norm(edge, axis=1) for edge in (pieces.first, pieces.second)])  # (2, pieces)
    # A strip narrower than the spacing gets a point with a probability in proportion to its width.
    cells = np.floor(lengths / spacing_m + generator.random(lengths.shape)).astype(np.int64)
    piece = np.repeat(np.arange(len(pieces.corner)), cells[0] * cells[1])
    begin = np.cumsum(cells[0] * cells[1]) - cells[0] * cells[1]
    row, column = np.divmod(np.arange(len(piece)) - begin[piece], cells[1][piece])
    shares = generator.random((2, len(piece)))
    shares[0] = (shares[0] + row) / cells[0][piece]
    shares[1] = (shares[1] + column) / cells[1][piece]
    outside = pieces.is_triangle[piece] & (shares.sum(axis=0) > 1.0)
    shares[:, outside] = 1.0 - shares[:, outside]
    seen = np.where(pieces.is_triangle, 0.5, 1.0) * pieces.kept  # folding a square doubles the density
    is_seen = generator.random(len(piece)) < seen[piece]
    piece, shares = piece[is_seen], shares[:, is_seen]
    xyz = pieces.corner[piece]
    xyz += shares[0][:, None] * pieces.first[piece]
    xyz += shares[1][:, None] * pieces.second[piece]
    return xyz, piece
