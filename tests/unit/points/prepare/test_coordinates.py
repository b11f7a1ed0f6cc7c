"""Scene coordinates: one convention for all kinds of raw data, offsets restored in exports, units and labels."""

import struct
import warnings

import numpy as np
import pytest
from support.files.georeferenced_scenes import UTM, room, stray, write_ply
from support.files.raw_scenes import write_scannet, zipped
from support.samples.small_scenes import make_scene

from paddlevit_dist import UserError
from paddlevit_dist.points.data.ply import read_vertices, write_colored_ply, write_points
from paddlevit_dist.points.data.scene_store import SceneHeader, read_header, read_scene, write_scene
from paddlevit_dist.points.data.voxels import sparse_quantize
from paddlevit_dist.points.prepare import coordinates
from paddlevit_dist.points.prepare.listing import RawScene
from paddlevit_dist.points.prepare.pointgroup import PthReader
from paddlevit_dist.points.prepare.scannet import ScanNetReader
from paddlevit_dist.points.prepare.tables import PlyReader


def read_ply(path, xyz, rgb, **more):
    return PlyReader().read(write_ply(path, xyz, rgb, **more))


def number_of_voxels(scene, size=0.05):
    return len(sparse_quantize(scene.xyz, quantization_size=size))


def original(points):
    """What PointGroup's prepare_data_inst.py does with the rows of a file: minus their mean, in their precision."""
    total = np.zeros(3, points.dtype)
    for row in points:
        total += row
    return points - total / points.dtype.type(len(points))


def test_scannet_and_pointgroups_own_files_give_the_same_positions(tmp_path):
    write_scannet(tmp_path / "train", "scene0000_00", points=3000)
    source = ScanNetReader().sources(str(tmp_path), dict.fromkeys(("train", "val", "test")))["train"][0]
    columns = read_vertices(source.files[0])
    points = np.stack([columns[name] for name in "xyz"], axis=1) + np.float32([3, -2, 1])
    write_points(tmp_path / "train" / "scene0000_00_vh_clean_2.ply", {**columns, **dict(zip("xyz", points.T))})
    scene = ScanNetReader().read(source)
    colors = np.stack([columns[name] for name in ("red", "green", "blue")], axis=1) / 127.5 - 1
    labels = np.zeros(len(points))
    zipped(tmp_path / "a.pth", (original(points), colors, labels, labels))
    theirs = PthReader().read(RawScene("a", (str(tmp_path / "a.pth"),), True))
    assert np.array_equal(scene.xyz, theirs.xyz) and np.array_equal(scene.rgb, theirs.rgb)
    assert theirs.offset == (0.0, 0.0, 0.0)
    np.testing.assert_allclose(scene.xyz + np.array(scene.offset), points, atol=1e-6)
    plain = read_ply(tmp_path / "a.ply", points, np.zeros_like(points, np.uint8))
    np.testing.assert_allclose(plain.xyz, scene.xyz, atol=1e-5)  # the mean of float32 sums is a little off


@pytest.mark.parametrize("binary", (True, False))
def test_georeferenced_scenes_keep_their_voxels_and_their_coordinates(tmp_path, binary):
    xyz, rgb = room()
    there = xyz.astype(np.float64) + UTM
    near = read_ply(tmp_path / "near.ply", xyz, rgb)
    if binary:
        far = read_ply(tmp_path / "far.ply", there, rgb)
    else:  # text whose header says float, as some programs write it
        names = [f"property float {name}" for name in "xyz"] + [f"property uchar {c}" for c in ("red", "green", "blue")]
        header = ["ply", "format ascii 1.0", f"element vertex {len(xyz)}", *names, "property uchar label", "end_header"]
        rows = [" ".join(map(repr, (*p, *c, 0))) for p, c in zip(there.tolist(), rgb.tolist())]
        (tmp_path / "far.ply").write_text("\n".join([*header, *rows]) + "\n")
        far = PlyReader().read(RawScene("far", (str(tmp_path / "far.ply"),), True))
    assert far.xyz.dtype == np.float32 and number_of_voxels(far) == number_of_voxels(near) > 3000
    np.testing.assert_allclose(far.xyz, near.xyz, atol=1e-6)
    np.testing.assert_allclose(far.xyz + np.array(far.offset), there, rtol=0, atol=1e-6)
    np.testing.assert_allclose(far.offset, there.mean(axis=0), rtol=0, atol=1e-6)
    rounded = there.astype(np.float32)  # what a store held before: steps of 0.5 m
    assert len(sparse_quantize(rounded, quantization_size=0.05)) < 0.75 * number_of_voxels(near)


