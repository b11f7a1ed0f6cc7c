"""Images with more than 100 objects: scores with more detections, against pycocotools, and what is said of them."""

import json

import numpy as np
import paddle
import pytest
from support.files.coco_writer import annotation, write_coco
from support.networks import coco_peer
from support.trainings import small_detections

from paddlevit_dist import UserError
from paddlevit_dist.core import settings as config
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Drawable, Predictable
from paddlevit_dist.core.tasks.score_kind import find_score_kind
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.extensions.compare.tables import read_table
from paddlevit_dist.images.data.held_out import write_rows
from paddlevit_dist.images.detection import evaluate_command as evaluate_detections
from paddlevit_dist.images.detection.data.coco import Coco
from paddlevit_dist.images.detection.data.detection_dataset import DetectionDataset
from paddlevit_dist.images.detection.data.images_part import ImagesPart
from paddlevit_dist.images.detection.data.samples import DetectionSample
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth
from paddlevit_dist.images.detection.metrics import DetectionMetrics

MANY = 300
NAMES = ["AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large", "AR_1", "AR_10", "AR_300"]


@pytest.fixture(scope="module")
def crowded():
    """Two images with up to 400 objects of two categories and their results, and pycocotools' numbers."""
    dataset, results = coco_peer.random_case(4, num_images=2, categories=2, most=400)
    evaluation = coco_peer.evaluated(dataset, results, maxDets=[1, 10, MANY])
    precision = evaluation.eval["precision"][..., 0, -1]  # stats[0] is of 100, which its summary always asks for
    return dataset, results, [precision[precision > -1].mean(), *evaluation.stats[1:].tolist()]


def make_metrics(dataset, results, most) -> DetectionMetrics:
    """The same images and results as a run has them."""
    label_of = {number: label for label, number in enumerate(sorted(one["id"] for one in dataset["categories"]))}
    metrics = DetectionMetrics(list("ab"), max_detections=most)
    for image in dataset["images"]:
        own = [one for one in dataset["annotations"] if one["image_id"] == image["id"]]
        found = [one for one in results if one["image_id"] == image["id"] and one["category_id"] in label_of]
        columns = [[one[name] for one in own] for name in ("bbox", "category_id", "area", "iscrowd")]
        truth = BoxGroundTruth(
            np.array(columns[0], float).reshape(-1, 4),
            np.array([label_of[number] for number in columns[1]], int),
            np.array(columns[2], float),
            np.array(columns[3], bool),
        )
        boxes = np.array([one["bbox"] for one in found])
        boxes[:, 2:] += boxes[:, :2]
        labels = np.array([label_of[one["category_id"]] for one in found])
        metrics.update(image["id"], truth, DetectedObjects(boxes, np.array([one["score"] for one in found]), labels))
    return metrics


def test_a_file_scores_with_300_detections_as_pycocotools_says_and_the_lines_say_so(crowded, tmp_path, capsys):
    dataset, results, expected = crowded
    files = [tmp_path / "annotations.json", tmp_path / "results.json"]
    for file, content in zip(files, (dataset, results)):
        file.write_text(json.dumps(content), encoding="utf-8")
    words = [*map(str, files), f"-max_detections={MANY}", f"-output={tmp_path / 'of_300'}"]
    evaluate_detections.run([*words, "-json"])
    said = json.loads(capsys.readouterr().out)

    assert said["stats"] == pytest.approx(expected, rel=0, abs=1e-12)
    assert said["scores"]["AR_300"] == pytest.approx(expected[8], rel=0, abs=1e-12)
    assert said["protocol"] == [
        "AP: COCO's rules, 300 detections for each image and category, areas in pixels of the image files"
    ]
    kept = read_table(str(tmp_path / "of_300"))
    again = find_score_kind(kept.about["kind"]).recompute([kept.arrays], kept.about["classes"])(np.ones((1, 2)))
    assert again["AR_300"][0] == pytest.approx(expected[8]) and again["AP"][0] == pytest.approx(expected[0])

    evaluate_detections.run(words)
    out = capsys.readouterr().out
    assert (
        "maxDets=300 ] = " in out and "300 detections for each image and category" in out and "maxDets=100" not in out
    )
    evaluate_detections.run([*map(str, files), f"-output={tmp_path / 'of_100'}"])
    ended = capsys.readouterr()
    assert "maxDets=100 ] = " in ended.out and "detections for each image and category" not in ended.out
    of_classes = np.zeros((2, 2), int)
    for one in dataset["annotations"]:
        place = [image["id"] for image in dataset["images"]].index(one["image_id"])
        of_classes[place, one["category_id"] == dataset["categories"][0]["id"]] += not one["iscrowd"]
    most = of_classes.max()
    number = (of_classes.max(axis=1) > 100).sum()
    assert f"note: {number} of 2 images with more annotations of a category than the 100 detections that" in ended.err
    assert f"up to {most}: add -max_detections={most} to count all" in ended.err

    other = read_table(str(tmp_path / "of_100"))
    with pytest.raises(
        UserError, match="with 100 and 300 detections per image and category cannot be compared: evaluate all with one"
    ):
        find_score_kind("boxes").recompute([kept.arrays, other.arrays], kept.about["classes"])


