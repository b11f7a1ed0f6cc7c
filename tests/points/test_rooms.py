"""The embedded rooms: their contents, that they never change, and that colour and height do not give them away."""

from __future__ import annotations

import hashlib
import pickle
import time

import numpy as np
import pytest

from benchmarks.color_height_baseline import baseline
from paddlevit_dist.errors import UserError
from paddlevit_dist.points.data.rooms.dataset import SyntheticRooms
from paddlevit_dist.points.data.rooms.generator import GENERATOR_VERSION, make_room
from paddlevit_dist.points.data.rooms.surfaces import Surfaces, join, scatter
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES

FLOOR, WALL = CLASS_NAMES.index("floor"), CLASS_NAMES.index("wall")


@pytest.fixture(scope="module")
def rooms():
    dataset = SyntheticRooms(None, "val", None)
    return [dataset.read(index) for index in range(20)]


def test_a_room_has_the_agreed_arrays(rooms):
    for number, room in enumerate(rooms):
        points = len(room.xyz)
        assert 15_000 < points < 70_000
        assert room.xyz.dtype == np.float32 and room.xyz.shape == (points, 3)
        assert room.rgb.dtype == np.uint8 and room.rgb.shape == (points, 3)
        assert room.semantic.dtype == room.instance.dtype == np.int16
        assert room.semantic.shape == room.instance.shape == (points,)
        assert set(np.unique(room.semantic)) <= {-100, *range(20)}
        assert np.isfinite(room.xyz).all() and room.name == f"val_{number:05d}"
        low, high = room.xyz.min(axis=0), room.xyz.max(axis=0)
        assert (low > -0.3).all() and (high < (5.4, 4.8, 2.6)).all()  # windows reach into the walls


def test_instances_are_numbered_without_gaps_and_have_one_class_each(rooms):
    for room in rooms:
        numbers = np.unique(room.instance)
        assert numbers.tolist() == [-100, *range(len(numbers) - 1)] and len(numbers) > 4
        for number in numbers[1:]:
            assert len(np.unique(room.semantic[room.instance == number])) == 1


def test_floor_walls_and_unlabelled_things_have_no_instance_and_furniture_has(rooms):
    for room in rooms:
        without = np.isin(room.semantic, (FLOOR, WALL, -100))
        assert (room.instance[without] == -100).all() and (room.instance[~without] >= 0).all()
    assert any((room.semantic == -100).any() for room in rooms)


def test_twenty_rooms_have_all_classes(rooms):
    points = np.sum([np.bincount(room.semantic[room.semantic >= 0], minlength=20) for room in rooms], axis=0)
    assert len(points) == 20 and points.min() > 500


def test_the_floor_is_at_the_bottom_and_walls_are_upright(rooms):
    for room in rooms:
        assert abs(room.xyz[room.semantic == FLOOR, 2]).max() < 0.05
        wall = room.xyz[room.semantic == WALL]
        width, depth = room.xyz[room.semantic == FLOOR, :2].max(axis=0)
        distance = np.stack([wall[:, 0], wall[:, 1], width - wall[:, 0], depth - wall[:, 1]])
        assert abs(distance).min(axis=0).max() < 0.08


def test_furniture_does_not_stand_in_furniture(rooms):
    # Two instances share hardly any 10 cm cell, other than a sink in its counter or a chair under its table.
    meeting = {frozenset(pair) for pair in (("counter", "sink"), ("counter", "cabinet"), ("cabinet", "sink"))}
    meeting |= {frozenset((seat, "chair")) for seat in ("table", "desk")} | {frozenset(("window", "curtain"))}
    shares = []
    for room in rooms:
        labelled = room.instance >= 0
        cell = np.floor(room.xyz[labelled] / 0.1).astype(np.int64) + 10
        keys = (cell[:, 0] * 1000 + cell[:, 1]) * 1000 + cell[:, 2]
        of_instance = {number: set(keys[room.instance[labelled] == number]) for number in np.unique(room.instance)[1:]}
        names = {n: CLASS_NAMES[room.semantic[room.instance == n][0]] for n in of_instance}
        for a in of_instance:
            for b in of_instance:
                if a < b and frozenset((names[a], names[b])) not in meeting:
                    shares.append(len(of_instance[a] & of_instance[b]) / min(len(of_instance[a]), len(of_instance[b])))
    assert np.mean(shares) < 0.01 and np.quantile(shares, 0.97) < 0.1


@pytest.mark.parametrize("spacing", (0.02, 0.05))
def test_the_spacing_decides_the_density(spacing):
    room = make_room(0, (0, 0), spacing, "room")
    floor = room.xyz[room.semantic == FLOOR]
    patch = np.floor(floor[:, :2] / 0.5).astype(int)
    _, counts = np.unique(patch, axis=0, return_counts=True)
    assert np.quantile(counts, 0.8) == pytest.approx((0.5 / spacing) ** 2, rel=0.1)  # the open floor


