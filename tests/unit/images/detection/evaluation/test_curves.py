"""COCO's numbers against pycocotools on random cases.

Numbers of drawn images are those of an annotation file that has each image so often.
"""

import numpy as np
import pytest
from support.networks import coco_peer
from support.samples.drawn_detections import NOTHING_FOUND

from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.evaluation.curves import DetectionCurves
from paddlevit_dist.images.detection.evaluation.match_tables import MatchTable
from paddlevit_dist.images.detection.evaluation.matching import (
    BoxGroundTruth,
    CandidateDetections,
    match,
    match_detections,
)

CLASSES = 5


@pytest.mark.parametrize("seed", range(14))
def test_equal_to_pycocotools(seed):
    dataset, results = coco_peer.random_case(seed)
    coco_peer.assert_equal(coco_peer.scored(dataset, results), coco_peer.evaluated(dataset, results))


def test_with_all_classes_as_one_equal_to_pycocotools():
    dataset, results = coco_peer.random_case(31, most=40)
    theirs = coco_peer.evaluated(dataset, results, useCats=0)
    coco_peer.assert_equal(coco_peer.scored(dataset, results, use_classes=False), theirs)


def test_more_detections_than_are_looked_at():
    dataset, results = coco_peer.random_case(4, num_images=2, categories=2, most=400)
    theirs = coco_peer.evaluated(dataset, results)
    coco_peer.assert_equal(coco_peer.scored(dataset, results), theirs)


def test_nothing_found_and_nothing_to_find():
    none = BoxGroundTruth(np.zeros((0, 4)), np.zeros(0, int), np.zeros(0), np.zeros(0, bool))
    one = BoxGroundTruth(np.array([[1.0, 2, 50, 40]]), np.array([1]), np.array([2000.0]), np.array([False]))
    tables = [match(5, none, NOTHING_FOUND, 2), match(3, one, NOTHING_FOUND, 2)]
    _, class_ap = coco_peer.score(MatchTable.joined(tables))
    assert class_ap.tolist() == [[-1, -1, -1], [0, 0, 0]]
    stats, class_ap = coco_peer.score(MatchTable.empty(2))
    assert (stats == -1).all() and (class_ap == -1).all()


def test_detections_of_a_network_score_as_the_file_written_of_them_does():
    truth = BoxGroundTruth(np.array([[10.1, 20.2, 50.0, 40.0]]), np.array([0]), np.array([2000.0]), np.array([False]))
    corners = np.array([[10.3, 20.1, 60.4, 60.5]], np.float32)
    found = DetectedObjects(corners, np.array([0.3], np.float32), np.array([0]))
    x, y, right, bottom = corners[0].tolist()
    results = [
        {"image_id": 1, "category_id": 1, "bbox": [x, y, right - x, bottom - y], "score": float(found.scores[0])}
    ]
    dataset = {
        "images": [{"id": 1}],
        "categories": [{"id": 1, "name": "a"}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "bbox": truth.boxes[0].tolist(), "area": 2000.0, "iscrowd": 0}
        ],
    }
    coco_peer.assert_equal(coco_peer.score(match(1, truth, found, 1)), coco_peer.evaluated(dataset, results))


def make_tables(images: int, seed: int, decimals: int | None = None) -> list[MatchTable]:
    """Images with objects of all sizes, some of them crowds, found well, badly, twice or not at all."""
    generator, tables = np.random.default_rng(seed), []
    for number in range(images):
        count = int(generator.integers(0, 8))
        shapes = np.exp(generator.uniform(1.5, 5.5, (count, 2)))
        boxes = np.concatenate([generator.uniform(0, 400, (count, 2)), shapes], axis=1)
        labels = generator.integers(0, CLASSES, count)
        truth = BoxGroundTruth(boxes, labels, 0.8 * shapes.prod(axis=1), generator.random(count) < 0.1)
        near = np.repeat(np.arange(count), generator.integers(0, 3, count))
        others = int(generator.integers(0, 12))
        places, sizes = generator.uniform(0, 400, (others, 2)), np.exp(generator.uniform(1.5, 5.5, (others, 2)))
        found = np.concatenate(
            [boxes[near] * generator.normal(1, 0.08, (len(near), 4)), np.concatenate([places, sizes], axis=1)]
        )
        scores = generator.random(len(found))
        if decimals is not None:  # equal scores, in different images
            scores = np.round(scores, decimals) + 1e-6 * np.arange(len(found))
        found_labels = np.concatenate([labels[near], generator.integers(0, CLASSES, others)])
        image_id = 10 + 3 * number if number % 2 else 10_000 - number  # other than their order
        tables.append(match_detections(image_id, truth, CandidateDetections(found, scores, found_labels), CLASSES))
    return tables


def repeated(tables: list[MatchTable], counts: np.ndarray) -> MatchTable:
    """Each image so often, under an id of its own beside the first's."""
    copies = [
        table._replace(image_ids=100 * table.image_ids + copy)
        for table, count in zip(tables, counts.tolist())
        for copy in range(count)
    ]
    return MatchTable.joined([MatchTable.empty(CLASSES), *copies])


@pytest.mark.parametrize("decimals", [None, 1])
def test_numbers_of_a_draw_are_those_of_repeated_images(decimals):
    tables = make_tables(30, 0, decimals)
    weights = np.random.default_rng(1).integers(0, 4, (30, 30))
    weights[0], weights[1] = 0, 1
    weights[2, 4:] = 0
    order = np.argsort([int(table.image_ids[0]) for table in tables])  # in which a joined table has them
    stats, class_ap = DetectionCurves.from_table(MatchTable.joined(tables)).scores(weights[:, order])
    for draw, counts in enumerate(weights):
        whole_stats, whole_class_ap = coco_peer.score(repeated(tables, counts))
        np.testing.assert_allclose(np.nan_to_num(stats[draw], nan=-1), whole_stats, rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.nan_to_num(class_ap[draw], nan=-1), whole_class_ap, rtol=0, atol=1e-12)
    assert (stats[0] != stats[0]).all() and 0.01 < stats[1, 0] < 1