def test_a_store_keeps_the_offset_and_says_where_scenes_lie(tmp_path):
    scene = read_ply(tmp_path / "far.ply", *[room()[0].astype(np.float64) + UTM, room()[1]])
    header = write_scene(tmp_path / "far.scene", scene)
    again = read_scene(tmp_path / "far.scene", "far")
    assert again.offset == scene.offset == header.offset == read_header(tmp_path / "far.scene").offset
    assert header.is_centered and not write_scene(tmp_path / "b.scene", scene._replace(xyz=room()[0])).is_centered
    content = (tmp_path / "far.scene").read_bytes()
    assert struct.unpack_from("<3d", content, 64) == scene.offset and struct.unpack_from("<I", content, 36) == (1,)


def test_georeferenced_torch_files_are_centered_and_others_stay(tmp_path):
    xyz, rgb = room(500)
    labels = np.zeros(500)
    for name, shift in (("near", 0.0), ("far", np.array(UTM))):
        zipped(tmp_path / f"{name}.pth", (xyz + shift, rgb / 127.5 - 1, labels, labels))
    near, far = (PthReader().read(RawScene(n, (str(tmp_path / f"{n}.pth"),), True)) for n in ("near", "far"))
    assert np.array_equal(near.xyz, xyz) and near.offset == (0.0, 0.0, 0.0)
    np.testing.assert_allclose(far.xyz, xyz - xyz.mean(axis=0, dtype=np.float64), atol=1e-6)


def test_a_scene_that_was_not_moved_is_written_as_before(tmp_path):
    scene = make_scene(20)
    write_colored_ply(tmp_path / "a.ply", scene.xyz, scene.rgb, scene.semantic)
    columns = read_vertices(tmp_path / "a.ply")
    assert all(columns[name].dtype == np.float32 for name in "xyz") and np.array_equal(columns["x"], scene.xyz[:, 0])


def test_nan_labels_are_points_without_one(tmp_path):
    xyz, rgb = room(6)
    label = np.array([0, np.nan, 2, np.nan, -1, 1], np.float32)
    scene = read_ply(tmp_path / "a.ply", xyz, rgb, label=label, instance=label)
    assert scene.semantic.tolist() == [0, -100, 2, -100, -100, 1]
    assert scene.instance.tolist() == [0, -100, 2, -100, -100, 1]


def test_a_text_file_with_a_label_that_its_type_cannot_hold_is_told(tmp_path):
    for value in ("nan", "300", "-1", "1.5"):
        header = [
            "ply",
            "format ascii 1.0",
            "element vertex 2",
            "property float x",
            "property uchar label",
            "end_header",
        ]
        rows = "\n".join([*header, "1 7", f"2 {value}", ""])
        (tmp_path / "a.ply").write_text(rows)
        with pytest.raises(UserError, match=rf"vertex 1 has label {value}, but its header declares it as uchar"):
            read_vertices(tmp_path / "a.ply")


def test_coordinates_that_the_source_holds_in_coarse_steps_are_told():
    xyz = room(10)[0].astype(np.float64) + UTM
    assert coordinates.check_resolution("a.ply", xyz) == []
    assert coordinates.check_resolution("a.ply", room(10)[0]) == []
    (line,) = coordinates.check_resolution("a.ply", xyz.astype(np.float32))
    assert coordinates.check_resolution("a.ply", -xyz.astype(np.float32)) == [line]
    farthest = float(xyz.astype(np.float32).max())
    assert f"a.ply stores x, y and z up to {farthest:,.0f} m as 32-bit" in line and "in steps of 0.5 m" in line


