"""Scenes in parts: training crops, and evaluation over overlapping blocks."""

import numpy as np
import paddle
import pytest
from support.networks.varied import vary
from support.samples.remembered_rooms import remembered_rooms  # noqa: F401
from support.samples.small_scenes import tensors

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Predictable
from paddlevit_dist.core.tasks.step_types import EvaluationStep
from paddlevit_dist.points.data.augment import PointCrop, apply
from paddlevit_dist.points.data.features import point_features
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.data.scenes import SceneDataset
from paddlevit_dist.points.segmentation import fragments
from paddlevit_dist.points.segmentation.fragments import FloorBlocks
from paddlevit_dist.points.segmentation.task import SemanticSegmentation, training_steps
from paddlevit_dist.points.sparse import PlanSpec

SMALL = "TASK semantic_segmentation -dataset=remembered_rooms MODEL.NAME minkunet_tutorial DATA.VOXEL_SIZE_M 0.2"
ROOMS = "POINTS.ROOMS.TRAIN 2 POINTS.ROOMS.VAL 3 POINTS.ROOMS.SPACING_M 0.15"


def make_task(*arguments: str) -> SemanticSegmentation:
    return SemanticSegmentation(settings.load([*SMALL.split(), *ROOMS.split(), *arguments]).values)


def scene(points=2000, extent=6.0, seed=0) -> Scene:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 20, points).astype(np.int16)
    labels[generator.random(points) < 0.3] = -100
    return Scene(
        (generator.uniform(-extent, extent, (points, 3)) * (1, 0.8, 0.6)).astype(np.float32),
        generator.integers(0, 256, (points, 3), dtype=np.uint8),
        labels,
        np.full(points, -100, np.int16),
        "a",
    )


@pytest.mark.parametrize("shape", ["sphere", "block"])
def test_a_crop_is_all_that_is_near_one_labeled_point(shape):
    whole, seen = scene(), set()
    whole = whole._replace(semantic=np.where(np.arange(2000) % 500 == 7, 3, -100).astype(np.int16))
    for seed in range(12):
        crop = PointCrop(shape, 5.0)(whole, np.random.default_rng(seed))
        distances = np.abs(whole.xyz[None] - whole.xyz[7::500][:, None])  # from each labeled point
        near = [(d**2).sum(-1) <= 2.5**2 if shape == "sphere" else (d[:, :2] <= 2.5).all(-1) for d in distances]
        (found,) = [place for place, mask in enumerate(near) if np.array_equal(whole.xyz[mask], crop.xyz)]
        np.testing.assert_array_equal(crop.rgb, whole.rgb[near[found]], strict=True)
        seen.add(found)
    assert len(seen) > 2
    bare = whole._replace(semantic=np.full(2000, -100, np.int16))
    assert 0 < len(PointCrop(shape, 5.0)(bare, np.random.default_rng(0)).xyz) < 2000


class GivenScenes(list, SceneDataset):
    """A data set of given scenes."""

    read, num_classes, class_names = list.__getitem__, 20, [f"class {number}" for number in range(20)]


