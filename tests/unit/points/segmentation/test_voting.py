"""Votes of the points of each voxel, compared with Pointcept's rule, applied scene by scene."""

import numpy as np
import paddle
import pytest
from support.networks.varied import vary
from support.samples.small_scenes import tensors

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Predictable
from paddlevit_dist.core.tasks.step_types import EvaluationStep
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.segmentation import fragments
from paddlevit_dist.points.segmentation.task import SemanticSegmentation, WholeScene

SMALL = "TASK semantic_segmentation -dataset=synthetic_rooms MODEL.NAME minkunet_tutorial DATA.VOXEL_SIZE_M 0.4"
ROOMS = "POINTS.ROOMS.TRAIN 2 POINTS.ROOMS.VAL 2 POINTS.ROOMS.SPACING_M 0.2"


def make_task(words: str = "") -> SemanticSegmentation:
    return SemanticSegmentation(settings.load(f"{SMALL} {ROOMS} {words}".split()).values)


def make_scene(points: int, seed: int = 0) -> Scene:
    generator = np.random.default_rng(seed)
    xyz = (generator.uniform(-1.6, 1.6, (points, 3)) * [1, 1, 0.3]).astype(np.float32)
    xyz[: points // 12] = xyz[:1]  # a voxel with many points, in one place
    labels = generator.integers(-1, 20, points).astype(np.int16)
    labels[labels < 0] = -100
    colors = generator.integers(0, 256, (points, 3), dtype=np.uint8)
    return Scene(xyz, colors, labels, np.full(points, -100, np.int16), "a")


def score(task: SemanticSegmentation, scenes: list[Scene]) -> tuple:
    samples = task.build_dataset("val", None)
    paddle.seed(0)
    model = vary(task.build_model())
    model.eval()
    inputs, metrics = tensors(task.collate([samples.build_sample(one, None) for one in scenes])), task.build_metrics()
    task.eval_step(model, inputs, EvaluationStep(metrics))
    return get_aspect(task, Predictable).predict_step(model, inputs), metrics.compute(metrics.state), model


def select(scene: Scene, points: list[int]) -> Scene:
    names = "xyz", "rgb", "semantic", "instance"
    return scene._replace(**{name: getattr(scene, name)[points] for name in names})


def add_votes(model, scene: Scene, blocks: list[np.ndarray], most: int, sums: np.ndarray) -> None:
    """Add the votes of scenes that have one point of each voxel; those of the points' numbers to the last column."""
    plain = make_task()
    samples = plain.build_dataset("val", None)
    plain.build_model()
    for block in blocks:
        voxels: dict[tuple, list[int]] = {}
        for point in np.flatnonzero(block).tolist():
            voxels.setdefault(tuple(np.floor(scene.xyz[point] / np.float32(0.4)).tolist()), []).append(point)
        for number in range(min(max(map(len, voxels.values())), most)):
            chosen = [points[number % min(len(points), most)] for points in voxels.values()]
            batch = tensors(plain.collate([samples.build_sample(select(scene, chosen), None)]))
            logits = plain.point_logits(model, batch).numpy().astype(np.float64)
            shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            for share, points in zip(shares, voxels.values(), strict=True):
                for place, point in enumerate(points):
                    if place % min(len(points), most) == number % min(len(points), most):
                        sums[point] += [*share, 1]


def whole(scene: Scene) -> list[np.ndarray]:
    return [np.full(len(scene.xyz), True)]


def halves(scene: Scene) -> list[np.ndarray]:
    """Blocks of 6 voxels that overlap by 2, for a scene of 8."""
    x, y = np.floor(scene.xyz[:, :2] / np.float32(0.4)).T + 4
    assert x.min() == 0 and x.max() == 7 and y.min() == 0 and y.max() == 7
    return [(first <= x) & (x < first + 6) & (second <= y) & (y < second + 6) for first in (0, 4) for second in (0, 4)]


@pytest.mark.parametrize(
    ("words", "most", "blocks"),
    [
        ("POINTS.TEST_VOTES 100 POINTS.TEST_ROTATIONS 2", 100, whole),
        ("POINTS.TEST_VOTES 2", 2, whole),
        ("POINTS.TEST_VOTES 3", 3, whole),
        ("POINTS.TEST_VOTES 5 POINTS.FRAGMENT_SIZE_M 2.4 POINTS.FRAGMENT_OVERLAP_M 0.8", 5, halves),
    ],
)
def test_each_point_has_the_mean_of_its_votes(words, most, blocks, monkeypatch):
    monkeypatch.setattr(fragments, "_CHUNK_POINTS", 99)
    task, scenes = make_task(words), [make_scene(300), make_scene(0), make_scene(240, 1)]
    found, values, model = score(task, scenes)
    total, number = 0.0, 0
    for scene, classes in zip(scenes, found, strict=True):
        sums = np.zeros((len(scene.xyz), 21))
        if len(scene.xyz):
            low, high = scene.xyz.min(axis=0), scene.xyz.max(axis=0)
            turned = np.c_[low[:2] + high[:2] - scene.xyz[:, :2], scene.xyz[:, 2]]  # by half a turn around the middle
            for xyz in [scene.xyz, turned][: 1 + ("ROTATIONS" in words)]:
                add_votes(model, scene._replace(xyz=xyz.astype(np.float32)), blocks(scene), most, sums)
            assert sums[:, 20].min() >= 1 and len(np.unique(sums[:, 20])) >= min(most, 3)
        shares = sums[:, :20] / sums[:, 20:]
        ranked = np.sort(shares, axis=1)
        certain = ranked[:, -1] - ranked[:, -2] > 1e-5
        assert len(classes) == len(shares) and certain.sum() >= 0.9 * len(shares)
        np.testing.assert_array_equal(classes[certain], shares.argmax(axis=1)[certain])
        known = np.flatnonzero(scene.semantic >= 0)
        total, number = total - np.log(shares[known, scene.semantic[known]]).sum(), number + len(known)
    assert values["points"] == number and values["loss"] == pytest.approx(total / number, rel=1e-5)


def test_votes_of_scenes_with_a_point_in_each_voxel_are_the_usual_evaluation():
    scenes = [make_scene(40, 2), make_scene(0), make_scene(1, 3)]
    scenes[0] = select(scenes[0], np.unique(np.floor(scenes[0].xyz / 0.4), axis=0, return_index=True)[1].tolist())
    (usual, values, _), (voted, voted_values, _) = (
        score(make_task(words), scenes) for words in ("", "POINTS.TEST_VOTES 9")
    )
    assert all(np.array_equal(one, other) for one, other in zip(usual, voted, strict=True))
    assert voted_values == pytest.approx(values, rel=1e-5)
    assert [len(one) for one in score(make_task("POINTS.TEST_VOTES 9"), [make_scene(0)] * 2)[0]] == [0, 0]


def test_means_of_all_points_cannot_vote():
    with pytest.raises(UserError, match=r"TEST_VOTES 2.*POINTS.VOXEL_FEATURES mean.*set POINTS.TEST_VOTES 1"):
        make_task("POINTS.TEST_VOTES 2 POINTS.VOXEL_FEATURES mean")
    samples = make_task("POINTS.TEST_VOTES 2 POINTS.TEST_ROTATIONS 3").build_dataset("val", None)
    assert samples.eval_protocol == "3 directions, up to 2 votes of a voxel's points"


EVALUATIONS = {  # words -> views, whether the network sees parts, points' own features, and what the log says
    "": (1, False, 0, ""),
    "POINTS.TEST_ROTATIONS 2": (2, False, 0, "2 directions"),
    "POINTS.TEST_FLIPS true": (2, False, 0, "mirrored views"),
    "POINTS.TEST_SCALES [2.0]": (1, False, 0, "1 scales"),
    "POINTS.TEST_SCALES [1.0,1.0]": (2, False, 0, "2 scales"),
    "POINTS.TEST_VOTES 2": (1, True, 1, "up to 2 votes of a voxel's points"),
    "POINTS.FRAGMENT_SIZE_M 2 POINTS.FRAGMENT_OVERLAP_M 0.5": (1, True, 0, "blocks of 2 m, 0.5 m overlap"),
    "POINTS.TEST_VOTES 2 POINTS.TEST_FLIPS true": (2, True, 2, "mirrored views, up to 2 votes of a voxel's points"),
}


@pytest.mark.parametrize("words", EVALUATIONS)
def test_each_setting_of_an_evaluation_alone_changes_it_and_not_the_training(words):
    views, is_whole, features, protocol = EVALUATIONS[words]
    task, scene = make_task(words), make_scene(50)
    samples = task.build_dataset("val", None)
    assert samples.eval_protocol == protocol
    sample = samples.build_sample(scene, None)
    assert (len(sample.views), isinstance(sample, WholeScene)) == (views, is_whole)
    assert len(getattr(sample, "point_features", ())) == features
    sides = np.ptp(sample.views[0].voxels, axis=0) / np.ptp(np.floor(scene.xyz / 0.4), axis=0)
    assert np.allclose(sides, 2 if "[2.0]" in words else 1, atol=0.4)
    batch = task.collate([sample]) if is_whole else {}
    assert ("point_features" in batch) == bool(features)
    trained = task.build_dataset("train", None)
    sample = trained.build_sample(scene, np.random.default_rng(0))
    assert (len(sample.views), isinstance(sample, WholeScene), trained.eval_protocol) == (1, False, "")
