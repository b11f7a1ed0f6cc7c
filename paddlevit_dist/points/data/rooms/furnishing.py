"""What belongs in which room: bedrooms, bathrooms, kitchens, living rooms and offices."""

from __future__ import annotations

import math

import numpy as np

from . import furniture
from .plan import Placed, Plan, Rectangle


def furnish(index: int, generator: np.random.Generator) -> Plan:
    """A room of the kind given by ``index``, filled with what belongs in it; objects that do not fit are left out. Five
    consecutive rooms are of five kinds."""
    x_range, y_range, put_furniture = KINDS[index % len(KINDS)]
    plan = Plan((generator.uniform(*x_range), generator.uniform(*y_range)), generator.uniform(2.25, 2.5), generator)
    plan.hang("door", furniture.door(generator), opening=True, in_front=0.7)
    put_furniture(plan, generator)
    _clutter(plan, generator)
    return plan


def _bedroom(plan: Plan, generator: np.random.Generator) -> None:
    _window(plan, generator, with_curtain=0.8)
    plan.stand("bed", furniture.bed(generator), in_front=0.3)
    _several(plan, generator, "cabinet", furniture.cabinet, 1, 2, in_front=0.3)
    if generator.random() < 0.6:
        _desk(plan, generator)
    if generator.random() < 0.3:
        plan.stand("bookshelf", furniture.bookshelf(generator), in_front=0.3)
    _other(plan, generator, 1, 2)
    _several_pictures(plan, generator, 1, 2)


def _bathroom(plan: Plan, generator: np.random.Generator) -> None:
    tub = furniture.bathtub(generator)
    found = plan.stand("bathtub", tub, in_front=0.25)
    if found is not None:
        wall, along, _ = found
        cloth = furniture.shower_curtain(generator, tub.width)
        plan.placed.append(Placed("shower curtain", cloth, wall.angle, wall.offset(along, tub.depth + 0.08)))
    plan.stand("toilet", furniture.toilet(generator), in_front=0.25)
    plan.stand("sink", furniture.wash_basin(generator), in_front=0.25)
    if generator.random() < 0.5:
        plan.stand("cabinet", furniture.cabinet(generator), in_front=0.2)
    if generator.random() < 0.4:
        _window(plan, generator, with_curtain=0.0)
    _other(plan, generator, 0, 1)
    _several_pictures(plan, generator, 0, 1)


def _kitchen(plan: Plan, generator: np.random.Generator) -> None:
    worktop, hole = furniture.counter(generator)
    found = plan.stand("counter", worktop, in_front=0.4)
    if found is not None:
        wall, _, thing = found
        base = furniture.counter_base(generator, worktop.width, worktop.depth, worktop.height)
        plan.placed.append(Placed("cabinet", base, thing.angle, thing.offset))
        basin = furniture.kitchen_sink(generator, worktop.height)
        cosine, sine = math.cos(thing.angle), math.sin(thing.angle)
        offset = (thing.offset[0] + hole * cosine, thing.offset[1] + hole * sine, 0.0)
        plan.placed.append(Placed("sink", basin, thing.angle, offset))
    plan.stand("refrigerator", furniture.refrigerator(generator), in_front=0.3)
    _dining_table(plan, generator)
    _several(plan, generator, "cabinet", furniture.cabinet, 0, 1, in_front=0.3)
    _window(plan, generator, with_curtain=0.3)
    _other(plan, generator, 0, 1)
    _several_pictures(plan, generator, 0, 1)


def _living_room(plan: Plan, generator: np.random.Generator) -> None:
    _window(plan, generator, with_curtain=0.9)
    _several(plan, generator, "sofa", furniture.sofa, 1, 2, in_front=0.35)
    plan.stand_free("table", furniture.low_table(generator), 0.15)
    plan.stand("bookshelf", furniture.bookshelf(generator), in_front=0.3)
    _several(plan, generator, "cabinet", furniture.cabinet, 0, 1, in_front=0.3)
    _several(plan, generator, "chair", furniture.chair, 0, 2, in_front=0.2)
    _other(plan, generator, 1, 2)
    _several_pictures(plan, generator, 1, 3)


def _office(plan: Plan, generator: np.random.Generator) -> None:
    _window(plan, generator, with_curtain=0.4)
    for _ in range(int(generator.integers(1, 3))):
        _desk(plan, generator)
    _several(plan, generator, "bookshelf", furniture.bookshelf, 1, 2, in_front=0.3)
    _several(plan, generator, "cabinet", furniture.cabinet, 0, 1, in_front=0.3)
    if generator.random() < 0.3:
        plan.stand("refrigerator", furniture.refrigerator(generator), in_front=0.3)
    if generator.random() < 0.4:
        _dining_table(plan, generator)
    _other(plan, generator, 1, 1)
    _several_pictures(plan, generator, 0, 2)


