"""What the task takes from data, weights and keys, and what it makes of a network's outputs."""

import json

import numpy as np
import paddle
import pytest
from PIL import Image
from support.files.keypoint_writer import BUG, posed, write_keypoints
from support.refusals import refusal_of
from support.trainings.updates import waits_of_an_update

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.register import register_model
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.protocols import AnnotationMatching, Exportable, Predictable
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.detection.data.samples import HOST
from paddlevit_dist.images.detection.rtdetr.distributions import DistanceBins
from paddlevit_dist.images.keypoints.described_points import SIGMA
from paddlevit_dist.images.keypoints.detected_keypoints import DetectedKeypoints
from paddlevit_dist.images.keypoints.detrpose.denoising import PoseNoise
from paddlevit_dist.images.keypoints.detrpose.export import EvaluatedPoses, ExportedPoseDetector, PoseExport
from paddlevit_dist.images.keypoints.detrpose.network import DetrPose, TopPoses
from paddlevit_dist.images.keypoints.keypoint_set import COCO_PERSON, KeypointSet

RECIPE = "-cfg=detrpose_figures"
SETS = (KeypointSet(("a", "b", "c"), (), (0.1, 0.2, 0.3), ()), KeypointSet(("d",), (), (0.4,), ()))
LEARNED = CheckpointMeta(2, ("one", "two"), data={"points": [points.to_plain() for points in SETS]})


class TwoPoints(DetrPose):
    variants = {"detrpose_of_two_points": {**DetrPose.variants["detrpose_small"], "keypoints": 2}}


def make(*words):
    return make_task(settings.load([RECIPE, *words]).values)


def open_split(task, tmp_path, split="train"):
    return task.build_dataset(split, tmp_path)


def test_a_batch_has_points_areas_and_queries_with_noise(tmp_path):
    task = make("DATA.SHAPES.TRAIN", "2", "DATA.SHAPES.VAL", "2")
    samples = open_split(task, tmp_path)
    read = [samples.read_sample(index, np.random.default_rng(index)) for index in range(2)]
    batch = task.collate(read)
    points, most = task.model_options["keypoints"], max(len(sample.labels) for sample in read)
    assert batch["points"].shape == (2, most, points, 3) and batch["areas"].shape == (2, most)
    assert batch["denoising_places"].shape[2] == 2 * points
    for index, sample in enumerate(read):
        image, truth = samples.dataset.read(index)
        scale = sample.image.shape[1] * sample.image.shape[2] / image.height / image.width
        np.testing.assert_allclose(np.sort(sample.areas), np.sort(truth.areas * scale), rtol=1e-5)
    targets = task._build_targets(
        {name: paddle.to_tensor(part) for name, part in batch.items() if name != HOST}, batch["box_counts"]
    )
    larger = task._scale_targets(targets, 2.0)
    np.testing.assert_allclose(larger.points[..., :2].numpy(), 2 * batch["points"][..., :2])
    np.testing.assert_array_equal(larger.points[..., 2].numpy(), batch["points"][..., 2])
    np.testing.assert_allclose(larger.areas.numpy(), 4 * batch["areas"])


def test_an_update_waits_for_the_assignments_of_all_layers_at_once_and_for_the_norm(tmp_path):
    task = make("DATA.SHAPES.TRAIN", "2", "DATA.SHAPES.VAL", "2", "DATA.BATCH_SIDES", "[48]")  # resized on the device
    samples = open_split(task, tmp_path)
    read = [samples.read_sample(index, np.random.default_rng(index)) for index in range(2)]
    waits = waits_of_an_update(task, task.build_model(), task.collate(read), 2)
    assert len(waits) == 2 and waits.transfers == 1, str(waits)


def test_sigmas_of_every_category_are_in_the_losses():
    task = make("POSES.CLASS_LOSS", "mal", "MODEL.OPTIONS.denoising", "0", "POSES.DISTILL_LOSS_WEIGHT", "5")
    task.load_meta(LEARNED)
    criterion = task.criterion
    for row, expected in zip(criterion.variances, [(0.04, 0.16, 0.36), (0.64, 0.01, 0.01)], strict=True):
        assert row == pytest.approx(expected)
    assert criterion.noise is None and criterion.matchability == 2.0
    assert criterion.weights == {"class": 2, "keypoints": 10, "oks": 4, "distill": 5}
    task = make()
    task.load_meta(LEARNED)
    criterion = task.criterion
    assert criterion.noise == PoseNoise(((0.1, 0.2, 0.3), (0.4, SIGMA, SIGMA)), 3) and criterion.matchability is None
    assert criterion.weights == {"class": 2, "keypoints": 10, "oks": 4, "distill": 0}


