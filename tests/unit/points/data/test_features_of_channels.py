"""Channels of scenes: kept by stores, turned with the points, shown to networks by their names; and units of length."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.refusals import refusal_of
from support.samples.small_scenes import make_scene, same, tensors

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.points.data.augment import (
    AffineMap,
    MatrixDistortion,
    RandomFlip,
    RandomRotation,
    RandomScale,
    mix,
    select,
)
from paddlevit_dist.points.data.features import require_channels
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.data.scene_store import read_header, read_scene, write_lines, write_scene
from paddlevit_dist.points.data.scenes import describe_lacking
from paddlevit_dist.points.instances.task import InstanceSegmentation
from paddlevit_dist.points.segmentation.task import SemanticSegmentation

SEMANTIC = ["TASK", "semantic_segmentation", "MODEL.NAME", "minkunet_tutorial"]
INSTANCES = ["TASK", "pointgroup", "MODEL.NAME", "pointgroup", "MODEL.OPTIONS.width", "4"]
INSTANCES += ["POINTS.INSTANCES.STUFF_CLASSES", "[]"]


def with_channels(points=300, seed=0, **more):
    generator = np.random.default_rng(seed)
    normal = generator.normal(size=(points, 3))
    normal = (normal / np.linalg.norm(normal, axis=1, keepdims=True)).astype(np.float32)
    intensity = generator.integers(0, 256, (points, 1)).astype(np.float32)
    return make_scene(points, seed=seed, **more)._replace(channels={"normal": normal, "intensity": intensity})


def make_store(tmp_path, *scenes):
    (tmp_path / "scenes").mkdir(parents=True)
    for scene in scenes:
        write_scene(tmp_path / "scenes" / f"{scene.name}.scene", scene)
    write_lines(tmp_path / "classes.txt", list("abcde"))
    for split in ("train", "val"):
        write_lines(tmp_path / f"{split}.txt", [scene.name for scene in scenes])
    return tmp_path


def task_on(store, task_class, *words):
    common = ["-dataset=scenes", f"-data_path={store}", "DATA.VOXEL_SIZE_M", "0.4"]
    names = SEMANTIC if task_class is SemanticSegmentation else INSTANCES
    return task_class(settings.load([*names, *common, *words]).values)


@pytest.mark.parametrize("points", (1, 3, 1001))
def test_channels_come_back_in_four_bytes_a_number(tmp_path, points):
    scene = with_channels(points)
    header = write_scene(tmp_path / "a.scene", scene)
    names = b"normal\nintensity\n"
    names += bytes(-len(names) % 4)
    content = (tmp_path / "a.scene").read_bytes()
    assert content[136 : 136 + len(names)] == names
    assert len(content) == 128 + 8 + len(names) + (18 + 16) * points == header.file_bytes
    assert read_header(tmp_path / "a.scene") == header and header.channels == ("normal", "intensity")
    found = read_scene(tmp_path / "a.scene", "room")
    assert same(found, scene) and list(found.channels) == ["normal", "intensity"]
    assert all(np.array_equal(found.channels[name], scene.channels[name]) for name in scene.channels)


@pytest.mark.parametrize("damage", (b"\xff\xff\xff\xff", b"\x05\0\0\0"))
def test_damaged_names_of_channels_are_told(tmp_path, damage):
    path = tmp_path / "a.scene"
    write_scene(path, with_channels(5))
    content = bytearray(path.read_bytes())
    content[132:136] = damage
    path.write_bytes(content)
    for read in (read_header, lambda path: read_scene(path, "a")):
        with pytest.raises(UserError, match="is damaged: the names of its channels are incomplete"):
            read(path)


def test_a_channel_has_finite_numbers(tmp_path):
    scene = with_channels(9)
    scene.channels["intensity"][4] = np.nan
    with pytest.raises(UserError, match="scene a: intensity of point 4 is not a finite number; repair it, or remove"):
        write_scene(tmp_path / "a.scene", scene)


@pytest.mark.parametrize("centered", (True, False))
def test_normals_stay_upright_on_the_surfaces_that_turn(centered):
    generator = np.random.default_rng(0)
    corners = generator.normal(size=(50, 3, 3))

    def normals(corners):
        found = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    normal = np.repeat(normals(corners), 3, axis=0).astype(np.float32)
    nothing = np.zeros(150, np.int16)
    scene = Scene(corners.reshape(-1, 3).astype(np.float32), np.zeros((150, 3), np.uint8), nothing, nothing, "a")
    scene = scene._replace(channels={"normal": normal})
    for seed in range(4):
        parts = (
            MatrixDistortion(0.2),
            RandomFlip(0.5, 2),
            RandomRotation(0, 0.5),
            RandomRotation(2, 3.0),
            RandomScale(0.5, 2.0),
        )
        moved = AffineMap(parts, centered)(scene, np.random.default_rng(seed))
        expected = np.repeat(normals(moved.xyz.reshape(-1, 3, 3).astype(np.float64)), 3, axis=0)
        along = (moved.channels["normal"] * expected).sum(axis=1)
        np.testing.assert_allclose(np.abs(along), 1.0, atol=1e-4)  # a mirror image turns the corners' order round
    mirrored = AffineMap((RandomFlip(1.0, 1),), centered)(scene, generator)
    np.testing.assert_allclose(mirrored.channels["normal"], normal * [-1, 1, 1], atol=1e-6)


def test_channels_follow_their_points():
    scene, other = with_channels(20), with_channels(7, seed=1)
    chosen = select(scene, np.array([3, 1]))
    np.testing.assert_array_equal(chosen.channels["intensity"], scene.channels["intensity"][[3, 1]], strict=True)
    both = mix(scene, other._replace(channels={"normal": other.channels["normal"]}))
    assert list(both.channels) == ["normal"]
    np.testing.assert_array_equal(both.channels["normal"][20:], other.channels["normal"], strict=True)


def test_a_network_sees_the_channels_that_the_key_names(tmp_path):
    scene = with_channels(40, name="a")
    task = task_on(
        make_store(tmp_path / "s", scene), SemanticSegmentation, "POINTS.FEATURES", "[intensity/255, xyz, normal]"
    )
    samples = task.build_dataset("val", tmp_path)
    view = samples.sample(0, None).views[0]
    expected = np.c_[scene.channels["intensity"] / 255, scene.xyz, scene.channels["normal"]]
    first = [np.flatnonzero(view.inverse == voxel)[0] for voxel in range(len(view.voxels))]
    np.testing.assert_allclose(view.features, expected[first], rtol=1e-6)
    assert task.signature()["POINTS.FEATURES"] == ["intensity/255", "xyz", "normal"]
    model = task.build_model()
    batch = tensors(task.collate([samples.sample(0, None)]))
    assert task.point_logits(model, batch).shape == [40, 5]


def test_turned_views_show_turned_normals(tmp_path):
    scene = with_channels(30, name="a")
    words = ["POINTS.FEATURES", "[normal, xyz]", "POINTS.TEST_ROTATIONS", "4", "DATA.VOXEL_SIZE_M", "0.0001"]
    task = task_on(make_store(tmp_path / "s", scene), SemanticSegmentation, *words)
    views = task.build_dataset("val", tmp_path).sample(0, None).views
    shown = [view.features[view.inverse] for view in views]  # each point has a voxel of its own
    middle = np.r_[0, 0, 0, (scene.xyz[:, :2].min(axis=0) + scene.xyz[:, :2].max(axis=0)) / 2, 0]
    shown = [features - middle for features in shown]  # scenes are turned about their middle, as in training
    for quarter in range(4):
        for column in (0, 3):  # a quarter turn from x toward y
            x, y, z = shown[0][:, column : column + 3].T
            expected = [(x, y, z), (-y, x, z), (-x, -y, z), (y, -x, z)][quarter]
            np.testing.assert_allclose(shown[quarter][:, column : column + 3].T, expected, atol=1e-5)


def test_pointgroup_sees_channels_too_and_trains_on_them(tmp_path):
    store = make_store(tmp_path / "s", with_channels(60, name="a"))
    task = task_on(store, InstanceSegmentation, "POINTS.FEATURES", "[rgb, normal, intensity/255]")
    samples = task.build_dataset("train", tmp_path)
    sample = samples.sample(0, np.random.default_rng(0))
    model, batch = task.build_model(), task.collate([sample])
    assert batch["features"].shape[1] == 10
    lengths = np.linalg.norm(sample.views[0].features[:, 3:6], axis=1)
    assert lengths.max() < 1.01 and lengths.min() < lengths.max()  # means of unit vectors
    terms = task.train_step(model, tensors(batch), StepPosition(1, 0, 10))
    sum(term.sum * term.weight for term in terms.values()).backward()
    assert np.isfinite(next(iter(model.parameters())).grad.numpy()).all()


def test_what_scenes_do_not_have_is_told_with_what_they_have(tmp_path):
    scenes = with_channels(30, name="a"), with_channels(30, name="b")
    store = make_store(tmp_path / "s", scenes[0], scenes[1]._replace(channels={"normal": scenes[1].channels["normal"]}))
    task = task_on(store, SemanticSegmentation, "POINTS.FEATURES", "[rgb, intensity]")
    with pytest.raises(
        UserError, match=r"names intensity, which scene b \(1 of 2\) does not have: add it to these files"
    ):
        task.build_dataset("train", tmp_path)
    task = task_on(store, SemanticSegmentation, "POINTS.FEATURES", "[rgb, time]")
    with pytest.raises(UserError, match="names time, but the scenes of dataset scenes have normal, and the built-in"):
        task.build_dataset("train", tmp_path)
    rooms = [*SEMANTIC, "-dataset=synthetic_rooms", "POINTS.FEATURES", "[normal]"]
    with pytest.raises(
        UserError, match="names normal, but the scenes of dataset synthetic_rooms have no channels, only"
    ):
        SemanticSegmentation(settings.load(rooms).values).build_dataset("train", tmp_path)


@pytest.mark.parametrize("value", ("[]", "[rgb, rgb]", "[intensity/0]", "[intensity/x]", "[a/2/3]"))
def test_features_are_names(value):
    with pytest.raises(
        UserError, match=r"POINTS.FEATURES.*expected names without repetition, such as \[rgb, normal, height\]"
    ):
        settings.load([*SEMANTIC, "-dataset=synthetic_rooms", "POINTS.FEATURES", value])


@pytest.mark.parametrize("task_class", (SemanticSegmentation, InstanceSegmentation))
@pytest.mark.parametrize("is_training", (True, False))
def test_millimeters_are_meters_to_the_network(tmp_path, task_class, is_training):
    scene = with_channels(200, name="a")
    stores = [
        make_store(tmp_path / str(number), one)
        for number, one in enumerate((scene, scene._replace(xyz=scene.xyz * np.float32(1000))))
    ]
    shown = []
    for store, unit in zip(stores, ("1", "0.001")):
        task = task_on(store, task_class, "DATA.UNIT_M", unit, "POINTS.FEATURES", "[xyz]")
        samples = task.build_dataset("train" if is_training else "val", tmp_path)
        shown.append(samples.sample(0, np.random.default_rng(3)))
    assert len(shown[0].views[0].features) == pytest.approx(len(shown[1].views[0].features), abs=3)
    np.testing.assert_allclose(shown[0].scene.xyz, shown[1].scene.xyz, atol=1e-4)
    assert np.abs(shown[0].scene.xyz).max() > 1.0


def test_the_voxel_size_is_compared_in_the_unit_of_the_scenes(tmp_path):
    store = make_store(tmp_path / "s", with_channels(30, name="a"))
    task = task_on(store, SemanticSegmentation, "DATA.UNIT_M", "0.001", "DATA.VOXEL_SIZE_M", "0.5")
    fine = SimpleNamespace(unit_notice=lambda voxel_size: None, notices=["b"])
    assert task.list_notices(fine) == ["b"]
    dataset = SimpleNamespace(unit_notice=lambda voxel_size: f"voxels of {voxel_size:g}", notices=["a"])
    first, second = task.list_notices(dataset)
    assert first == "a" and second.startswith("note: voxels of 500: ")
    assert task.list_notices(dataset) == ["a"]  # once for all splits


def test_channels_are_not_copied_unless_they_are_shown(tmp_path):
    task = task_on(make_store(tmp_path / "s", with_channels(30, name="a")), SemanticSegmentation)
    samples = task.build_dataset("train", tmp_path)
    assert samples.sample(0, np.random.default_rng(0)).scene.channels == {}
    assert paddle.to_tensor(samples.sample(0, np.random.default_rng(0)).views[0].features).shape[1] == 3


def test_a_channel_that_only_some_scenes_have_names_the_others(tmp_path):
    headers = []
    for number in range(5):
        channels = {} if number == 3 else {"intensity": np.ones((50, 1), np.float32)}
        scene = make_scene(50)._replace(channels=channels)
        headers.append(write_scene(tmp_path / f"tile_{number}.scene", scene))
    lacking = describe_lacking([f"tile_{number}" for number in range(5)], headers)
    assert lacking == {"intensity": "scene tile_3 (1 of 5)"}
    message = refusal_of(require_channels, ["rgb", "intensity/255"], (), "the scenes", lacking)
    assert message.startswith("POINTS.FEATURES names intensity, which scene tile_3 (1 of 5) does not have: add it to ")
    assert "but the scenes have no channels" in refusal_of(require_channels, ["time"], (), "the scenes", lacking)