@pytest.mark.parametrize("keys", ["MAX_POINTS 300", "CROP sphere", "AUGMENT.DROPOUT 0.9", "MIX_PROB 1", "CROP block"])
@pytest.mark.parametrize("views", ["1", "3"])
def test_heights_are_alike_in_training_and_evaluation(keys, views):
    """Above the scene's lowest point, whichever points are selected; above a block's if training crops blocks."""
    words = f"POINTS.{keys} POINTS.FEATURES [xyz,height] POINTS.FRAGMENT_SIZE_M 3 POINTS.TEST_ROTATIONS {views}".split()
    words += "POINTS.AUGMENT.TILT_DEGREES 0 POINTS.AUGMENT.SCALE [1,1]".split()
    task, whole = make_task(*words, "DATA.VOXEL_SIZE_M", "0.01"), scene(1500, 6.0)
    whole = whole._replace(xyz=whole.xyz + np.c_[0 * whole.xyz[:, :2], 3 * whole.xyz[:, 0]].astype(np.float32) + 50)
    training = training_steps(task.config.POINTS, GivenScenes([whole]))
    seen = []
    for seed in range(6):
        part = apply(training, whole, np.random.default_rng(seed))
        z, height = point_features(part, slice(None), ["xyz", "height"], None)[:, 2:].T
        floor = z.min() if "block" in keys else whole.xyz[:, 2].min()
        np.testing.assert_allclose(height, z - floor, atol=1e-4)
        seen.append(height.min())
    assert (max(seen) > 0.1) == (keys not in ("MIX_PROB 1", "CROP block"))

    def model(x):
        places.append(x.features.numpy())
        return paddle.zeros([x.features.shape[0], 20])

    places, samples = [], task.build_samples(GivenScenes([whole]), is_training=False)
    task.plan_spec = PlanSpec(())
    batch = task.collate([samples.build_sample(whole, None)])
    task.score(model, tensors(batch))
    assert len(places) > 12 * int(views)
    for *_, z, height in (block.T for block in places):
        np.testing.assert_allclose(height, z - (z.min() if "block" in keys else whole.xyz[:, 2].min()), atol=1e-4)


def test_heights_in_blocks_need_blocks_in_evaluation():
    words = "POINTS.FEATURES [height] POINTS.CROP block POINTS.CROP_SIZE_M 7".split()
    with pytest.raises(UserError, match=r"^POINTS.CROP block .*in evaluations, too: set POINTS.FRAGMENT_SIZE_M 7"):
        make_task(*words)
    facts = [make_task(*words[:2], *more).signature() for more in ([], [*words[2:], "POINTS.FRAGMENT_SIZE_M", "7"])]
    assert facts[0] != facts[1] and "height" not in str(make_task("POINTS.CROP", "block").signature())


@pytest.mark.parametrize("size, features, told", [("9", "height", True), ("7", "height", False), ("9", "xyz", False)])
def test_heights_in_blocks_of_another_size_are_told_and_evaluations_read_the_crop(size, features, told):
    words = f"POINTS.FEATURES [{features}] POINTS.CROP block POINTS.CROP_SIZE_M 7 POINTS.FRAGMENT_SIZE_M {size}"
    notices = settings.load([*SMALL.split(), *words.split(), "-eval", "-pretrained=w"]).notices
    assert any("on a slope, heights above a block's lowest point are then others" in line for line in notices) == told
    assert not any(line.startswith("POINTS.CROP block") for line in notices)  # that it has no effect


def test_training_scenes_are_cropped_before_all_else():
    samples = make_task("POINTS.CROP", "sphere", "POINTS.CROP_SIZE_M", "2").build_dataset("train", None)
    whole = len(samples.dataset.read(0).xyz)
    sizes = {len(samples.sample(0, np.random.default_rng(seed)).scene.xyz) for seed in range(3)}
    assert len(sizes) > 1 and max(sizes) < whole / 2
    xyz = samples.sample(0, np.random.default_rng(0)).scene.xyz
    assert np.linalg.norm(xyz - xyz.mean(0), axis=1).max() < 2 * 1.2


@pytest.mark.parametrize("size, overlap", [(7, 2), (7, 0), (5, 4), (1, 0), (1000, 3)])
def test_blocks_cover_every_voxel_and_neighbors_overlap(size, overlap):
    voxels = np.random.default_rng(0).integers(-20, 20, (300, 3)).astype(np.int32)
    voxels[0] = 5000, -5000, 0  # a stray point
    times = np.zeros(300, int)
    for rows in FloorBlocks(size, overlap).split(voxels):
        assert len(rows) and (np.diff(rows) > 0).all()
        assert (np.ptp(voxels[rows, :2], axis=0) < size).all()
        times[rows] += 1
    assert times.min() == 1 and (times.max() > 1) == (overlap > 0 and size < 1000)
    assert not list(FloorBlocks(size, overlap).split(voxels[:0]))


def logits_as_a_whole(task, model, sample):
    arrays = SemanticSegmentation.__mro__[1].collate(task, [sample])
    return task.point_logits(model, tensors(arrays)).numpy()