def test_a_run_scores_with_300_detections_as_pycocotools_says_and_its_line_says_so(crowded):
    dataset, results, expected = crowded
    metrics = make_metrics(dataset, results, MANY)
    values = metrics.compute(metrics.state)
    for name, value in zip(NAMES, expected):
        assert values[name] == pytest.approx(value, rel=0, abs=1e-12), name
    line = metrics.summary(values)
    assert f"AR_300 {expected[8]:.4f}" in line
    assert "(300 detections per image and category, COCO uses 100)" in line
    drawn = metrics.bootstrap_values(metrics.per_sample(), np.ones((1, 2)))
    assert drawn["AR_300"][0] == pytest.approx(expected[8]) and drawn["AP"][0] == pytest.approx(expected[0])
    assert "AR_300" in metrics.columns(metrics.per_sample())

    usual = make_metrics(dataset, results, None)
    values = usual.compute(usual.state)
    assert values["AR_100"] < expected[8] and "detections of an image" not in usual.summary(values)
    fewer, more = (own.to_arrays(own.per_sample()) for own in (usual, metrics))
    assert len(fewer["scores"]) < len(more["scores"])


def test_the_best_of_each_class_stay_in_their_order():
    generator = np.random.default_rng(0)
    scores, labels = generator.random(200).round(1).astype(np.float32), generator.integers(0, 4, 200)
    found = DetectedObjects(generator.random((200, 4)).astype(np.float32), scores, labels)
    kept = []
    for label in range(4):
        rows = np.flatnonzero(labels == label).tolist()
        kept += sorted(rows, key=lambda row: (-scores[row], row))[:12]
    kept.sort()
    best = found.best_of_classes(12)
    np.testing.assert_array_equal(best.boxes, found.boxes[kept], strict=True)
    np.testing.assert_array_equal(best.labels, labels[kept], strict=True)
    assert found.best_of_classes(None) is found


def test_a_mask_rcnn_finds_as_many_as_are_counted():
    shapes = [word.replace("detr_shapes", "mask_rcnn_shapes") for word in small_detections.SHAPES[:1]]
    task = make_task(config.load([*shapes, f"-max_detections={MANY}"]).values)
    assert task.model_options["rules"]["detections"] == MANY
    assert make_task(config.load([*shapes, "-max_detections=50"]).values).model_options.get("rules") is None
    small = dict(resolve("model", "mask_rcnn_small").variants["mask_rcnn_small"]["rules"])
    assert task.model_options["rules"] == {**small, "detections": MANY}


@pytest.fixture
def full_image(tmp_path):
    """Three images, the second with 115 objects of one category and 9 of another, one of them a crowd."""
    entries = [annotation(number, 12, [1.0, 1.0, 5.0, 5.0], 7 if number < 115 else 3) for number in range(124)]
    entries[-1]["iscrowd"] = 1
    entries += [annotation(200, 11, [1.0, 1.0, 5.0, 5.0]), annotation(201, 11, [1.0, 1.0, 0.0, 5.0])]
    for split in ("train2017", "val2017"):
        write_coco(tmp_path, entries, split)
    return tmp_path


