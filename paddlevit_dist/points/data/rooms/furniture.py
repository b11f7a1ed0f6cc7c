"""One builder for each kind of object: surfaces in the object's own frame, randomised by a generator.

Sizes are in metres, typical of homes and offices. The classes differ in shape, not in colour.
"""

from __future__ import annotations

from typing import Callable, Dict, NamedTuple, Tuple

import numpy as np

from .surfaces import ALL_FACES, STANDING, Surfaces

ACCENT = 1
FREE_TONES = range(2, 6)  # for multicoloured things


class Item(NamedTuple):
    """An object that has not been placed yet.

    Attributes:
        surfaces: in its own frame.
        width, depth: of its footprint, which is centred on x = 0 and starts at y = 0.
        height: of its top above the floor.
        lowest: of its lowest part; 0 for objects standing on the floor.
    """

    surfaces: Surfaces
    width: float
    depth: float
    height: float
    lowest: float = 0.0


Builder = Callable[[np.random.Generator], Item]


def chair(generator: np.random.Generator) -> Item:
    """On four legs or a base with castors, with or without arms; its back is at y = 0."""
    u, s = generator.uniform, Surfaces()
    width, depth, seat, top = u(0.42, 0.52), u(0.42, 0.52), u(0.42, 0.48), u(0.80, 1.02)
    half = width / 2
    s.box((-half, half), (0.0, depth), (seat - 0.05, seat), ALL_FACES)
    s.box((-half + 0.02, half - 0.02), (0.0, 0.05), (seat + u(0.0, 0.12), top), "xXyYZ", ACCENT)
    if generator.random() < 0.4:
        s.tube((0.0, depth / 2), (0.04, 0.04), (0.08, seat - 0.05), ACCENT, sides=6)
        s.box((-half, half), (depth / 2 - 0.03, depth / 2 + 0.03), (0.03, 0.09), "xXyYZ", ACCENT)
        s.box((-0.03, 0.03), (0.0, depth), (0.03, 0.09), "xXyYZ", ACCENT)
    else:
        for x in (-half, half - 0.04):
            for y in (0.0, depth - 0.04):
                s.box((x, x + 0.04), (y, y + 0.04), (0.0, seat - 0.05), "xXyY", ACCENT)
    if generator.random() < 0.4:
        for x in (-half - 0.04, half):
            s.box((x, x + 0.04), (0.05, depth - 0.08), (seat + 0.2, seat + 0.24), ALL_FACES, ACCENT)
    return Item(s, width + 0.08, depth, top)


def sofa(generator: np.random.Generator) -> Item:
    """Closed down to the floor, with arms, a back and separate cushions."""
    u, s = generator.uniform, Surfaces()
    width, depth, seat, arm, top = u(1.4, 2.2), u(0.8, 0.95), u(0.38, 0.45), u(0.55, 0.65), u(0.75, 0.92)
    half = width / 2
    s.box((-half, half), (0.0, 0.24), (0.05, top))
    for low in (-half, half - 0.18):
        s.box((low, low + 0.18), (0.2, depth), (0.05, arm))
    cushions = 3 if width > 1.8 else 2
    edges = np.linspace(-half + 0.18, half - 0.18, cushions + 1)
    s.box((edges[0], edges[-1]), (0.24, depth), (0.05, seat - 0.12), "Y")
    for low, high in zip(edges, edges[1:]):
        s.box((low + 0.01, high - 0.01), (0.24, depth + 0.02), (seat - 0.12, seat), STANDING, ACCENT)
        s.box((low + 0.02, high - 0.02), (0.24, 0.38), (seat, top - 0.04), "xXYZ", ACCENT)
    return Item(s, width, depth + 0.02, top)


def table(generator: np.random.Generator, low: bool = False) -> Item:
    """A top on four legs, or round on a column; ``low`` for a coffee table."""
    u, s = generator.uniform, Surfaces()
    height = u(0.38, 0.48) if low else u(0.70, 0.78)
    width, depth = u(0.8, 1.5), u(0.6, 0.95)
    if generator.random() < 0.35:
        depth = width = u(0.8, 1.15)
        middle = (0.0, depth / 2)
        s.tube(middle, (width / 2, width / 2), (height - 0.04, height), 0, closed="zZ", sides=14)
        s.tube(middle, (0.06, 0.06), (0.05, height - 0.04), ACCENT, sides=6)
        s.tube(middle, (0.28, 0.25), (0.0, 0.05), ACCENT, closed="Z")
        return Item(s, width, depth, height)
    s.box((-width / 2, width / 2), (0.0, depth), (height - 0.04, height), ALL_FACES)
    for x in (-width / 2 + 0.02, width / 2 - 0.09):
        for y in (0.02, depth - 0.09):
            s.box((x, x + 0.07), (y, y + 0.07), (0.0, height - 0.04), "xXyY", ACCENT)
    return Item(s, width, depth, height)