def evaluated(task, samples, scenes):
    paddle.seed(0)
    model = vary(task.build_model())
    batch = task.collate([samples.build_sample(one, np.random.default_rng(0)) for one in scenes])
    inputs, metrics = tensors(batch), task.build_metrics()
    task.eval_step(model, inputs, EvaluationStep(metrics))
    return metrics, get_aspect(task, Predictable).predict_step(model, inputs), model


def test_a_point_has_the_mean_logits_of_its_blocks():
    """By brute force: each block of 20 voxels, 15 apart, as a scene of its own."""
    task = make_task("POINTS.FRAGMENT_SIZE_M", "4", "POINTS.FRAGMENT_OVERLAP_M", "1")
    samples = task.build_dataset("val", None)
    scenes = scene(3000, 5.0, 1), scene(0), scene(500, 3.0, 2)
    metrics, predicted, model = evaluated(task, samples, scenes)
    total_loss, points = 0.0, 0
    for one, found in zip(scenes, predicted):
        voxels = np.floor(one.xyz / np.float32(0.2)).astype(np.int64)
        sums, times = np.zeros((len(voxels), 20)), np.zeros(len(voxels))
        for x in np.arange(-40, 40):
            for y in np.arange(-40, 40):
                first, last = (voxels[:, 0].min(), voxels[:, 0].max()) if len(voxels) else (40, -40)
                if x < first or (x - first) % 15 or x > last - 5:
                    continue
                strip = (voxels[:, 0] >= x) & (voxels[:, 0] < x + 20)
                low, high = voxels[strip, 1].min(), voxels[strip, 1].max()
                if y < low or (y - low) % 15 or y > max(high - 5, low):
                    continue
                rows = np.flatnonzero(strip & (voxels[:, 1] >= y) & (voxels[:, 1] < y + 20))
                part = one._replace(
                    **{name: getattr(one, name)[rows] for name in ("xyz", "rgb", "semantic", "instance")}
                )
                sums[rows] += logits_as_a_whole(task, model, samples.build_sample(part, np.random.default_rng(0)))
                times[rows] += 1
        logits = sums / times[:, None]
        assert len(found) == len(logits) and (logits.argmax(1) == found).all()
        assert not len(one.xyz) or len(np.unique(found)) > 5
        known = one.semantic >= 0
        shares = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        total_loss, points = total_loss - shares[known, one.semantic[known]].sum(), points + known.sum()
    values = metrics.compute(metrics.state)
    assert values["points"] == points and values["loss"] == pytest.approx(total_loss / points, rel=1e-5)
    assert [row[1].sum() for row in metrics.per_sample()[0]] == [(one.semantic >= 0).sum() for one in scenes]


@pytest.mark.parametrize("views", [("1", "false"), ("2", "true")])
def test_one_block_is_the_whole_scene(views, monkeypatch):
    monkeypatch.setattr(fragments, "_CHUNK_POINTS", 999)
    keys = "POINTS.TEST_ROTATIONS", views[0], "POINTS.TEST_FLIPS", views[1]
    scenes = scene(1500, 2.0), scene(0), scene(700, 2.0, 1)
    found = []
    for more in ((), ("POINTS.FRAGMENT_SIZE_M", "50")):
        task = make_task(*keys, *more)
        metrics, predicted, _ = evaluated(task, task.build_dataset("val", None), scenes)
        found.append((metrics.compute(metrics.state), predicted))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-5)
    assert all(np.array_equal(one, other) for one, other in zip(found[0][1], found[1][1]))


def test_half_precision_outputs_of_a_block_are_read_as_numbers():
    def network(x):
        return (x.features[:, :1] * 8).round() * paddle.arange(20, dtype="float32")

    task = make_task("POINTS.FRAGMENT_SIZE_M", "4")
    samples, found = task.build_dataset("val", None), []
    task.plan_spec = PlanSpec(())
    batch = tensors(task.collate([samples.build_sample(scene(400), None)]))
    for model in (network, lambda x: network(x).astype("bfloat16")):
        found.append([part.numpy() for part in task.score(model, batch)])
    np.testing.assert_array_equal(*(classes for classes, _ in found))
    np.testing.assert_array_equal(*(losses for _, losses in found))
    assert len(np.unique(found[0][0])) > 1


