"""Scene files and stores of them: exact contents, and every kind of damage reported in one line."""

import pickle
import struct
import zlib

import numpy as np
import pytest
from support.samples.small_scenes import make_scene, same

from paddlevit_dist import UserError
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.data.scene_store import (
    HEADER_BYTES,
    SceneHeader,
    _parse_names,
    list_splits,
    read_header,
    read_scene,
    scene_file,
    store_is_centered,
    write_scene,
)
from paddlevit_dist.points.data.scenes import PreparedScenes, ScanNet


@pytest.fixture
def store(tmp_path):
    """A store of three training scenes and one to validate, and a folder for its index."""
    root = tmp_path / "store"
    (root / "scenes").mkdir(parents=True)
    (tmp_path / "cache").mkdir()
    for number, name in enumerate("abcd"):
        write_scene(root / "scenes" / f"{name}.scene", make_scene(seed=number, name=name))
    (root / "classes.txt").write_text("wall\nfloor\nother thing\nbed\nbox\n")
    (root / "train.txt").write_text("a\nb\nc\n")
    (root / "val.txt").write_text("d\n")
    return root


def opened(store, split="train", kind=PreparedScenes):
    return kind(str(store), split, store.parent / "cache")


@pytest.mark.parametrize("points", (1, 2, 3, 1001))
def test_a_scene_comes_back_as_it_was_in_18_bytes_a_point(tmp_path, points):
    path, scene = tmp_path / "a.scene", make_scene(points)
    written = write_scene(path, scene, key=bytes(range(32)))
    assert same(read_scene(path, "room"), scene) and read_scene(path, "room").name == "room"
    assert path.stat().st_size == 136 + 18 * points
    header = read_header(path)
    assert header == written and header.key == bytes(range(32))
    assert header.num_points == points and header.num_labeled == (scene.semantic >= 0).sum()
    assert header.num_instances == scene.instance.max() + 1 or scene.instance.max() < 0
    assert header.low == tuple(scene.xyz.min(axis=0).tolist()) and header.high == tuple(scene.xyz.max(axis=0).tolist())
    assert header.highest_class == max(int(scene.semantic.max()), -1)


def test_many_classes_take_two_bytes_and_no_labels_take_none(tmp_path):
    path = tmp_path / "a.scene"
    scene = make_scene(classes=300)
    write_scene(path, scene)
    assert same(read_scene(path, "room"), scene) and path.stat().st_size == 136 + 19 * 1000
    for highest, size in ((127, 1), (128, 2), (32_767, 2)):
        few = make_scene(9, classes=4)
        few = few._replace(
            semantic=np.append(few.semantic[:8], np.int16(highest)), instance=np.full(9, 32_767, np.int16)
        )
        assert write_scene(tmp_path / "b.scene", few).label_bytes == size
        assert same(read_scene(tmp_path / "b.scene", "room"), few)
        assert read_header(tmp_path / "b.scene").num_instances == 32_768
    write_scene(path, scene, labeled=False)
    bare = read_scene(path, "room")
    assert np.array_equal(bare.xyz, scene.xyz) and np.array_equal(bare.rgb, scene.rgb)
    assert set(bare.semantic) == set(bare.instance) == {-100} and path.stat().st_size == 136 + 15 * 1000
    assert read_header(path).highest_class == -1


def test_the_layout_is_the_documented_one(tmp_path):
    path, scene = tmp_path / "a.scene", make_scene(7)
    write_scene(path, scene)
    content = path.read_bytes()
    assert content[:8] == b"pdscene\0" and struct.unpack_from("<II", content, 8) == (5, 1)
    assert struct.unpack_from("<Q", content, 16) == (7,)
    assert struct.unpack_from("<II", content, 128) == (0, 0)
    assert content[136 : 136 + 84] == scene.xyz.tobytes()
    assert content[220:234] == scene.instance.tobytes()
    assert content[234:241] == scene.semantic.astype(np.int8).tobytes()
    assert content[241:] == scene.rgb.tobytes()
    assert struct.unpack_from("<I", content, 124)[0] == zlib.crc32(content[:124])


