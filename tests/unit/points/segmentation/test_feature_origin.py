"""A point has the input that training gives it, when a street is evaluated whole, in blocks or by votes."""

import numpy as np
import paddle
import pytest
from support.refusals import refusal_of
from support.samples.small_scenes import tensors

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.task_factory import make_task as make_configured_task
from paddlevit_dist.points.data.augment import apply
from paddlevit_dist.points.data.features import point_features
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.data.scenes import SceneDataset
from paddlevit_dist.points.segmentation.task import SemanticSegmentation, training_steps
from paddlevit_dist.points.sparse import PlanSpec

FEATURES = ["rgb", "xyz", "centered_xyz", "height", "ones", "normal", "intensity/255"]
SMALL = "TASK semantic_segmentation -dataset=synthetic_rooms MODEL.NAME minkunet_tutorial DATA.VOXEL_SIZE_M 0.01"
STILL = "FLIP 0 TILT_DEGREES 0 ROTATION_DEGREES 0 SCALE [1,1]"
ROOM = 150  # points
CROPS = ["", "POINTS.CROP sphere", "POINTS.CROP block", "POINTS.MAX_POINTS 200", "POINTS.MAX_POINTS 400"]
BLOCKS = "POINTS.FRAGMENT_SIZE_M 6 POINTS.FRAGMENT_OVERLAP_M 0"
WEIGHTS = np.random.default_rng(1).normal(size=(15, 20)).astype(np.float32)


def make_task(words: str, features: str = f"[{','.join(FEATURES)}]") -> SemanticSegmentation:
    still = " ".join(f"POINTS.AUGMENT.{word}" if n % 2 == 0 else word for n, word in enumerate(STILL.split()))
    names = f"POINTS.FEATURES {features} POINTS.CROP_SIZE_M 6"
    return SemanticSegmentation(settings.load(f"{SMALL} {still} {names} {words}".split()).values)


def make_street() -> Scene:
    """Two rooms, the second one 6.5 m farther along x and 2 m higher."""
    random, points = np.random.default_rng(0), 2 * ROOM
    xyz = random.uniform(0, (4, 5, 2.5), (points, 3)) + np.repeat([[-7.0, -1, 1], [-0.5, -1, 3]], ROOM, axis=0)
    normal = random.normal(size=(points, 3)).astype(np.float32)
    channels = {"normal": normal, "intensity": random.uniform(0, 255, (points, 1)).astype(np.float32)}
    labels, instances = np.zeros(points, np.int16), np.full(points, -100, np.int16)
    rgb = random.integers(0, 256, (points, 3), dtype=np.uint8)
    return Scene(xyz.astype(np.float32), rgb, labels, instances, "street", channels=channels)


class GivenScenes(list, SceneDataset):
    """A data set of given scenes."""

    read, num_classes, class_names = list.__getitem__, 20, [f"class {number}" for number in range(20)]


def compute_inputs(street: Scene, rows: np.ndarray, middle: np.ndarray, floor: float, factor=1.0) -> np.ndarray:
    """All features of points, from the middle of a floor; positions are from the street's middle, times a factor."""
    xyz = street.xyz[rows].astype(np.float64)
    between = np.array([*(street.xyz[:, :2].min(0) + street.xyz[:, :2].max(0)) / 2, street.xyz[:, 2].min()])
    positions = factor * (xyz - [*middle, floor])
    columns = street.rgb[rows] / 127.5 - 1, factor * (xyz - between) + between, positions, positions[:, 2:]
    channels = street.channels["normal"][rows], street.channels["intensity"][rows] / 255
    return np.concatenate([*columns, np.ones((len(rows), 1)), *channels], axis=1)


def find_middle(xyz: np.ndarray) -> np.ndarray:
    return (xyz[:, :2].min(axis=0) + xyz[:, :2].max(axis=0)) / 2


@pytest.mark.parametrize("crop", CROPS)
def test_training_measures_positions_from_the_middle_of_what_it_crops(crop):
    task, street = make_task(f"{crop} {BLOCKS}"), make_street()
    part = apply(training_steps(task.config.POINTS, GivenScenes([street])), street, np.random.default_rng(3))
    floor = part.xyz[:, 2].min() if "block" in crop else street.xyz[:, 2].min()
    found = point_features(part, slice(None), ["centered_xyz", "height"], None)
    expected = part.xyz - [*find_middle(part.xyz), floor]
    np.testing.assert_allclose(found, np.c_[expected, expected[:, 2]], atol=1e-4)