def test_losses_of_a_variant_have_its_queries_and_distances():
    sigmas = ((0.1,) * 4,)
    criterion = DetrPose.criterion("detrpose_hgnetv2_x", 1, {"sigmas": sigmas, "oks_weight": 3.0})
    assert (criterion.queries, criterion.bins) == (60, DistanceBins(32, 0.5, 8.0))
    assert criterion.noise == PoseNoise(sigmas, 20) and criterion.weights["oks"] == 3


def test_metrics_are_of_the_categories_images_and_limits_of_the_task(tmp_path):
    write_keypoints(
        tmp_path, [posed(1, 11)], "val2017", categories=[BUG, {"id": 9, "name": "fish", "keypoints": ["a"]}]
    )
    words = ["DETECTION.SCORE_THRESHOLD", "0.25", "DETECTION.MAX_DETECTIONS", "11"]
    task = make("-dataset=coco_keypoints", f"-data_path={tmp_path}", *words)
    samples = open_split(task, tmp_path, "val")
    metrics = task.build_metrics()
    assert task.best_metric == ("AP", True)
    assert (metrics.class_names, metrics.images, metrics.limit) == (["bug", "fish"], 3, 11)
    assert metrics.table.numbers.tolist() == [3, 1] and metrics.settings["least_score"] == 0.25
    assert task.signature(samples)["points"] == [points.to_plain() for points in samples.dataset.keypoint_sets]
    open_split(task, tmp_path, "val")  # with the same points


def test_points_of_weights_are_those_that_they_learned_or_of_a_person():
    task = make()
    task.load_meta(LEARNED)
    assert task.keypoint_sets == SETS and task.class_names == ["one", "two"]
    assert task.model_options["keypoints"] == 3
    task = make()
    task.load_meta(CheckpointMeta(1, None))
    assert task.keypoint_sets == (COCO_PERSON,) and task.class_names == ["person"]
    several = make()
    several.load_meta(CheckpointMeta(2, None))
    assert several.keypoint_sets == (COCO_PERSON,) * 2 and several.class_names == ["0", "1"]
    register_model("detrpose_of_two_points", TwoPoints)
    task = make("MODEL.NAME", "detrpose_of_two_points")
    task.load_meta(CheckpointMeta(2, ("left", "right")))
    assert task.keypoint_sets == (KeypointSet(("point 1", "point 2"), (), (SIGMA,) * 2, ()),) * 2
    assert task.class_names == ["left", "right"] and task.model_options["keypoints"] == 2


def test_points_that_a_category_lacks_have_no_score_and_no_extent():
    task = make()
    task.load_meta(LEARNED)
    points = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    found = DetectedKeypoints(points, np.ones(2, np.float32), np.array([0, 1]))
    model = type("Model", (), {"__call__": lambda *_: None, "decode": lambda *_: [found]})()
    batch = {"images": paddle.zeros([1, 3, 8, 8]), HOST: {"sizes": [[8, 8]], "original_sizes": [[8, 8]]}}
    (completed,) = task.detect(model, batch)
    np.testing.assert_array_equal(completed.points[0], points[0])
    np.testing.assert_array_equal(completed.points[1], [[9, 10, 11], [9, 10, 0], [9, 10, 0]])
    task.load_meta(LEARNED._replace(data={"points": [SETS[0].to_plain()] * 2}))
    (complete,) = task.detect(model, batch)
    np.testing.assert_array_equal(complete.points, points)


def test_splits_need_the_same_points(tmp_path):
    write_keypoints(tmp_path, [posed(1, 11)])
    other = {**BUG, "keypoints": ["head", "right_wing", "left_wing"]}
    write_keypoints(tmp_path, [posed(1, 11)], "val2017", categories=[other])
    task = make("-dataset=coco_keypoints", f"-data_path={tmp_path}")
    open_split(task, tmp_path)
    assert refusal_of(open_split, task, tmp_path, "val") == (
        "dataset coco_keypoints: points of categories differ between training and validation data, or from the "
        "weights': use the same names in the same order in all"
    )


def test_ids_of_categories_are_found_by_their_names(tmp_path):
    Image.new("RGB", (12, 10)).save(tmp_path / "a.png")
    content = {
        "images": [{"id": 5, "file_name": "a.png"}],
        "categories": [{"id": 30, "name": "two"}, {"id": 40, "name": "3"}],
    }
    (tmp_path / "a.json").write_text(json.dumps(content), encoding="utf-8")
    task = make()
    task.load_meta(LEARNED._replace(num_classes=3, data={**LEARNED.data, "classes": ["one", "two"]}))
    samples = get_aspect(task, Predictable).open_inputs([str(tmp_path / "a.png")], tmp_path)
    matching = get_aspect(task, AnnotationMatching)
    lines = matching.load_annotation_ids(str(tmp_path / "a.json"), samples)
    assert lines[0].endswith("a.json: 1 image and 1 of 2 categories matched by name")
    assert matching.annotation_ids == ([5], [None, 30])