def low_table(generator: np.random.Generator) -> Item:
    return table(generator, low=True)


def desk(generator: np.random.Generator) -> Item:
    """A top on side panels with a back panel and a block of drawers."""
    u, s = generator.uniform, Surfaces()
    width, depth, height = u(1.1, 1.6), u(0.6, 0.75), u(0.70, 0.77)
    half, side = width / 2, 1 if generator.random() < 0.5 else -1
    s.box((-half, half), (0.0, depth), (height - 0.04, height), ALL_FACES)
    for low in (-half, half - 0.04):
        s.box((low, low + 0.04), (0.03, depth - 0.03), (0.0, height - 0.04), "xXY")
    s.box((-half, half), (0.05, 0.08), (0.25, height - 0.04), "yY")
    drawers = sorted((side * (half - 0.04), side * (half - 0.44)))
    for number in range(3):
        low = 0.08 + number * (height - 0.14) / 3
        high = low + (height - 0.14) / 3 - 0.02
        s.box(tuple(drawers), (0.1, depth - 0.05), (low, high), "xXY", ACCENT)
        middle = sum(drawers) / 2
        s.box((middle - 0.06, middle + 0.06), (depth - 0.05, depth - 0.01), (high - 0.06, high - 0.03), STANDING)
    return Item(s, width, depth, height)


def bed(generator: np.random.Generator) -> Item:
    """A headboard at y = 0, a mattress with a blanket that hangs over, one or two pillows."""
    u, s = generator.uniform, Surfaces()
    width, depth, top, head = u(0.95, 1.7), u(1.95, 2.1), u(0.44, 0.58), u(0.85, 1.15)
    half = width / 2
    s.box((-half, half), (0.0, 0.06), (0.0, head), "xXYZ", ACCENT)
    s.box((-half, half), (0.06, depth), (0.1, 0.28), "xXY", ACCENT)
    s.box((-half + 0.03, half - 0.03), (0.06, depth - 0.02), (0.28, top), STANDING, 2)
    s.box((-half - 0.02, half + 0.02), (u(0.55, 0.9), depth + 0.02), (u(0.2, 0.3), top + 0.05))
    pillows = 2 if width > 1.3 else 1
    room = (width - 0.1) / pillows
    for number in range(pillows):
        low = -half + 0.05 + number * room
        s.box((low + 0.04, low + room - 0.04), (0.1, 0.48), (top, top + 0.12), STANDING, 3)
    return Item(s, width + 0.04, depth + 0.02, head)


def cabinet(generator: np.random.Generator) -> Item:
    """Closed doors with knobs between a recessed base and an overhanging top; low or tall."""
    u, s = generator.uniform, Surfaces()
    tall = generator.random() < 0.4
    width, depth, height = u(0.6, 1.2), u(0.38, 0.52), u(1.3, 1.85) if tall else u(0.55, 0.95)
    half = width / 2
    s.box((-half + 0.04, half - 0.04), (0.02, depth - 0.07), (0.0, 0.09), "xXY", ACCENT)
    s.box((-half, half), (0.0, depth), (0.09, height - 0.04), "xX")
    s.box((-half - 0.03, half + 0.03), (0.0, depth + 0.04), (height - 0.04, height), ALL_FACES, ACCENT)
    doors = 3 if width > 1.0 else 2
    edges = np.linspace(-half, half, doors + 1)
    for number, (low, high) in enumerate(zip(edges, edges[1:])):
        s.box((low + 0.012, high - 0.012), (depth - 0.03, depth), (0.1, height - 0.05), "xXY")
        knob = high - 0.07 if number % 2 == 0 else low + 0.03
        middle = 0.5 * height
        s.box((knob, knob + 0.04), (depth, depth + 0.04), (middle - 0.08, middle + 0.08), "xXYZz", ACCENT)
    return Item(s, width + 0.06, depth + 0.04, height)


