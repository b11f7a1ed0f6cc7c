"""Forms in which people have scenes are read as the plain one is, or refused by a line that names the field."""

import numpy as np
import pytest

from paddlevit_dist.core.tasks.opened_dataset import OpenedDataset
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.points import Scene, SceneDataset, make_scene
from paddlevit_dist.points.data.first_scenes import describe_scenes

XYZ = np.array([[0, 0, 0], [1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32)
RGB = np.array([[0, 10, 255], [1, 2, 3], [4, 5, 6], [7, 8, 9]], np.uint8)
SEMANTIC = np.array([0, 1, -100, 2], np.int16)
INSTANCE = np.array([0, 1, -100, -100], np.int16)
NORMAL = np.array([[0, 0, 1]] * 4, np.float32)
PLAIN = {"xyz": XYZ, "rgb": RGB, "semantic": SEMANTIC, "instance": INSTANCE, "name": "room"}
CLASSES = ["wall", "floor", "door"]


class Rooms(SceneDataset):
    """One scene in any form."""

    class_names = CLASSES
    num_classes = 3
    rgb_range = (0, 1)

    def __init__(self, sample):
        self.sample = sample

    def __len__(self):
        return 1

    def read(self, index):
        return self.sample


def changed(array, place, value):
    array = array.astype(np.float64)
    array[place] = value
    return array


class Unreadable:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("it is on another device")


READ = {
    "lists": {name: value.tolist() if name != "name" else value for name, value in PLAIN.items()},
    "tuples": {"xyz": tuple(map(tuple, XYZ.tolist())), "semantic": tuple(SEMANTIC.tolist())},
    "float64": {"xyz": XYZ.astype(np.float64)},
    "float16": {"xyz": XYZ.astype(np.float16)},
    "integers": {"xyz": XYZ.astype(np.int32)},
    "other byte order": {"xyz": XYZ.astype(">f4"), "semantic": SEMANTIC.astype(">i4")},
    "columns of a table": {"xyz": np.asfortranarray(XYZ), "rgb": np.asfortranarray(RGB)},
    "every second row": {"xyz": np.repeat(XYZ, 2, axis=0)[::2]},
    "colors of 16 bits": {"rgb": RGB.astype(np.uint16) * 257},
    "colors as shares": {"rgb": RGB / 255},
    "colors as float32 shares": {"rgb": (RGB / 255).astype(np.float32)},
    "colors as integers": {"rgb": RGB.astype(np.int64)},
    "classes of 64 bits": {"semantic": SEMANTIC.astype(np.int64)},
    "classes as whole numbers": {"semantic": SEMANTIC.astype(np.float32)},
    "classes as a column": {"semantic": SEMANTIC[:, None]},
    "names of classes": {"semantic": ["wall", "floor", None, "door"]},
    "names and numbers": {"semantic": ["wall", 1, None, 2]},
    "numbers and None": {"semantic": [0, 1, None, 2]},
    "instances as float16": {"instance": INSTANCE.astype(np.float16)},
    "classes as float16": {"semantic": SEMANTIC.astype(np.float16)},
    "instances of 64 bits": {"instance": INSTANCE.astype(np.int64)},
    "instances of 8 bits": {"instance": np.array([0, 1, 2, 3], np.uint8)},
    "instances below zero": {"instance": np.array([0, 1, -1, -7], np.int16)},
    "instances as a column": {"instance": [[0], [1], [-1], [-1]]},
    "the name as a number": {"name": np.int64(7)},
    "a flat channel": {"channels": {"intensity": [0, 1, 2, 3]}},
    "normals as float64": {"channels": {"normal": NORMAL.astype(np.float64)}},
    "offset as a list": {"offset": [1, 2, 3]},
    "floor as an array": {"floor": np.float32(2)},
}
EXPECTED = {
    "instances of 8 bits": {"instance": np.array([0, 1, 2, 3], np.int16)},
    "the name as a number": {"name": "7"},
    "a flat channel": {"channels": {"intensity": np.array([[0], [1], [2], [3]], np.float32)}},
    "normals as float64": {"channels": {"normal": NORMAL}},
    "offset as a list": {"offset": (1.0, 2.0, 3.0)},
    "floor as an array": {"floor": 2.0},
}
REFUSED = {
    "no positions": ({"xyz": None}, "xyz is None"),
    "six columns": ({"xyz": np.concatenate([XYZ, XYZ], axis=1)}, r"xyz has the shape \(4, 6\)"),
    "coordinates in rows": ({"xyz": XYZ.T}, r"xyz has the shape \(3, 4\)"),
    "ragged": ({"xyz": [[0, 0, 0], [1, 2]]}, "xyz"),
    "a NaN": ({"xyz": changed(XYZ, (1, 2), np.nan)}, r"xyz\[1, 2\] is nan"),
    "an infinity": ({"xyz": changed(XYZ, (1, 2), np.inf)}, r"xyz\[1, 2\] is inf"),
    "too large for 32 bits": (
        {"xyz": changed(XYZ, (1, 2), 1e300)},
        r"xyz\[0, 2\] is -2.5e\+299; 4 of its 12 numbers are too large for float32",
    ),
    "texts": ({"xyz": XYZ.astype(str)}, "xyz is ndarray"),
    "complex": ({"xyz": XYZ.astype(complex)}, "xyz is ndarray complex"),
    "truth values": ({"xyz": XYZ > 1}, "xyz is ndarray bool"),
    "masked": ({"xyz": np.ma.masked_greater(XYZ, 3)}, "xyz is a masked array"),
    "another device": ({"xyz": Unreadable()}, "xyz cannot become an array: it is on another device"),
    "fewer colors": ({"rgb": RGB[:3]}, "xyz 4, rgb 3"),
    "four channels": ({"rgb": np.ones((4, 4), np.uint8)}, r"rgb has the shape \(4, 4\)"),
    "floats to 255": ({"rgb": RGB.astype(np.float32)}, "rgb has numbers from 0 to 255, but its rgb_range"),
    "colors of 16 bits as int64": ({"rgb": RGB.astype(np.int64) * 257}, "rgb.* out of range"),
    "negative colors": ({"rgb": RGB.astype(np.int64) - 1}, "rgb.* out of range"),
    "a NaN color": ({"rgb": changed(RGB / 255, (0, 1), np.nan)}, r"rgb\[0, 1\] is nan"),
    "a color's name": ({"rgb": [["red", "green", "blue"]] * 4}, "rgb is ndarray"),
    "fewer classes": ({"semantic": SEMANTIC[:2]}, "semantic 2"),
    "class 3 of 3": ({"semantic": [0, 1, 2, 3]}, r"semantic\[3\] is 3, which is out of range"),
    "class -1": ({"semantic": [0, -1, 2, 1]}, r"semantic\[1\] is -1, which is out of range"),
    "class -1 among those without": ({"semantic": np.array([0, -1, 2, -100], np.int16)}, r"semantic\[1\] is -1"),
    "class 255": ({"semantic": np.array([0, 255, 2, 1], np.uint8)}, r"semantic\[1\] is 255"),
    "half a class": ({"semantic": [0, 0.5, 2, 1]}, "semantic has 0.5"),
    "a NaN class": ({"semantic": [0, np.nan, 2, 1]}, r"semantic\[1\] is nan"),
    "an unknown name": ({"semantic": ["wall", "roof", "door", "door"]}, "semantic has 'roof'"),
    "an empty name": ({"semantic": ["wall", "", "door", "door"]}, "semantic has ''"),
    "shares of classes": ({"semantic": np.eye(4, 3)}, r"semantic has the shape \(4, 3\)"),
    "half an instance": ({"instance": [0, 0.5, 1, 1]}, "instance is"),
    "a NaN instance": ({"instance": [0, np.nan, 1, 1]}, r"instance\[1\] is nan"),
    "a large instance": ({"instance": [0, 1 << 24, 1, 1]}, "instance 16777216 is out of range"),
    "fewer instances": ({"instance": [0]}, "instance 1"),
    "channels as an array": ({"channels": np.ones((4, 2))}, "channels is ndarray"),
    "a wide channel": ({"channels": {"intensity": NORMAL}}, r"intensity has the shape \(4, 3\)"),
    "a flat normal": ({"channels": {"normal": [1, 2, 3, 4]}}, r"normal has the shape \(4,\)"),
    "a NaN channel": ({"channels": {"time": [0, np.nan, 1, 2]}}, r"time\[1, 0\] is nan"),
    "a short channel": ({"channels": {"time": [0, 1]}}, "time 2"),
    "a short offset": ({"offset": (1, 2)}, "offset is tuple of 2"),
    "a NaN offset": ({"offset": (1.0, 2.0, np.nan)}, "offset"),
    "no offset": ({"offset": []}, "offset is list of 0"),
    "no floor": ({"floor": []}, "floor is list of 0"),
    "a channel of two lines": ({"channels": {"a\nb": [0, 1, 2, 3]}}, "channels has the name"),
    "a channel by number": ({"channels": {3: [0, 1, 2, 3]}}, "channels has the name 3"),
    "a NaN floor": ({"floor": np.nan}, "floor"),
    "no name": ({"name": None}, "name is None"),
    "descending skipped rows": ({"skipped_rows": [3, 1]}, "skipped_rows"),
    "an unknown field": ({"colors": RGB}, "a field 'colors', which is none of xyz, rgb"),
}


def require_same(found, fields):
    expected = {**PLAIN, "offset": (0.0, 0.0, 0.0), "channels": {}, "skipped_rows": (), "floor": None, **fields}
    for name, value in zip(Scene._fields, found):
        if name == "channels":
            assert list(value) == list(expected[name])
            for channel in value:
                np.testing.assert_array_equal(value[channel], expected[name][channel], strict=True)
        elif isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, expected[name], strict=True)
        else:
            assert value == expected[name]


@pytest.mark.parametrize("form", READ)
def test_a_form_is_read_as_the_plain_one(form):
    require_same(OpenedDataset(Rooms({**PLAIN, **READ[form]})).read(0), EXPECTED.get(form, {}))
    if "channels" not in READ[form]:
        require_same(OpenedDataset(Rooms(Scene(**{**PLAIN, **READ[form]}))).read(0), EXPECTED.get(form, {}))


@pytest.mark.parametrize("form", REFUSED)
def test_a_form_is_refused_by_a_line_that_names_sample_and_field(form):
    fields, said = REFUSED[form]
    with pytest.raises(BadSample, match=said) as refused:
        OpenedDataset(Rooms({**PLAIN, **fields})).read(0)
    assert str(refused.value).startswith("sample 0: ") and "\n" not in str(refused.value)


@pytest.mark.parametrize("sample", [None, XYZ, tuple(PLAIN.values()), "room", [], {"xyz": XYZ}])
def test_what_is_not_a_scene_is_refused(sample):
    with pytest.raises(BadSample, match="Rooms.read returns"):
        OpenedDataset(Rooms(sample)).read(0)


def test_names_of_classes_may_be_an_array():
    made = make_scene(XYZ, semantic=["wall", "door", None, "floor"], class_names=np.array(CLASSES))
    assert made.semantic.tolist() == [0, 2, -100, 1]
    with pytest.raises(BadSample, match="semantic has 'wall', expected .*which have no names here: give class_names"):
        make_scene(XYZ, semantic=["wall"] * 4)


def test_a_scene_needs_only_points():
    made = make_scene(np.array([]))
    assert [len(array) for array in made[:4]] == [0] * 4 and made.xyz.shape == made.rgb.shape == (0, 3)
    made = make_scene(XYZ)
    assert (made.rgb == 128).all() and (made.semantic == -100).all() and (made.instance == -100).all()
    with pytest.raises(BadSample, match=r"rgb is float64 from 0 to 1: make it uint8, or state .* rgb_range = \(0, 1\)"):
        make_scene(XYZ, RGB / 255)


@pytest.mark.parametrize("ends", [255, (0, None), (0, np.nan), (1, 1), (0, 1, 2), "ab", (0, np.inf)])
def test_a_range_of_colors_that_is_none_is_refused(ends):
    with pytest.raises(BadSample, match="^rgb_range is .*, expected the numbers of black and of white, such as"):
        make_scene(XYZ, RGB / 255, rgb_range=ends)


def test_arrays_of_the_stated_types_are_not_copied():
    made = OpenedDataset(Rooms(Scene(**PLAIN, channels={"normal": NORMAL}))).read(0)
    assert all(getattr(made, name) is PLAIN[name] for name in ("xyz", "rgb", "semantic", "instance"))
    assert made.channels["normal"] is NORMAL


def test_wide_numbers_far_from_the_origin_keep_their_distances():
    far = XYZ.astype(np.float64) / 1000 + [512_345.678, 5_403_210.25, 300]
    made = make_scene(far)
    assert made.xyz.dtype == np.float32
    np.testing.assert_allclose(made.xyz + np.array(made.offset), far, atol=1e-9 * 5e6)
    np.testing.assert_allclose(made.xyz[3] - made.xyz[0], [0.007, 0.008, 0.009], atol=1e-7)


def test_instances_beyond_16_bits_are_kept():
    made = make_scene(XYZ, instance=[40_000, -3, 5, 0])
    np.testing.assert_array_equal(made.instance, np.array([40_000, -100, 5, 0], np.int32), strict=True)


SHARES = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 1], [1, 1, 1]], np.uint8)
SAME = np.zeros(4, np.int16)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"rgb": SHARES}, ["no color of the first 2 scenes exceeds 1 of 255: if colors are shares from 0 to 1"]),
        ({"rgb": (RGB % 2).astype(np.uint16)}, ["no color of the first 2 scenes exceeds 0 of 255"]),
        ({"rgb": None}, ["all points of the first 2 scenes have one color, although POINTS.FEATURES has rgb"]),
        ({"semantic": None}, ["no point of the first 2 scenes has a class"]),
        ({"semantic": SAME}, ["all points of the first 2 scenes that have a class have class 0"]),
    ],
)
def test_first_scenes_of_any_source_are_described(changes, said):
    scenes = [make_scene(**{**PLAIN, **changes})] * 2
    notes = describe_scenes(scenes, uses_colors=True)
    assert [note.startswith(f"note: {one}") for note, one in zip(notes, said, strict=True)] == [True] * len(said)
    assert not describe_scenes([], True) and not describe_scenes([make_scene([])], True)
    without = describe_scenes(scenes, uses_colors=False)
    assert without == [note for note in notes if "color" not in note]


def test_a_unit_that_does_not_suit_the_voxels_is_told_for_own_scenes():
    rooms = OpenedDataset(Rooms({**PLAIN, "xyz": XYZ * 1000}))
    assert rooms.unit_notice(1000 * 0.05) is None
    assert rooms.unit_notice(0.05).startswith("scene room spans 180,000 voxels of DATA.VOXEL_SIZE_M")
