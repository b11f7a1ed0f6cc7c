"""A furnished room as the points that a scanner would capture.

The generator is frozen: its output for a seed is part of every result obtained with it. If you change it, bump
``GENERATOR_VERSION`` and redo the measurements.
"""

from __future__ import annotations

import colorsys
import math
from typing import Tuple

import numpy as np

from ..scannet_classes import CLASS_NAMES
from ..scene import IGNORED, Scene
from .furnishing import furnish
from .plan import Plan
from .surfaces import Pieces, join, scatter

GENERATOR_VERSION = 1

_NOISE_M = 0.006  # standard deviation of a coordinate
_NUM_TONES = 6
_COLOR_NOISE = 7.0  # standard deviation, out of 255


def make_room(index: int, seed: Tuple[int, ...], spacing_m: float, name: str) -> Scene:
    """Room ``index`` for ``seed``; its kind is ``index`` modulo five.

    Furniture has instances from 0 without gaps; floor and walls have none, as in PointGroup's ScanNet; unlabelled
    things have neither class nor instance. Colours are independent of the class.

    Args:
        seed: numbers that the room depends on besides ``index``.
        spacing_m: mean distance between neighbouring points.
    """
    generator = np.random.default_rng([GENERATOR_VERSION, *seed, index])
    plan = furnish(index, generator)
    structure = [(plan.floor_surface(), 0.0, (0.0, 0.0, 0.0))]
    structure += [(wall, 0.0, (0.0, 0.0, 0.0)) for wall in plan.wall_surfaces()]
    pieces = join(structure + [(thing.item.surfaces, thing.angle, thing.offset) for thing in plan.placed])
    semantic, instance = _labels(plan)  # (objects,)
    xyz, piece = scatter(pieces, spacing_m, generator)  # (points, 3), (points,)
    seen = _seen(xyz, plan.size, generator)
    xyz, piece = xyz[seen], piece[seen]
    rgb = _colors(pieces, _tones(len(semantic), generator), xyz, piece, generator)
    xyz += generator.normal(0.0, _NOISE_M, xyz.shape)
    owner = pieces.owner[piece]
    return Scene(xyz.astype(np.float32), rgb, semantic[owner], _without_gaps(instance[owner]), name)


def _labels(plan: Plan) -> Tuple[np.ndarray, np.ndarray]:
    """Class and instance of each object, int16: floor, walls, then what was placed."""
    numbers = {name: number for number, name in enumerate(CLASS_NAMES)}
    semantic = [numbers["floor"]] + len(plan.walls) * [numbers["wall"]]
    instance = len(semantic) * [IGNORED]
    for number, thing in enumerate(plan.placed):
        is_labelled = thing.class_name is not None
        semantic.append(numbers[thing.class_name] if is_labelled else IGNORED)
        instance.append(number if is_labelled else IGNORED)
    return np.array(semantic, np.int16), np.array(instance, np.int16)


def _without_gaps(instance: np.ndarray) -> np.ndarray:
    """Renumber the instances that have points from 0."""
    occurring = np.unique(instance[instance >= 0])
    numbered = np.searchsorted(occurring, instance).astype(np.int16)
    return np.where(instance >= 0, numbered, np.int16(IGNORED))


def _seen(xyz: np.ndarray, size: Tuple[float, float], generator: np.random.Generator) -> np.ndarray:
    """Which points the scanner saw: a few balls in the room were almost completely missed."""
    missed = np.zeros(len(xyz), bool)
    for _ in range(int(generator.integers(2, 6))):
        centre = generator.uniform((0.0, 0.0, 0.0), (*size, 2.0))
        radius = generator.uniform(0.15, 0.4)
        missed |= ((xyz - centre) ** 2).sum(axis=1) < radius**2
    return ~(missed & (generator.random(len(xyz)) < 0.85))


def _tones(objects: int, generator: np.random.Generator) -> np.ndarray:
    """The colours of each object, (objects, tones, 3) from 0 to 1: a main one, a second that is often a shade of it,
    and arbitrary ones."""
    tones = np.empty((objects, _NUM_TONES, 3))
    for number in range(objects):
        for tone in range(_NUM_TONES):
            hue, grey, value = generator.random(3)
            tones[number, tone] = colorsys.hsv_to_rgb(hue, 0.7 * grey**2, 0.15 + 0.8 * value)
        if generator.random() < 0.6:
            tones[number, 1] = np.clip(tones[number, 0] * generator.uniform(0.6, 1.3), 0.0, 1.0)
    return tones


def _colors(
    pieces: Pieces, tones: np.ndarray, xyz: np.ndarray, piece: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """uint8 (points, 3): tone, directional light, stripes and noise."""
    light = _direction(generator)
    shade = 0.82 + 0.18 * np.abs(pieces.normal @ light)  # (pieces,)
    color = 255.0 * tones[pieces.owner, pieces.tone] * shade[:, None]  # (pieces, 3)
    waves = np.stack([_direction(generator) for _ in range(len(tones))])  # (objects, 3)
    waves *= 2.0 * math.pi * generator.uniform(1.0, 6.0, (len(tones), 1))
    strength = generator.uniform(0.0, 0.15, len(tones))
    owner = pieces.owner[piece]
    stripes = 1.0 + strength[owner] * np.sin(np.einsum("pd,pd->p", xyz, waves[owner]))
    values = color[piece] * stripes[:, None] + generator.normal(0.0, _COLOR_NOISE, (len(piece), 3))
    return np.clip(values, 0.0, 255.0).astype(np.uint8)


def _direction(generator: np.random.Generator) -> np.ndarray:
    direction = generator.normal(size=3)
    return direction / np.linalg.norm(direction)