def bookshelf(generator: np.random.Generator) -> Item:
    """Open shelves between two sides, filled with rows of books of uneven height and depth."""
    u, s = generator.uniform, Surfaces()
    width, depth, height = u(0.7, 1.2), u(0.26, 0.34), u(1.2, 2.0)
    half, boards = width / 2, int(height / u(0.30, 0.37))
    s.box((-half, half), (0.0, 0.0), (0.0, height), "Y")
    for low in (-half, half - 0.03):
        s.box((low, low + 0.03), (0.0, depth), (0.0, height), "xXY")
    for level in np.linspace(0.06, height - 0.03, boards + 1):
        s.box((-half + 0.03, half - 0.03), (0.0, depth), (level, level + 0.03), "YzZ", ACCENT)
    gap = (height - 0.09) / boards
    for board in range(boards):
        floor, x = 0.09 + board * gap, -half + 0.04
        while x < half - 0.14:
            block = u(0.06, 0.2)
            if generator.random() < 0.72:
                front, top = u(0.55, 0.95) * depth, floor + u(0.5, 0.85) * gap
                tone = int(generator.choice(FREE_TONES))
                s.box((x, min(x + block, half - 0.03)), (0.02, front), (floor, top), "xXYZ", tone)
            x += block
    return Item(s, width, depth, height)


def refrigerator(generator: np.random.Generator) -> Item:
    """A deep closed box with two doors, one above the other, and vertical bars for handles."""
    u, s = generator.uniform, Surfaces()
    width, depth, height, split = u(0.62, 0.78), u(0.64, 0.74), u(1.55, 1.88), u(0.34, 0.68)
    half, gap = width / 2, split * height
    side = 1 if generator.random() < 0.5 else -1
    bar = sorted((side * (half - 0.05), side * (half - 0.10)))
    s.box((-half, half), (0.0, depth), (0.04, height), "xXZ")
    for is_upper, low, high in ((False, 0.06, gap - 0.015), (True, gap + 0.015, height)):
        s.box((-half, half), (depth, depth + 0.05), (low, high), "xXYzZ")
        length = min(0.5, high - low - 0.1)
        start = low + 0.05 if is_upper else high - 0.05 - length
        s.box(tuple(bar), (depth + 0.07, depth + 0.11), (start, start + length), ALL_FACES, ACCENT)
    return Item(s, width, depth + 0.11, height)


def counter(generator: np.random.Generator) -> Tuple[Item, float]:
    """A worktop with a low upstand at the wall and a hole for a sink, and where along its width the hole is; its
    support is a separate object."""
    u, s = generator.uniform, Surfaces()
    width, depth, height = u(1.3, 2.3), u(0.6, 0.66), u(0.86, 0.94)
    half, hole = width / 2, 0.28
    where = u(-half + 0.4, half - 0.4)
    s.box((-half, half), (0.0, 0.03), (height, height + 0.1), "xXYZ")
    for x, y in (
        ((-half, where - hole), (0.03, depth)),
        ((where + hole, half), (0.03, depth)),
        ((where - hole, where + hole), (0.03, 0.1)),
        ((where - hole, where + hole), (depth - 0.08, depth)),
    ):
        s.box(x, y, (height, height), "Z")
    s.box((-half, half), (0.0, depth), (height - 0.05, height), "xXYz")
    return Item(s, width, depth, height), where


def counter_base(generator: np.random.Generator, width: float, depth: float, height: float) -> Item:
    """The cabinets under a worktop, set back behind its edge."""
    s, half = Surfaces(), width / 2
    front, top = depth - 0.06, height - 0.05
    s.box((-half, half), (0.0, front), (0.1, top), "xX")
    s.box((-half, half), (0.0, front - 0.06), (0.0, 0.1), "Y", ACCENT)
    edges = np.linspace(-half, half, max(2, round(width / 0.5)) + 1)
    for low, high in zip(edges, edges[1:]):
        s.box((low + 0.012, high - 0.012), (front - 0.03, front), (0.1, top - 0.02), "xXY")
        s.box((high - 0.07, high - 0.03), (front, front + 0.04), (top - 0.22, top - 0.06), "xXYZz", ACCENT)
    return Item(s, width, depth, top)


def kitchen_sink(generator: np.random.Generator, height: float) -> Item:
    """A basin set into a worktop of the given height, with a tap behind it."""
    s = Surfaces()
    s.basin((-0.28, 0.28), (0.1, 0.54), (height - 0.17, height + 0.01), 0.04)
    s.tube((0.0, 0.07), (0.02, 0.02), (height, height + 0.25), ACCENT, sides=5)
    s.box((-0.02, 0.02), (0.07, 0.24), (height + 0.22, height + 0.26), ALL_FACES, ACCENT)
    return Item(s, 0.56, 0.54, height + 0.26)