@pytest.mark.parametrize("names", ([], ["normal", "intensity"]))
def test_skipped_rows_of_the_source_are_kept(tmp_path, names):
    path, bare = tmp_path / "a.scene", make_scene(7)
    channels = {name: np.ones((7, 3 if name == "normal" else 1), np.float32) for name in names}
    scene = bare._replace(skipped_rows=(0, 3, 9), channels=channels)
    assert write_scene(path, scene) == read_header(path)
    read = read_scene(path, "room")
    assert same(read, scene) and read.skipped_rows.tolist() == [0, 3, 9] and list(read.channels) == names
    assert read.to_source_rows(np.arange(7)).tolist() == [-100, 0, 1, -100, 2, 3, 4, 5, 6, -100]
    content = path.read_bytes()
    assert struct.unpack_from("<I", content, 128) == (3,)
    start = content.index(scene.xyz.tobytes()) - 24
    assert content[start : start + 24] == np.array([0, 3, 9], "<i8").tobytes()
    for rows in ([0, 9, 3], [-1, 3, 9], [0, 3, 10], [0, 3, 3], [2**63 - 1, -(2**63), 9]):
        body = bytearray(content)
        body[start : start + 24] = np.array(rows, "<i8").tobytes()
        struct.pack_into("<I", body, 120, zlib.crc32(body[128:]))
        struct.pack_into("<I", body, 124, zlib.crc32(body[:124]))
        path.write_bytes(body)
        with pytest.raises(UserError, match="its skipped rows are not ascending rows of the source"):
            read_scene(path, "room")
    path.write_bytes(content[:140])
    with pytest.raises(UserError, match="truncated|damaged"):
        read_header(path)


def test_points_are_views_of_the_file(tmp_path):
    path = tmp_path / "a.scene"
    write_scene(path, make_scene())
    scene = read_scene(path, "room")
    assert not any(array.flags.owndata or array.flags.writeable for array in (scene.xyz, scene.rgb, scene.instance))
    path.unlink()
    assert np.isfinite(scene.xyz).all()  # the file lives on while it is mapped


def test_every_flipped_bit_is_found(tmp_path):
    path = tmp_path / "a.scene"
    write_scene(path, make_scene(40))
    content = path.read_bytes()
    for position in [*range(HEADER_BYTES), *range(HEADER_BYTES, len(content), 37), len(content) - 1]:
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"a\.scene (is|has) .*delete it and prepare the data again") as error:
            read_scene(path, "room")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("length", (0, 5, 8, 100, 127, 128, 500, 855))
def test_a_scene_that_is_cut_off_is_told(tmp_path, length):
    path = tmp_path / "a.scene"
    write_scene(path, make_scene(40))
    path.write_bytes(path.read_bytes()[:length])
    for read in (read_header, lambda path: read_scene(path, "room")):
        with pytest.raises(UserError, match=r"a\.scene is (truncated|not a prepared scene)"):
            read(path)
    if length >= 128:
        with pytest.raises(UserError, match=f"truncated: expected 856 bytes, found {length}"):
            read_header(path)


def test_another_version_another_file_and_no_file_are_told(tmp_path):
    path = tmp_path / "a.scene"
    write_scene(path, make_scene(40))
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, 8, 0)
    path.write_bytes(content)
    with pytest.raises(UserError, match="has version 0, this program reads version 5; delete it"):
        read_header(path)
    path.write_bytes(b"something else" * 20)
    with pytest.raises(UserError, match="is not a prepared scene"):
        read_header(path)
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_scene(tmp_path / "b.scene", "b")


def test_what_cannot_be_a_scene_is_not_written(tmp_path):
    path = tmp_path / "a.scene"
    scene = make_scene(9)
    points = scene.xyz.copy()
    points[4, 2] = np.nan
    wide = scene.instance.astype(np.int64)
    wide[3] = 40_000
    many = {f"a long name of the channel {number}": np.zeros((9, 1), np.float32) for number in range(700)}
    cases = {
        "has no points": Scene(*(array[:0] for array in scene[:4]), "room"),
        r"scene a: xyz\[4, 2\] is nan": scene._replace(xyz=points),
        r"scene a: semantic\[0\] is -7, which is out of range": scene._replace(semantic=np.full(9, -7, np.int16)),
        "point 3 has instance 40000, which is out of range": scene._replace(instance=wide),
        "has 700 channels; choose fewer with --channels": scene._replace(channels=many),
    }
    for message, bad in cases.items():
        with pytest.raises(UserError, match=message):
            write_scene(path, bad)
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_read_by_split(store):
    train, val = opened(store), opened(store, "val")
    assert len(train) == 3 and len(val) == 1 and train.num_classes == 5
    assert train.class_names == ["wall", "floor", "other thing", "bed", "box"]
    for number, name in enumerate("abc"):
        assert same(train.read(number), make_scene(seed=number)) and train.read(number).name == name
        assert train.describe(number) == scene_file(store, name)
    assert same(val.read(0), make_scene(seed=3))