def test_tables_of_one_object_an_image_are_scored_by_their_points(tmp_path):
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    (tmp_path / "val.csv").write_text("image,a_x,a_y,b_x,b_y,spacing_mm\na.png,3,4,10,12,0.5\n", encoding="ascii")
    (tmp_path / "train.csv").write_text("image,a_x,a_y,b_x,b_y,spacing_mm\na.png,3,4,10,12,0.5\n", encoding="ascii")
    task = make("-dataset=keypoint_table", f"-data_path={tmp_path}")
    samples = open_split(task, tmp_path, "val")
    metrics = task.build_metrics()
    points = np.array([[[3, 4, 1], [10, 15, 1]]], np.float32)
    found = DetectedKeypoints(points, np.ones(1, np.float32), np.zeros(1, np.int64))
    record = task._add_image(metrics, samples.dataset, 0, found, (32, 32))()
    assert task.best_metric == ("PCK", True)
    np.testing.assert_allclose(record.errors, [0, 3])
    np.testing.assert_allclose(record.errors_mm, [0, 1.5])


def test_an_exported_function_returns_what_the_network_finds():
    poses = paddle.to_tensor(np.random.default_rng(0).random((2, 4, 3, 2)).astype("float32"))
    given = paddle.to_tensor([[3, 0, 2, 1], [1, 1, 0, 5]]), paddle.to_tensor([[0.9, 0.8, 0.5, 0.3], [1, 0.6, 0.5, 0]])
    top = TopPoses(given[0], poses, given[1])
    network = paddle.nn.Layer()
    network.forward, network.best = lambda images: {}, lambda outputs: top
    exported = ExportedPoseDetector(network)
    scores, labels, keypoints = exported(paddle.zeros([2, 3, 8, 8]), paddle.to_tensor([[10, 20], [3001, 4099]]))
    np.testing.assert_allclose(keypoints[1].numpy(), poses[1].numpy() * [3001, 4099], rtol=1e-6)
    for output, text in zip((scores, labels, keypoints), PoseExport.meaning.values(), strict=True):
        described, axes = text.partition(")")[0].split(" (")
        assert str(output.dtype).endswith(described) and len(axes.split(",")) == output.ndim
    decoded = EvaluatedPoses(exported, 6)
    found = decoded.decode(decoded(paddle.zeros([2, 3, 8, 8])), np.ones((2, 2)), np.array([[20, 10], [4099, 3001]]))
    for image in range(2):
        np.testing.assert_allclose(found[image].points[..., :2], keypoints[image].numpy(), rtol=1e-6)
        assert (found[image].points[..., 2] == 1).all() and found[image].points.dtype == np.float32
        np.testing.assert_array_equal(found[image].labels, labels[image].numpy())
        np.testing.assert_array_equal(found[image].scores, scores[image].numpy())
        np.testing.assert_array_equal(found[image].labels, given[0][image].numpy())
        np.testing.assert_array_equal(found[image].scores, given[1][image].numpy())
    assert found[0].labels.dtype == np.int64
    task = make("DETECTION.EVAL_BATCHING", "one_size")
    task.load_meta(LEARNED)
    again = get_aspect(task, Exportable).evaluated_model(exported)
    assert isinstance(again, EvaluatedPoses)
    for ours, expected in zip(again(paddle.zeros([2, 3, 8, 8])), decoded(paddle.zeros([2, 3, 8, 8])), strict=True):
        np.testing.assert_array_equal(ours.numpy(), expected.numpy())
    with pytest.raises(UserError, match="returns label 3, but these data have 0 to 1: use data with its classes"):
        again.decode(again(paddle.zeros([2, 3, 8, 8])), np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(UserError, match="DETECTION.EVAL_BATCHING single keeps their aspect ratio"):
        get_aspect(make("DETECTION.EVAL_BATCHING", "single"), Exportable).evaluated_model(exported)
    result = [part.numpy() for part in (scores, labels, keypoints)]
    assert PoseExport.compare(result, result)[0] == 0
    moved = PoseExport.compare(result, [scores.numpy(), labels.numpy(), keypoints.numpy() + 100])
    assert moved[0] > 0.02 and moved[1] == "points (as fractions) and scores of nine in ten objects"


def test_networks_of_boxes_are_refused():
    with pytest.raises(UserError, match="MODEL.NAME dfine_small does not detect objects with keypoints"):
        make("MODEL.NAME", "dfine_small")


def test_keys_of_boxes_and_windows_are_said_to_have_no_effect():
    notices = settings.load([RECIPE, "DETECTION.WINDOW", "[32, 32]"]).notices
    assert any("DETECTION.WINDOW" in notice and "no effect" in notice for notice in notices)