@pytest.mark.parametrize(
    ("given", "exact"),
    [(("1", "0.95"), ("1", "0.8")), (("0.95", "0.5"), ("1", "0.4")), (("0.05", "0.01"), ("0.2", "0"))],
)
def test_blocks_of_a_fraction_of_a_voxel_are_of_one_and_advance(given, exact):
    def network(x):
        return paddle.full([x.features.shape[0], 1], float(x.features.shape[0])) * paddle.arange(20, dtype="float32")

    found = []
    for size, overlap in (given, exact, ("1", "0")):
        task = make_task("POINTS.FRAGMENT_SIZE_M", size, "POINTS.FRAGMENT_OVERLAP_M", overlap)
        samples = task.build_dataset("val", None)
        task.plan_spec = PlanSpec(())
        batch = tensors(task.collate([samples.build_sample(scene(60, 0.7), None)]))
        found.append(task.score(network, batch)[1].numpy())
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[1], found[2])


def test_a_mirrored_view_is_the_mirrored_scene():
    one = scene(300)
    samples = make_task("POINTS.TEST_FLIPS", "true").build_dataset("val", None)
    plain = make_task().build_dataset("val", None)
    first, second = samples.voxelize(one).views
    across = one.xyz[:, 0].min() + one.xyz[:, 0].max() - one.xyz[:, 0]
    mirrored = plain.voxelize(one._replace(xyz=np.c_[across, one.xyz[:, 1:]])).views[0]
    equal = (second.voxels[second.inverse] == mirrored.voxels[mirrored.inverse]).all(axis=1)
    assert equal.mean() > 0.99 and not np.array_equal(first.voxels, second.voxels)
    turned = make_task("POINTS.TEST_FLIPS", "true", "POINTS.TEST_ROTATIONS", "3").build_dataset("val", None)
    assert len(turned.voxelize(one).views) == 6


@pytest.mark.parametrize("scenes", [[scene(0)], [scene(0), scene(0)], [scene(1)]])
def test_scenes_without_points_go_on(scenes):
    task = make_task("POINTS.FRAGMENT_SIZE_M", "4", "POINTS.TEST_FLIPS", "true")
    metrics, predicted, _ = evaluated(task, task.build_dataset("val", None), scenes)
    assert [len(one) for one in predicted] == [len(one.xyz) for one in scenes]
    assert metrics.compute(metrics.state)["points"] == sum((one.semantic >= 0).sum() for one in scenes)


def test_a_score_says_how_scenes_were_evaluated():
    words = "POINTS.FRAGMENT_SIZE_M 4 POINTS.TEST_ROTATIONS 2 POINTS.TEST_FLIPS true".split()
    said = [make_task(*words[:number]).build_dataset("val", None).eval_protocol for number in (0, 2, 6)]
    assert said == ["", "blocks of 4 m, 1 m overlap", "2 directions, mirrored views, blocks of 4 m, 1 m overlap"]
    assert make_task(*words).build_dataset("train", None).eval_protocol == ""


def test_an_overlap_as_long_as_a_block_is_refused():
    with pytest.raises(UserError, match=r"POINTS.FRAGMENT_OVERLAP_M 4.*: expected less than POINTS.FRAGMENT_SIZE_M 4"):
        make_task("POINTS.FRAGMENT_SIZE_M", "4", "POINTS.FRAGMENT_OVERLAP_M", "4")


def test_a_batch_of_scenes_without_points_has_no_classes():
    none = np.zeros(0, np.int64)
    batch = {"labels": none, "offsets": np.zeros(2, int), "coordinates": np.zeros((0, 4), np.int32), "inverse": none}
    assert not list(fragments.score_fragments(lambda *_: none, FloorBlocks(4, 1), batch))