@pytest.mark.parametrize("place", (coordinates.center, coordinates.as_given, coordinates.center_like_pointgroup))
@pytest.mark.parametrize(
    "xyz, message",
    (
        (stray(20_000.0), r"^a\.ply: point 17 is 19,99\d m from the others, .* 8,192 m .*: remove stray points$"),
        (
            stray(20_000.0) + np.array([0, 0, 5000.0]),
            r"point 17 is 19,99\d m .*: remove stray points$",
        ),  # on a mountain
        (stray(-20_000.0), r"^a\.ply: point 17 is 20,00\d m from the others, .* 8,192 m .*: remove stray points$"),
        (stray(1e9), r"point 17 is 1e\+09 m from the others|point 17 is 999,999,99\d m from the others"),
        (stray(1e11, 9), r"point 17 is 1e\+11 m from the others"),
        (stray(1e11)[17:], r"point 0 is 1e\+11 m from the others"),
        (stray(1e300), r"point 17 is 1e\+300 m from the others"),
        (
            np.outer([-1.7e308, 1.7e308, 1.7e308], np.ones(3)),
            r"reaches .* m from its center, .* if it is in millimeters",
        ),
        (
            stray(20_000.0, scale=2000.0, height=0.1),
            r"reaches .* if it is in millimeters, export it in meters",
        ),  # 10 m wide
        (
            stray(0.0, scale=4000.0, height=0.1),
            r"^a\.ply reaches 1.,... m from its center, .* if it is in millimeters, export it",
        ),
    ),
)
def test_points_too_far_for_floats_are_refused_as_stray_ones_or_by_their_unit(place, xyz, message):
    with pytest.raises(UserError, match=message) as error, warnings.catch_warnings():
        warnings.simplefilter("error")  # one line is enough
        place("a.ply", xyz)
    assert "\n" not in str(error.value)
    assert ("millimeters" in str(error.value)) == ("millimeters" in message)


@pytest.mark.parametrize("place", (coordinates.center, coordinates.as_given, coordinates.center_like_pointgroup))
def test_rooms_in_millimeters_may_be_large(place):
    xyz = room(1000)[0].astype(np.float64) * 4000  # 20 m wide
    placed = place("a.ply", xyz)
    assert np.abs(placed.xyz).max() > 8192
    np.testing.assert_allclose(placed.xyz + np.array(placed.offset), xyz, rtol=0, atol=1e-3)  # a micrometer
    with pytest.raises(UserError, match="remove stray points"):
        place("a.ply", np.concatenate([xyz, [[1e8, 0, 0]]]))


def test_near_points_stay_where_they_are():
    xyz = np.random.default_rng(0).uniform(-8190, 8190, (9, 3))
    placed = coordinates.as_given("a.ply", xyz)
    np.testing.assert_array_equal(placed.xyz, xyz.astype(np.float32), strict=True)
    assert placed.offset == (0.0, 0.0, 0.0)
    for farthest, moved in ((8192 - 2**-10, 0.0), (8192.0, 8191.0)):
        for sign in (1, -1):
            pair = sign * np.array([[farthest, 0.0, 0.0], [8190.0, 0.0, 0.0]])
            assert coordinates.as_given("a.ply", pair).offset == (sign * moved, 0.0, 0.0)


def box(width, height, points):
    """What the header says of a scene that is centered, meters."""
    low, high = (-width / 2, -width / 2, -height / 2), (width / 2, width / 2, height / 2)
    return SceneHeader(1, points, points, 0, 0, True, low, high, (0.0, 0.0, 0.0), bytes(32), 0)


@pytest.mark.parametrize(
    "width, height, points, expected",
    (
        *[(width, 3.0, points, False) for width in (4.0, 50.0) for points in (2_000, 1_500_000)],
        *[(500.0, 60.0, points, False) for points in (250_000, 25_000_000)],  # outdoors, 1 m to 0.1 m between points
        (2000.0, 300.0, 4_000_000, False),  # hills
        *[(4000.0, 2500.0, points, True) for points in (2_000, 1_500_000, 100_000_000)],  # rooms in millimeters
        *[(400.0, 250.0, points, True) for points in (2_000, 1_500_000)],  # and in centimeters
        (4000.0, 50.0, 10_000, True),
    ),
)
def test_other_units_are_noticed_however_dense_scenes_are(width, height, points, expected):
    header = box(width, height, points)
    assert header.looks_too_large == expected
    remarks = coordinates.find_remarks("ply", ["a", "b"], [header, box(4.0, 3.0, 1000)])
    assert len(remarks) == expected and all("1 of 2 scenes seem to be in millimeters" in r for r in remarks)