def test_a_loader_process_is_sent_little_and_checks_again(store):
    train = opened(store)
    train.read(0)
    stored = pickle.dumps(train)
    assert len(stored) <= 1000
    copy = pickle.loads(stored)
    assert same(copy.read(1), train.read(1)) and len(copy) == 3
    path = store / "scenes" / "a.scene"
    content = bytearray(path.read_bytes())
    content[-1] ^= 4
    path.write_bytes(content)
    with pytest.raises(UserError, match="damaged"):
        copy.read(0)


def test_a_changed_list_is_read_anew(store):
    assert len(opened(store)) == 3
    (store / "train.txt").write_text("b\n\n a \n")
    assert [opened(store).read(number).name for number in range(2)] == ["b", "a"]


def test_lists_may_have_suffixes_in_capitals(store):
    (store / "val.txt").rename(store / "val.TXT")
    assert opened(store, "val").read(0).name == "d" and list_splits(store) == ["train", "val"]


@pytest.mark.parametrize(
    "change, message",
    (
        (lambda root: (root / "val.txt").unlink(), r"val\.txt, .* is missing; .* has train; write it"),
        (lambda root: (root / "val.txt").write_text("\n"), r"val\.txt is empty"),
        (lambda root: (root / "val.txt").write_text("a\nd\nd\n"), "names scene d twice"),
        (lambda root: (root / "val.txt").write_text("d\ne\n"), r"e\.scene cannot be read"),
        (
            lambda root: (root / "classes.txt").write_text("a\nb\na\nd\ne\n"),
            r"classes\.txt: classes 0 and 2 are both 'a'",
        ),
        (lambda root: (root / "classes.txt").unlink(), r"has no classes\.txt"),
        (lambda root: (root / "classes.txt").write_text("a\nb\nc\nd\n"), r"d\.scene has class 4, but .* names 4"),
    ),
)
def test_a_store_with_a_part_missing_is_told(store, change, message):
    change(store)
    with pytest.raises(UserError, match=message) as error:
        opened(store, "val")
    assert "\n" not in str(error.value)


def test_a_path_that_is_no_store_is_told(tmp_path):
    with pytest.raises(UserError, match="dataset scenes needs -data_path"):
        PreparedScenes(None, "train", tmp_path)
    with pytest.raises(UserError, match="nothing does not exist; dataset scenes expects a folder"):
        PreparedScenes(str(tmp_path / "nothing"), "train", tmp_path)


def test_scannet_wants_its_classes_and_tells_raw_data(store, tmp_path):
    with pytest.raises(UserError, match="does not name ScanNet's 20 classes; use -dataset=scenes"):
        opened(store, kind=ScanNet)
    (store / "classes.txt").write_text("".join(f"{name}\n" for name in CLASS_NAMES))
    assert opened(store, kind=ScanNet).num_classes == 20
    (tmp_path / "raw" / "scans" / "scene0000_00").mkdir(parents=True)
    with pytest.raises(UserError, match="contains ScanNet's raw files; prepare them once with .* prepare scannet"):
        ScanNet(str(tmp_path / "raw"), "train", tmp_path)


def test_scenes_without_labels_are_told_and_unreadable_ones_decide_no_convention(store):
    unlabeled = make_scene(20, seed=7)._replace(semantic=np.full(20, -100, np.int16))
    for name in "bc":
        write_scene(store / "scenes" / f"{name}.scene", unlabeled)
    assert opened(store).notices == [
        "note: 2 of 3 scenes of train have no labels and are not part of any loss or score, the first is b"
    ]
    assert opened(store).labeled and not opened(store, "val").notices
    centered = make_scene(20)
    centered = centered._replace(xyz=centered.xyz - centered.xyz.mean(axis=0))
    for name in "abcd":
        write_scene(store / "scenes" / f"{name}.scene", centered)
    assert store_is_centered(store)
    (store / "scenes" / "b.scene").write_bytes(b"damaged")
    assert store_is_centered(store)
    write_scene(store / "scenes" / "d.scene", centered._replace(xyz=centered.xyz + 9))
    assert not store_is_centered(store)


def test_the_extent_is_the_longest_side(tmp_path):
    scene = make_scene(100)
    xyz = scene.xyz / np.abs(scene.xyz).max(axis=0) + np.array([10, -20, 30], np.float32)
    write_scene(tmp_path / "a.scene", scene._replace(xyz=xyz))
    header = read_header(tmp_path / "a.scene")
    assert header.extent == pytest.approx(np.ptp(xyz, axis=0).max()) and header.spacing == header.extent / 10