@pytest.mark.parametrize(
    ("crop", "how", "scales"),
    [("", "", (1.0,)), ("POINTS.CROP sphere", "", (1.0,)), ("POINTS.MAX_POINTS 200", "", (1.0,))]
    + [(crop, how, (1.0,)) for crop in CROPS for how in (BLOCKS, f"{BLOCKS} POINTS.TEST_VOTES 3")]
    + [(crop, BLOCKS, (1.0, 1.1)) for crop in CROPS[:3]],
)
def test_a_street_has_the_classes_that_trainings_rule_gives(crop, how, scales):
    """By brute force: whatever training crops is measured from its own middle, and a block from its own floor."""
    task, street = make_task(f"{crop} {how} POINTS.TEST_SCALES {str([*scales]).replace(' ', '')}"), make_street()

    def model(x):
        return paddle.matmul(x.features, paddle.to_tensor(WEIGHTS))

    samples = task.build_samples(GivenScenes([street]), is_training=False)
    task.plan_spec = PlanSpec(())
    found = task.score(model, tensors(task.collate([samples.sample(0, None)])))[0].numpy()

    is_cropped = crop not in ("", CROPS[-1])
    whole, rooms = np.arange(2 * ROOM), np.split(np.arange(2 * ROOM), 2)
    expected = np.zeros(2 * ROOM, int)
    for room in rooms:
        place = street.xyz[room if how and is_cropped else whole]
        floor = (place if "block" in crop else street.xyz)[:, 2].min()
        logits = [compute_inputs(street, room, find_middle(place), floor, factor) @ WEIGHTS for factor in scales]
        shares = [np.exp(each) / np.exp(each).sum(axis=1, keepdims=True) for each in logits]
        expected[room] = np.mean(shares, axis=0).argmax(axis=1)
    assert (found == expected).mean() > 0.99 and len(np.unique(found)) > 3


def test_positions_in_blocks_need_blocks_and_others_are_told():
    features = "POINTS.FEATURES [centered_xyz]"
    message = refusal_of(make_task, f"{features} POINTS.CROP block")
    assert "positions are then from the middle of a block, in evaluations, too: set POINTS.FRAGMENT_SIZE_M 6" in message
    facts = [make_task(f"{features} POINTS.CROP {crop} {BLOCKS}").signature() for crop in ("block", "sphere")]
    assert facts[0] != facts[1]

    def notices(words):
        return settings.load(f"{SMALL} POINTS.CROP_SIZE_M 6 {words}".split()).notices

    told = "training measures centered_xyz from the middle of what it crops"
    dataset = GivenScenes([make_street()])
    for crop, is_told in zip(CROPS, (False, True, None, True, True)):
        for more in ("", BLOCKS) if is_told is not None else (BLOCKS,):
            for features in ("[centered_xyz]", "[height]"):
                task = make_task(f"{crop} {more}", features)
                lines = [line for _ in range(2) for line in task.build_samples(dataset, is_training=False).notices]
                is_said = bool(is_told) and not more and features == "[centered_xyz]"
                assert [told in line for line in lines] == [True] * is_said, (crop, more, features)
    features = "POINTS.FEATURES [centered_xyz]"
    (line,) = notices(f"{features} POINTS.CROP block POINTS.FRAGMENT_SIZE_M 8")
    assert "positions then reach 4 m from a block's middle, and 3 m in training" in line


def test_views_around_another_middle_than_in_training_are_told():
    words = f"{SMALL} POINTS.CROP_SIZE_M 6 POINTS.TEST_ROTATIONS 2 POINTS.FEATURES"
    for more, is_told in (("[xyz] POINTS.CROP sphere", True), ("[rgb] POINTS.CROP sphere", False), ("[xyz]", False)):
        notices = settings.load(f"{words} {more}".split()).notices
        assert any("training turns and mirrors crops around their own middle" in line for line in notices) == is_told


@pytest.mark.parametrize("recipe", ["ptv3_scannet_sonata", "pointgroup_scannet"])
def test_recipes_with_crops_and_positions_run_and_say_from_where_they_are_measured(recipe):
    words = [f"-cfg={recipe}", "-data_path=.", "POINTS.FEATURES", "[centered_xyz,rgb]"]
    task = make_configured_task(settings.load(words).values)
    (line,) = task.list_notices(GivenScenes([make_street()]))
    assert line.startswith("note: POINTS.MAX_POINTS ") and "centered_xyz" in line