def wash_basin(generator: np.random.Generator) -> Item:
    """A basin on a column."""
    u, s = generator.uniform, Surfaces()
    width, depth, height = u(0.48, 0.62), u(0.40, 0.48), u(0.80, 0.88)
    half = width / 2
    s.box((-half, half), (0.0, depth), (height - 0.16, height), "xXYz")
    s.basin((-half, half), (0.0, depth), (height - 0.12, height), 0.06)
    s.tube((0.0, 0.16), (0.10, 0.08), (0.0, height - 0.16), sides=8)
    s.tube((0.0, 0.05), (0.02, 0.02), (height, height + 0.14), ACCENT, sides=5)
    s.box((-0.02, 0.02), (0.05, 0.18), (height + 0.11, height + 0.15), ALL_FACES, ACCENT)
    return Item(s, width, depth, height + 0.15)


def toilet(generator: np.random.Generator) -> Item:
    """A cistern on the wall, a bowl that widens upwards, a lid that is down or raised."""
    u, s = generator.uniform, Surfaces()
    seat, tank = u(0.38, 0.43), u(0.72, 0.82)
    s.box((-0.2, 0.2), (0.0, 0.18), (seat - 0.02, tank))
    s.box((-0.22, 0.22), (0.0, 0.2), (tank, tank + 0.04), ALL_FACES)
    s.tube((0.0, 0.42), (0.12, 0.2), (0.0, seat), stretch=1.3)
    s.box((-0.1, 0.1), (0.0, 0.3), (0.0, seat - 0.05), "xX")
    if generator.random() < 0.5:
        s.tube((0.0, 0.42), (0.2, 0.2), (seat, seat + 0.04), ACCENT, 1.3, "Z")
    else:
        s.tube((0.0, 0.42), (0.2, 0.15), (seat, seat), stretch=1.3)
        s.tube((0.0, 0.42), (0.15, 0.07), (seat, seat - 0.2), stretch=1.3, closed="Z")
        s.box((-0.19, 0.19), (0.2, 0.24), (seat + 0.02, seat + 0.44), ALL_FACES, ACCENT)
    return Item(s, 0.44, 0.7, tank + 0.04)


def bathtub(generator: np.random.Generator) -> Item:
    """A long tub with a broad rim, closed on the outside."""
    u, s = generator.uniform, Surfaces()
    width, depth, height = u(1.5, 1.7), u(0.7, 0.8), u(0.48, 0.6)
    s.box((-width / 2, width / 2), (0.0, depth), (0.0, height), "xXY")
    s.basin((-width / 2, width / 2), (0.0, depth), (u(0.1, 0.16), height), 0.08)
    return Item(s, width, depth, height)


def shower_curtain(generator: np.random.Generator, width: float) -> Item:
    """A rod over the whole width and, drawn over part of it, a cloth in narrow folds."""
    u, s = generator.uniform, Surfaces()
    rod, drawn, half = u(1.95, 2.1), u(0.4, 0.85) * width, width / 2
    s.box((-half, half), (-0.015, 0.015), (rod, rod + 0.03), "yYzZ", ACCENT)
    start = -half if generator.random() < 0.5 else half - drawn
    s.folds((start, start + drawn), 0.0, (u(0.12, 0.3), rod), u(0.03, 0.045), u(0.11, 0.16))
    return Item(s, width, 0.1, rod)


def curtain(generator: np.random.Generator, opening: float) -> Item:
    """Two cloths in wide folds at either side of a window of the given width, under a rod."""
    u, s = generator.uniform, Surfaces()
    rod, part = u(2.1, 2.2), u(0.28, 0.45)
    bottom = u(0.05, 0.3) if generator.random() < 0.5 else u(0.65, 0.8)
    half = opening / 2 + part - 0.1
    s.box((-half, half), (0.08, 0.11), (rod, rod + 0.03), "yYzZ", ACCENT)
    depth, length = u(0.035, 0.055), u(0.16, 0.24)
    s.folds((-half, -half + part), 0.1, (bottom, rod), depth, length)
    s.folds((half - part, half), 0.1, (bottom, rod), depth, length)
    return Item(s, 2 * half, 0.17, rod, bottom)


def window(generator: np.random.Generator) -> Item:
    """A recess in the wall with a frame, a sill and glass that a scanner hardly sees."""
    u, s = generator.uniform, Surfaces()
    width, low, high, recess = u(0.9, 1.5), u(0.8, 1.0), u(1.85, 2.1), u(0.1, 0.16)
    half = width / 2
    s.box((-half, half), (-recess, 0.0), (low, high), "xXzZ")
    s.box((-half, half), (-recess, -recess), (low, high), "Y", 2, kept=0.3)
    for x in (-half, -0.035, half - 0.07):
        s.box((x, x + 0.07), (-recess, -recess + 0.06), (low, high), "xXY", ACCENT)
    for z in (low, high - 0.07):
        s.box((-half, half), (-recess, -recess + 0.06), (z, z + 0.07), "YzZ", ACCENT)
    s.box((-half - 0.05, half + 0.05), (0.0, 0.12), (low - 0.04, low), ALL_FACES, ACCENT)
    return Item(s, width, 0.12, high, low)