def test_objects_are_counted_as_a_loop_over_annotations_counts_them(full_image, cache, tmp_path):
    dataset = Coco(str(full_image), "train", cache)
    assert dataset.object_counts().tolist() == DetectionDataset.object_counts(dataset).tolist()
    assert dataset.object_counts().tolist() == [[1, 1], [123, 115], [0, 0]]
    assert (
        dataset.class_counts().tolist() == DetectionDataset.class_counts(dataset).tolist() == [[9, 1], [0, 0], [116, 2]]
    )
    assert dataset.count_categories() == dict(zip(dataset.class_names, (9, 0, 116)))
    rows = np.array([0, 2])
    part = ImagesPart(dataset, write_rows(tmp_path, "some", rows))
    assert list(part.count_categories().values()) == part.class_counts()[:, 0].tolist() != [9, 0, 116]
    assert dataset.class_counts(rows).tolist() == DetectionDataset.class_counts(dataset, rows).tolist()


def test_a_line_says_how_many_images_have_too_many_objects(full_image, tmp_path):
    words = ["-dataset=coco", f"-data_path={full_image}", "MODEL.NUM_QUERIES", "90"]
    task = make_task(config.load([*small_detections.SHAPES, *words]).values)
    train, val = (task.build_dataset(split, tmp_path) for split in ("train", "val"))
    said = (
        "1 of 3 {} images with more objects than the 90 that the model detects in an image (MODEL.NUM_QUERIES), up to "
        "123: 33 objects exceed this limit"
    )
    for samples, split in ((train, "train"), (val, "val")):
        assert samples.notices[0].startswith(
            f"{split}: {full_image}/annotations/instances_{split}2017.json, images in "
        )
    assert train.notices[-1].startswith("losses are divided by") and val.notices[-1].startswith("val is evaluated with")
    assert [line for line in train.notices if "more objects" in line] == [said.format("train")]
    assert [line for line in val.notices if "more objects" in line] == [
        said.format("val"),
        "1 of 3 val images with more objects of a category than the 100 counted detections (-max_detections), up to "
        "115: 15 objects exceed this limit",
    ]
    enough = make_task(
        config.load([*small_detections.SHAPES, *words, "-max_detections=200", "MODEL.NUM_QUERIES", "200"]).values
    )
    assert not [line for line in enough.build_dataset("val", tmp_path).notices if "more objects" in line]
    assert [*get_aspect(task, Drawable).summarize_samples(train)] == [
        "category   objects    images",
        "dog              9         1",
        "ant              0         0",
        "cat            116         2",  # and one whose box has no area
        "1 of 125 objects is a crowd, not learned",
    ]


def test_a_network_that_finds_more_gives_the_best_of_each_category():
    words = [*small_detections.SHAPES, "-num_classes=3", "MODEL.NUM_QUERIES", "60"]
    found = []
    for more in ([], ["-max_detections=12"]):
        task = make_task(config.load([*words, *more]).values)
        paddle.seed(0)
        model = task.build_model(3)
        model.eval()
        image = np.random.default_rng(0).integers(0, 256, (3, 32, 40), dtype=np.uint8)
        batch = task.collate([DetectionSample(0, False, image, (32, 40), np.zeros((0, 4)), np.zeros(0, int))])
        batch = {name: paddle.to_tensor(one) if isinstance(one, np.ndarray) else one for name, one in batch.items()}
        found += get_aspect(task, Predictable).predict_step(model, batch)
    whole, best = found
    assert len(whole.scores) == 60 and np.bincount(whole.labels).max() > 12
    for label in range(3):
        expected = np.sort(whole.scores[whole.labels == label])[::-1][:12]
        np.testing.assert_array_equal(np.sort(best.scores[best.labels == label])[::-1], expected, strict=True)