@pytest.mark.parametrize(
    "extent, mean, expected",
    [
        (4, (0.0, 0.0, 0.0625), False),  # 5 cm, or a hundredth of the longest side
        (4, (0.0, 0.0, -0.0625), False),
        (4, (0.0, -0.046875, 0.046875), True),
        (16, (0.0, -0.171875, 0.0), False),
        (16, (0.0, -0.15625, 0.15625), True),
        (16, (0.171875, 0.0, 0.0), False),
    ],
)
def test_a_scene_is_centered_if_the_mean_of_its_points_is_near_the_origin(tmp_path, extent, mean, expected):
    xyz = np.array([[-extent / 2, 0, 0.5], [0, 1, -1], [extent / 2, -1, 0.5]], np.float32) + np.float32(mean)
    assert write_scene(tmp_path / "a.scene", make_scene(3)._replace(xyz=xyz)).is_centered is expected


def test_the_extent_of_a_centered_scene_is_its_longest_side_and_not_the_range_of_all_numbers(tmp_path):
    xyz = np.array([[-8, -16, 0.3], [-8, 8, 0.3], [16, 8, 0.3]], np.float32)  # a mean of 0.3 of 24 m, not of 32 m
    assert not write_scene(tmp_path / "a.scene", make_scene(3)._replace(xyz=xyz)).is_centered
    assert write_scene(tmp_path / "a.scene", make_scene(3)._replace(xyz=xyz - np.float32([0, 0, 0.1]))).is_centered


@pytest.mark.parametrize(
    "points, height, voxel_size, numbers",
    [
        (100, 1, 0.02, "5,000 voxels of DATA.VOXEL_SIZE_M, with about 500 voxels"),
        (100, 1, 0.021, None),  # less wide
        (62_500, 1, 0.02, "5,000 voxels of DATA.VOXEL_SIZE_M, with about 20 voxels"),
        (63_000, 1, 0.02, None),  # denser
        (63_000, 250, 0.02, "12,500 voxels of DATA.VOXEL_SIZE_M, with about 50 voxels"),
        (63_000, 250, 0.05, "5,000 voxels of DATA.VOXEL_SIZE_M, with about 20 voxels"),  # too tall for meters
    ],
)
def test_voxels_far_too_small_for_the_sparsest_scene_are_told(store, points, height, voxel_size, numbers):
    scene = make_scene(points)
    xyz = np.zeros_like(scene.xyz)
    xyz[-1] = 100, 7, height
    write_scene(store / "scenes" / "b.scene", scene._replace(xyz=xyz))
    for name in "ac":
        write_scene(store / "scenes" / f"{name}.scene", scene._replace(xyz=xyz * np.float32(0.9)))
    told = None if numbers is None else f"scene b spans {numbers} between neighboring points"
    assert opened(store).unit_notice(voxel_size) == told


@pytest.mark.parametrize(
    "length, names",
    [(3, b"a\n"), (2, b"ab"), (1 << 14, b"a\n"), ((1 << 14) + 1, b"x" * (1 << 14) + b"\n")],
)
def test_incomplete_names_of_channels_are_told(length, names):
    content = bytes(HEADER_BYTES) + struct.pack("<II", 0, length) + names
    with pytest.raises(UserError, match="^scene a is damaged: the names of its channels are incomplete; delete it"):
        _parse_names(content, "a")
    good = bytes(HEADER_BYTES) + struct.pack("<II", 7, 4) + b"a\nb\n and more"
    assert _parse_names(good, "a") == (("a", "b"), 7)


@pytest.mark.parametrize(
    "sides, points, expected",
    [
        ((500, 1, 1), 10_000, True),  # points 5 m apart
        ((500, 1, 1), 10_001, False),
        ((499, 1, 1), 100, False),
        ((1000, 1, 200), 10**9, True),
        ((1000, 1, 199), 10**9, False),
        ((1001, 1, 200), 10**9, False),  # lower than a fifth of its length
        ((9000, 1, 1000), 10**9, True),
        ((9000, 1, 999), 10**9, False),
    ],
)
def test_scenes_that_are_hardly_in_meters(sides, points, expected):
    low = (7.0, -300.0, 20.0)
    high = tuple(start + side for start, side in zip(low, sides))
    header = SceneHeader(1, points, 0, 0, -1, False, low, high, (0, 0, 0), bytes(32), 0)
    assert header.looks_too_large is expected