def test_a_room_depends_on_seed_split_and_index_alone():
    train, val = (SyntheticRooms(None, split, None, num_train=3, num_val=3) for split in ("train", "val"))
    first = train.read(1)
    assert all(np.array_equal(a, b) for a, b in zip(first[:4], train.read(1)[:4]))
    longer = SyntheticRooms(None, "train", None, num_train=9)
    assert np.array_equal(first.xyz, longer.read(1).xyz) and len(longer) == 9
    others = [val.read(1), train.read(2), SyntheticRooms(None, "train", None, seed=1).read(1)]
    assert not any(len(other.xyz) == len(first.xyz) for other in others)


def test_the_generator_is_frozen():
    # Whoever changes the rooms raises GENERATOR_VERSION, and what was reached on them must be measured again.
    rooms = [make_room(index, (0, 0), 0.05, "room") for index in range(20)]
    labels = b"".join(room.semantic.tobytes() + room.instance.tobytes() for room in rooms)
    assert GENERATOR_VERSION == 1
    assert hashlib.sha256(labels).hexdigest()[:16] == "7daa7de13d462707"
    assert np.mean([room.xyz.mean(axis=0, dtype=np.float64) for room in rooms], axis=0) == pytest.approx(
        [1.845787, 1.674574, 0.867623], abs=1e-4
    )
    assert np.mean([room.rgb.mean(axis=0) for room in rooms], axis=0) == pytest.approx(
        [108.2441, 109.3209, 109.6938], abs=0.01
    )


def test_a_room_takes_little_time():
    make_room(0, (0, 0), 0.04, "room")
    start = time.process_time()
    for index in range(5):
        make_room(index, (0, 0), 0.04, "room")
    assert (time.process_time() - start) / 5 < 0.3


def test_color_and_height_alone_reach_little():
    best, _ = baseline(train_rooms=40, val_rooms=15, spacing_m=0.06)
    assert best <= 0.35


def test_a_loader_process_is_sent_little():
    dataset = SyntheticRooms(None, "train", None)
    stored = pickle.dumps(dataset)
    assert len(stored) <= 1000
    assert np.array_equal(pickle.loads(stored).read(0).xyz, dataset.read(0).xyz)


def test_bad_options_are_told():
    with pytest.raises(UserError, match="synthetic_rooms has no split 'test'"):
        SyntheticRooms(None, "test", None)
    with pytest.raises(UserError, match="spacing of synthetic_rooms is 0 m; expected 0.01 to 0.2"):
        SyntheticRooms(None, "train", None, spacing_m=0)
    with pytest.raises(IndexError):
        SyntheticRooms(None, "val", None, num_val=2).read(2)
    assert "val_00001" in SyntheticRooms(None, "val", None).describe(1)


def test_points_lie_on_their_surfaces_as_densely_as_asked():
    surfaces = Surfaces()
    surfaces.panel((1.0, 0.0, 0.0), (2.0, 0.0, 0.0), (0.0, 0.0, 1.0))
    surfaces.panel((0.0, 3.0, 0.0), (2.0, 0.0, 0.0), (0.0, 1.0, 0.0), triangle=True)
    surfaces.panel((0.0, 0.0, 5.0), (0.01, 0.0, 0.0), (0.0, 20.0, 0.0))  # narrower than the spacing
    surfaces.panel((0.0, 0.0, 7.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), kept=0.25)
    xyz, piece = scatter(join([(surfaces, 0.0, (0.0, 0.0, 0.0))]), 0.02, np.random.default_rng(0))
    counts = np.bincount(piece)
    assert counts[[0, 1, 3]] / 2500 == pytest.approx([2.0, 1.0, 0.25], rel=0.06)
    assert counts[2] in (0, 1000)
    panel, triangle = xyz[piece == 0], xyz[piece == 1]
    assert (panel[:, 1] == 0).all() and panel[:, 0].min() > 1 and panel[:, 0].max() < 3
    assert (triangle[:, 0] / 2 + triangle[:, 1] - 3 <= 1 + 1e-9).all()


def test_objects_are_turned_and_moved():
    surfaces = Surfaces()
    surfaces.panel((1.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
    pieces = join([(surfaces, 0.5 * np.pi, (10.0, 20.0, 30.0))])
    assert pieces.corner[0] == pytest.approx([10.0, 21.0, 30.0])
    assert pieces.first[0] == pytest.approx([0.0, 1.0, 0.0])
    assert abs(pieces.normal[0]) == pytest.approx([1.0, 0.0, 0.0])