def door(generator: np.random.Generator) -> Item:
    """A frame that stands out from the wall around a recessed leaf with a handle."""
    u, s = generator.uniform, Surfaces()
    width, height, recess = u(0.85, 1.0), u(2.0, 2.12), u(0.06, 0.12)
    half, frame = width / 2, 0.08
    for low in (-half, half - frame):
        s.box((low, low + frame), (-recess, 0.05), (0.0, height), "xXY", ACCENT)
    s.box((-half, half), (-recess, 0.05), (height - frame, height), "YzZ", ACCENT)
    s.box((-half + frame, half - frame), (-recess, -recess), (0.0, height - frame), "Y")
    side = 1 if generator.random() < 0.5 else -1
    handle = sorted((side * (half - 0.14), side * (half - 0.26)))
    s.box(tuple(handle), (-recess + 0.04, -recess + 0.08), (1.0, 1.04), ALL_FACES, 2)
    return Item(s, width, 0.08, height)


def picture(generator: np.random.Generator) -> Item:
    """A frame around a flat multicoloured print."""
    u, s = generator.uniform, Surfaces()
    width, height, thickness, middle = u(0.35, 0.95), u(0.35, 0.8), u(0.04, 0.07), u(1.4, 1.65)
    half, low, high = width / 2, middle - height / 2, middle + height / 2
    s.box((-half, half), (0.0, thickness), (low, high), "xXzZ", ACCENT)
    xs, zs = np.linspace(-half, half, 3), np.linspace(low, high, 3)
    for column in range(2):
        for row in range(2):
            tone = int(generator.choice(FREE_TONES))
            s.box((xs[column], xs[column + 1]), (thickness, thickness), (zs[row], zs[row + 1]), "Y", tone)
    return Item(s, width, thickness, high, low)


def lamp(generator: np.random.Generator) -> Item:
    """A shade on a pole."""
    u, s = generator.uniform, Surfaces()
    top, radius = u(1.4, 1.75), u(0.17, 0.24)
    middle = (0.0, radius)
    s.tube(middle, (0.15, 0.13), (0.0, 0.04), ACCENT, closed="Z")
    s.tube(middle, (0.02, 0.02), (0.04, top - 0.25), ACCENT, sides=5)
    s.tube(middle, (radius, 0.7 * radius), (top - 0.28, top))
    return Item(s, 2 * radius, 2 * radius, top)


def bin_(generator: np.random.Generator) -> Item:
    """Round, wider at the top, open."""
    u, s = generator.uniform, Surfaces()
    height, radius = u(0.3, 0.5), u(0.14, 0.2)
    s.tube((0.0, radius), (0.75 * radius, radius), (0.0, height))
    s.tube((0.0, radius), (0.7 * radius, 0.95 * radius), (0.03, height), closed="z")
    return Item(s, 2 * radius, 2 * radius, height)


def plant(generator: np.random.Generator) -> Item:
    """A pot with leaves on all sides."""
    u, s = generator.uniform, Surfaces()
    pot, radius, top = u(0.22, 0.35), u(0.14, 0.2), u(0.8, 1.4)
    middle = np.array([0.0, 0.3])
    s.tube((0.0, 0.3), (0.7 * radius, radius), (0.0, pot), ACCENT, closed="Z")
    for _ in range(14):
        direction = generator.normal(size=2)
        direction *= u(0.1, 0.28) / max(float(np.hypot(*direction)), 1e-6)
        foot = (*middle, u(pot, 0.8 * top))
        s.panel(foot, (*direction, u(0.05, 0.2)), (-0.4 * direction[1], 0.4 * direction[0], 0.05))
    return Item(s, 0.6, 0.6, top)


def clutter(generator: np.random.Generator) -> Item:
    """An unlabelled box of any size."""
    u, s = generator.uniform, Surfaces()
    width, depth, height = u(0.15, 0.4), u(0.12, 0.3), u(0.1, 0.35)
    s.box((-width / 2, width / 2), (0.0, depth), (0.0, height), "xXyYZ")
    return Item(s, width, depth, height)


OTHER_FURNITURE: Dict[str, Builder] = {"lamp": lamp, "bin": bin_, "plant": plant}
