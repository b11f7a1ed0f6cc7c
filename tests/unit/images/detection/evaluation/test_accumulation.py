"""COCO's scores against pycocotools on random cases, and what is kept of images."""

import pickle

import numpy as np
import pytest
from support.networks import coco_peer
from support.samples.drawn_detections import NOTHING_FOUND

from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.evaluation.accumulation import MatchTable
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth, match
from paddlevit_dist.runtime.errors import UserError


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


def test_tables_of_ranks_join_to_the_same_in_any_order():
    dataset, results = coco_peer.random_case(8, num_images=9)
    whole, _ = coco_peer.make_table(dataset, results)
    parts = [coco_peer.make_table(dataset, results, whole.image_ids[rank::3].tolist())[0] for rank in (2, 0, 1)]
    ours, expected = MatchTable.joined(pickle.loads(pickle.dumps(parts))).to_arrays(), whole.to_arrays()
    for name, column in expected.items():
        assert np.array_equal(ours[name], column) and ours[name].dtype == column.dtype, name
    for read, column in zip(MatchTable.from_arrays(expected), whole):
        assert read is column or read == column == 4  # classes


def test_an_image_in_two_tables_is_refused():
    table, _ = coco_peer.make_table(*coco_peer.random_case(8))
    with pytest.raises(UserError, match="evaluated twice"):
        MatchTable.joined([table, table])


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


def test_what_crosses_is_at_most_four_megabytes_per_thousand_images():
    rng = np.random.default_rng(0)
    tables = []
    for image_id in range(40):
        boxes = rng.uniform(0, 300, (7, 4))
        labels = rng.integers(0, 80, 7)
        truth = BoxGroundTruth(boxes, labels, boxes[:, 2] * boxes[:, 3], rng.random(7) < 0.1)
        near = boxes[rng.integers(0, 7, 100)] + rng.normal(0, 6, (100, 4))
        corners = np.concatenate([near[:, :2], near[:, :2] + near[:, 2:]], axis=1).astype(np.float32)
        found = DetectedObjects(corners, rng.random(100).astype(np.float32), rng.choice(labels, 100))
        tables.append(match(image_id, truth, found, 80))
    assert sum(len(table.labels) for table in tables) == 4000
    assert len(pickle.dumps(tables)) < 40 * 4000
