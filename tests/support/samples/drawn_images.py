"""Drawn shapes as class folders: a color, a place, a size and an angle at random, on a noisy ground.

The same program, seed and names give the same images everywhere.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIZE = 48  # pixels
_FINER = 4  # drawn this many times as large, then reduced
Line = list[tuple[float, float]]  # of points between -1 and 1


def _regular(corners: int, inner: float = 1.0) -> Line:
    """A polygon, or a star where every second corner has the radius ``inner``."""
    number = corners * 2 if inner != 1.0 else corners
    radii = [inner if inner != 1.0 and i % 2 else 1.0 for i in range(number)]
    return [(r * np.cos(2 * np.pi * i / number), r * np.sin(2 * np.pi * i / number)) for i, r in enumerate(radii)]


def _curve(x: Callable[[np.ndarray], np.ndarray], y: Callable[[np.ndarray], np.ndarray]) -> Line:
    t = np.linspace(0.0, 1.0, 80)
    return list(zip(x(t).tolist(), y(t).tolist()))


def _turns(number: float) -> Line:
    return _curve(lambda t: t * np.cos(2 * np.pi * number * t), lambda t: t * np.sin(2 * np.pi * number * t))


def _wave(periods: float) -> Line:
    return _curve(lambda t: 2 * t - 1, lambda t: 0.5 * np.sin(2 * np.pi * periods * t))


_CIRCLE = _regular(40)
_PLUS = [(a * x, b * y) for a, b, x, y in (
    (1, 1, 1, 0.3), (1, 1, 0.3, 0.3), (1, 1, 0.3, 1), (-1, 1, 0.3, 1), (-1, 1, 0.3, 0.3), (-1, 1, 1, 0.3),
    (-1, -1, 1, 0.3), (-1, -1, 0.3, 0.3), (-1, -1, 0.3, 1), (1, -1, 0.3, 1), (1, -1, 0.3, 0.3), (1, -1, 1, 0.3),
)]  # fmt: skip

FILLED: dict[str, Line] = {
    "disc": _CIRCLE,
    "square": _regular(4),
    "triangle": _regular(3),
    "star of 5": _regular(5, 0.4),
    "star of 8": _regular(8, 0.6),
    "plus": _PLUS,
    "bar": [(-1, -0.25), (1, -0.25), (1, 0.25), (-1, 0.25)],
    "arrow": [(-1, -0.2), (0.2, -0.2), (0.2, -0.7), (1, 0), (0.2, 0.7), (0.2, 0.2), (-1, 0.2)],
    "angle": [(-0.9, -0.9), (-0.3, -0.9), (-0.3, 0.3), (0.9, 0.3), (0.9, 0.9), (-0.9, 0.9)],
    "half disc": [point for point in _CIRCLE if point[1] >= -0.01],
    "heart": _curve(
        lambda t: np.sin(2 * np.pi * t) ** 3,
        lambda t: -(13 * np.cos(2 * np.pi * t) - 5 * np.cos(4 * np.pi * t) - 2 * np.cos(6 * np.pi * t)) / 16,
    ),
    "letter T": [(-1, -1), (1, -1), (1, -0.45), (0.28, -0.45), (0.28, 1), (-0.28, 1), (-0.28, -0.45), (-1, -0.45)],
    "star of 4": _regular(4, 0.35),
    "hourglass": [(-0.8, -1), (0.8, -1), (0.1, 0), (0.8, 1), (-0.8, 1), (-0.1, 0)],
}  # fmt: skip
LINES: dict[str, list[Line]] = {
    "ring": [_CIRCLE + _CIRCLE[:2]],
    "spiral": [_turns(2.2)],
    "wave": [_wave(1.5)],
    "zigzag": [[(-1 + i * 0.4, 0.5 if i % 2 else -0.5) for i in range(6)]],
    "grid": [[(x, -0.9), (x, 0.9)] for x in (-0.7, 0, 0.7)] + [[(-0.9, y), (0.9, y)] for y in (-0.7, 0, 0.7)],
    "two lines": [[(-1, -0.4), (1, -0.4)], [(-1, 0.4), (1, 0.4)]],
    "frame": [_regular(4) + _regular(4)[:2]],
    "cross": [[(-0.9, -0.9), (0.9, 0.9)], [(-0.9, 0.9), (0.9, -0.9)]],
    "two rings": [
        [(0.5 + 0.45 * x, 0.45 * y) for x, y in _CIRCLE + _CIRCLE[:2]],
        [(-0.5 + 0.45 * x, 0.45 * y) for x, y in _CIRCLE + _CIRCLE[:2]],
    ],
}

# The classes to fine-tune on; all others are there to get weights from.
NEW = ("heart", "letter T", "star of 4", "hourglass", "two rings", "cross")
OLD = tuple(name for name in (*FILLED, *LINES) if name not in NEW)


def draw(name: str, generator: np.random.Generator) -> Image.Image:
    """One image of a class, RGB, ``SIZE`` pixels wide and high."""
    side = SIZE * _FINER
    ground, ink = _two_colors(generator)
    canvas = Image.new("RGB", (side, side), ground)
    pen = ImageDraw.Draw(canvas)
    angle, radius = generator.uniform(-0.6, 0.6), side * generator.uniform(0.26, 0.38)
    center = generator.uniform(side * 0.42, side * 0.58, size=2)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    turn = turn @ np.diag([1.0, generator.uniform(0.75, 1.0)])

    def placed(line: Line) -> list[tuple[float, float]]:
        return [tuple(point) for point in (np.asarray(line) @ turn.T * radius + center).tolist()]

    if name in FILLED:
        pen.polygon(placed(FILLED[name]), fill=ink)
    for line in LINES.get(name, ()):
        pen.line(placed(line), fill=ink, width=int(side * generator.uniform(0.04, 0.07)), joint="curve")
    pixels = np.asarray(canvas.resize((SIZE, SIZE), Image.Resampling.BOX), dtype=np.float32)
    coarse = generator.normal(0.0, 14.0, size=(SIZE // 6, SIZE // 6, 3)).repeat(6, axis=0).repeat(6, axis=1)
    noise = coarse + generator.normal(0.0, 10.0, size=pixels.shape)
    return Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8))


def _two_colors(generator: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A light one, and a dark one."""
    light, dark = generator.integers(150, 236, size=3), generator.integers(20, 106, size=3)
    return tuple(light.tolist()), tuple(dark.tolist())


def write_drawn(root: Path, names: Sequence[str], train: int, val: int, seed: int = 0) -> Path:
    """``root/train`` and ``root/val`` with a folder of that many PNG files for each class; without ``val`` the class
    folders are directly in ``root``."""
    for label, name in enumerate(names):
        for split, number in (("train", train), ("val", val)) if val else (("", train),):
            folder = root / split / name
            folder.mkdir(parents=True, exist_ok=True)
            for index in range(number):
                generator = np.random.default_rng([seed, label, split == "val", index])
                draw(name, generator).save(folder / f"{index:04d}.png", compress_level=1)
    return root
