"""The embedded rooms: their contents, that they never change, and that color and height do not give them away."""

import hashlib
import pickle

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.points.data.rooms import GENERATOR_VERSION, SyntheticRooms, generate_room
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES

FLOOR, WALL = CLASS_NAMES.index("floor"), CLASS_NAMES.index("wall")


@pytest.fixture(scope="module")
def rooms():
    dataset = SyntheticRooms(None, "val", None)
    return [dataset.read(index) for index in range(20)]


def test_a_room_has_the_agreed_arrays(rooms):
    for number, room in enumerate(rooms):
        points = len(room.xyz)
        assert 15_000 < points < 80_000
        assert room.xyz.dtype == np.float32 and room.xyz.shape == (points, 3)
        assert room.rgb.dtype == np.uint8 and room.rgb.shape == (points, 3)
        assert room.semantic.dtype == room.instance.dtype == np.int16
        assert room.semantic.shape == room.instance.shape == (points,)
        assert set(np.unique(room.semantic)) <= {-100, *range(20)}
        assert np.isfinite(room.xyz).all() and room.name == f"val_{number:05d}"
        assert (room.xyz > -0.05).all() and (room.xyz < (5.05, 4.45, 2.55)).all()


def test_instances_are_numbered_without_gaps_and_have_one_class_each(rooms):
    for room in rooms:
        numbers = np.unique(room.instance)
        assert numbers.tolist() == [-100, *range(len(numbers) - 1)] and len(numbers) > 4
        for number in numbers[1:]:
            assert len(np.unique(room.semantic[room.instance == number])) == 1


def test_floor_walls_and_unlabeled_things_have_no_instance_and_furniture_has(rooms):
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
        width, depth = wall[:, :2].max(axis=0)
        distance = np.stack([wall[:, 0], wall[:, 1], width - wall[:, 0], depth - wall[:, 1]])
        assert abs(distance).min(axis=0).max() < 0.08


def test_things_lie_apart(rooms):
    for room in rooms:
        own = [room.xyz[room.instance == number] for number in range(room.instance.max() + 1)]
        for number, one in enumerate(own):
            for other in own[:number]:  # a gap of 8 cm along some axis, and noise of 0.6 cm
                assert max((one.min(axis=0) - other.max(axis=0)).max(), (other.min(axis=0) - one.max(axis=0)).max()) > 0


@pytest.mark.parametrize("spacing", (0.02, 0.05))
def test_the_spacing_decides_the_density(spacing):
    room = generate_room(0, (0, 0), spacing, "room")
    floor = room.xyz[room.semantic == FLOOR]
    _, counts = np.unique(np.floor(floor[:, :2] / 0.5).astype(int), axis=0, return_counts=True)
    assert np.quantile(counts, 0.9) == pytest.approx((0.5 / spacing) ** 2, rel=0.1)  # the open floor


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
    rooms = [generate_room(index, (0, 0), 0.05, "room") for index in range(20)]
    labels = b"".join(room.semantic.tobytes() + room.instance.tobytes() for room in rooms)
    assert GENERATOR_VERSION == 2
    assert hashlib.sha256(labels).hexdigest()[:16] == "c0892432bb08c0fd"
    assert np.mean([room.xyz.mean(axis=0, dtype=np.float64) for room in rooms], axis=0) == pytest.approx(
        [1.851439, 1.679845, 0.856265], abs=1e-4
    )
    assert np.mean([room.rgb.mean(axis=0) for room in rooms], axis=0) == pytest.approx(
        [112.5385, 108.7758, 111.4128], abs=0.01
    )


def test_a_loader_process_is_sent_little():
    dataset = SyntheticRooms(None, "train", None)
    stored = pickle.dumps(dataset)
    assert len(stored) <= 1000
    np.testing.assert_array_equal(pickle.loads(stored).read(0).xyz, dataset.read(0).xyz, strict=True)


def test_bad_options_are_told():
    with pytest.raises(UserError, match="synthetic_rooms has no split 'test'"):
        SyntheticRooms(None, "test", None)
    with pytest.raises(UserError, match="spacing of synthetic_rooms is 0 m; expected 0.01 to 0.2"):
        SyntheticRooms(None, "train", None, spacing_m=0)
    with pytest.raises(IndexError):
        SyntheticRooms(None, "val", None, num_val=2).read(2)
    assert "val_00001" in SyntheticRooms(None, "val", None).describe(1)