# Size of the floor in x and y, metres, and what goes into the room.
KINDS = (
    ((3.2, 4.4), (3.0, 4.0), _bedroom),
    ((2.3, 3.1), (2.2, 3.0), _bathroom),
    ((3.2, 4.6), (3.0, 4.0), _kitchen),
    ((3.6, 5.0), (3.4, 4.4), _living_room),
    ((3.2, 4.6), (3.0, 4.2), _office),
)


def _several(
    plan: Plan,
    generator: np.random.Generator,
    name: str,
    builder: furniture.Builder,
    fewest: int,
    most: int,
    in_front: float,
) -> None:
    for _ in range(int(generator.integers(fewest, most + 1))):
        plan.stand(name, builder(generator), in_front)


def _several_pictures(plan: Plan, generator: np.random.Generator, fewest: int, most: int) -> None:
    for _ in range(int(generator.integers(fewest, most + 1))):
        plan.hang("picture", furniture.picture(generator))


def _other(plan: Plan, generator: np.random.Generator, fewest: int, most: int) -> None:
    for _ in range(int(generator.integers(fewest, most + 1))):
        builder = furniture.OTHER_FURNITURE[str(generator.choice(sorted(furniture.OTHER_FURNITURE)))]
        plan.stand("otherfurniture", builder(generator))


def _window(plan: Plan, generator: np.random.Generator, with_curtain: float) -> None:
    item = furniture.window(generator)
    if generator.random() >= with_curtain:
        plan.hang("window", item, opening=True)
        return
    cloth = furniture.curtain(generator, item.width)
    found = plan.hang("window", item, cloth.width, opening=True)
    if found is not None:
        wall, along = found
        wall.taken.append((along - cloth.width / 2, along + cloth.width / 2, cloth.lowest, cloth.height))
        plan.placed.append(Placed("curtain", cloth, wall.angle, wall.offset(along, 0.0)))


def _desk(plan: Plan, generator: np.random.Generator) -> None:
    item = furniture.desk(generator)
    found = plan.stand("desk", item, in_front=0.5)
    if found is None:
        return
    wall, along, thing = found
    seat = furniture.chair(generator)
    angle = wall.angle + math.pi + generator.normal(0.0, 0.3)
    away = item.depth + generator.uniform(0.15, 0.35)
    centre = wall.offset(along + generator.uniform(-0.2, 0.2), away)
    plan.stand_at(plan.centred("chair", seat, angle, centre), thing.rectangle(0.5))


def _dining_table(plan: Plan, generator: np.random.Generator) -> None:
    item = furniture.table(generator)
    thing = plan.stand_free("table", item, 0.25)
    if thing is None:
        return
    occupied: Rectangle = thing.rectangle()
    for side in generator.permutation(4)[: int(generator.integers(2, 5))].tolist():
        seat = furniture.chair(generator)
        half = (item.depth if side % 2 == 0 else item.width) / 2
        direction = thing.angle + 0.5 * math.pi * (side + 1)  # from the centre of the table to the chair
        away = half + generator.uniform(0.12, 0.3)
        middle = (
            thing.offset[0] - 0.5 * item.depth * math.sin(thing.angle),
            thing.offset[1] + 0.5 * item.depth * math.cos(thing.angle),
        )
        centre = (middle[0] + away * math.cos(direction), middle[1] + away * math.sin(direction))
        angle = direction + 0.5 * math.pi + generator.normal(0.0, 0.25)  # a chair faces along its own y
        plan.stand_at(plan.centred("chair", seat, angle, centre), occupied)


def _clutter(plan: Plan, generator: np.random.Generator) -> None:
    """Unlabelled clutter, on the floor and on furniture."""
    for _ in range(int(generator.integers(0, 3))):
        plan.stand_free(None, furniture.clutter(generator), 0.05)
    for under in [thing for thing in plan.placed if thing.class_name in ("table", "desk")]:
        if generator.random() < 0.4:
            item = furniture.clutter(generator)
            x_low, x_high, y_low, y_high = under.rectangle()
            centre = (generator.uniform(0.3, 0.7) * (x_high - x_low) + x_low, (y_low + y_high) / 2)
            on_top = plan.centred(None, item, generator.uniform(0.0, 2.0 * math.pi), centre)
            plan.placed.append(on_top._replace(offset=(*on_top.offset[:2], under.item.height)))
