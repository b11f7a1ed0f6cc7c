"""Disagreements of labels and confident boxes are found, ordered, and written with image, class, score and overlap."""

import csv

import numpy as np
import pytest

from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth
from paddlevit_dist.images.detection.suspicious_labels import (
    COLUMNS,
    build_suspect_table,
    find_suspects,
    list_suspects,
    write_suspects,
)

NAMES = ["cat", "dog"]
TRUTH = BoxGroundTruth(
    boxes=np.array([[0, 0, 10, 10], [20, 0, 10, 10], [40, 0, 10, 10], [0, 40, 10, 10], [60, 60, 40, 40]], float),
    labels=np.array([0, 0, 1, 1, 0]),
    areas=np.array([100, 100, 100, 100, 1600.0]),
    is_crowd=np.array([False, False, False, False, True]),
)
FOUND = DetectedObjects(
    boxes=np.array(
        [
            [0, 0, 10, 10],  # right
            [20, 0, 30, 10],  # another class
            [43, 0, 53, 10],  # the right class at another place: IoU 7 / 13
            [80, 0, 90, 10],  # no label
            [70, 70, 80, 80],  # inside the crowd
            [0, 40, 10, 9 + 40],  # finds the last label, with too low a score
            [1, 0, 10, 10],  # a second box of the first label
            [84, 0, 94, 10],  # too low a score
        ],
        np.float32,
    ),
    scores=np.array([0.95, 0.9, 0.8, 0.7, 0.99, 0.2, 0.6, 0.1], np.float32),
    labels=np.array([0, 1, 1, 0, 0, 1, 0, 0]),
)


def test_disagreements_are_listed_with_the_most_suspicious_first(tmp_path):
    rows = list_suspects([find_suspects(TRUTH, FOUND, 0.5)], ["a.png"], NAMES)
    assert [row[:5] + tuple(row[5:7]) for row in rows] == [
        ("a.png", "another class", 0.9, "cat", "dog", 0.9, 1.0),
        ("a.png", "no label here", 0.7, None, "cat", 0.7, 0.0),
        ("a.png", "not found", 0.4, "dog", "dog", 0.2, 0.9),
        ("a.png", "another place", round(0.8 * (1 - 7 / 13), 4), "dog", "dog", 0.8, round(7 / 13, 4)),
    ]
    assert [row[7:] for row in rows] == [
        (20.0, 0.0, 10.0, 10.0),
        (80.0, 0.0, 10.0, 10.0),
        (0.0, 40.0, 10.0, 10.0),
        (40.0, 0.0, 10.0, 10.0),
    ]
    write_suspects(tmp_path / "s.csv", rows)
    with open(tmp_path / "s.csv", newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert tuple(written[0]) == COLUMNS and len(written) == 4 and written[1]["label"] == ""
    (table,) = build_suspect_table(rows, "s.csv")
    assert list(table.rows) == rows and table.note.endswith("Also in s.csv.")
    assert build_suspect_table([], "s.csv") == [] and table.folded == ""
    (table,) = build_suspect_table([row for row in rows if row[1] == "not found"], "s.csv")
    assert len(table.rows) == 1 and table.folded.startswith("none stands out")
    many = [(*rows[0][:2], number, *rows[0][3:]) for number in range(101)]
    (table,) = build_suspect_table(many, "s.csv")
    assert list(table.rows) == many[:100] and table.note.endswith("The first 100 of 101; all: s.csv.")
    assert build_suspect_table(many[:100], "s.csv")[0].note.endswith("Also in s.csv.")


def test_a_label_that_is_not_found_has_the_surest_box_near_it_in_any_order():
    corners = np.array([[0, 0, 10, 9], [0, 0, 10, 8], [0, 0, 10, 10], [0, 0, 4, 10]], np.float32)
    found = DetectedObjects(corners, np.array([0.1, 0.3, 0.2, 0.4], np.float32), np.array([0, 1, 0, 0]))
    truth = BoxGroundTruth(np.array([[0.0, 0, 10, 10]]), np.array([0]), np.array([100.0]), np.array([False]))
    (row,) = list_suspects([find_suspects(truth, found, 0.5)], ["a.png"], NAMES)
    assert row == ("a.png", "not found", 0.35, "cat", "dog", 0.3, 0.8, 0.0, 0.0, 10.0, 10.0)


def test_images_without_boxes_or_labels():
    nothing = DetectedObjects(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))
    missed = find_suspects(TRUTH, nothing, 0.5)
    assert missed[:, 0].tolist() == [3] * 4 and missed[:, 1].tolist() == [0.5] * 4 and missed[:, 3].tolist() == [-1] * 4
    empty = BoxGroundTruth(np.zeros((0, 4)), np.zeros(0, int), np.zeros(0), np.zeros(0, bool))
    assert find_suspects(empty, nothing, 0.5).shape == (0, 10)
    alone = find_suspects(empty, FOUND, 0.5)
    assert np.allclose(alone[:, 1], [0.99, 0.95, 0.9, 0.8, 0.7, 0.6])
    several = list_suspects([missed, alone], ["b.png", "c.png"], NAMES)
    assert [row[0] for row in several] == ["c.png"] * 6 + ["b.png"] * 4


def share(box, other, is_crowd):
    """IoU of boxes x, y, width, height, or the share of the first in a crowd."""
    across, down = (max(0.0, min(box[k] + box[k + 2], other[k] + other[k + 2]) - max(box[k], other[k])) for k in (0, 1))
    area, other_area = box[2] * box[3], other[2] * other[3]
    return across * down / (area if is_crowd else area + other_area - across * down)


def find_by_hand(truth, boxes, scores, labels, least):
    places = range(len(truth.labels))
    crowds = [true for true in places if truth.is_crowd[true]]
    overlaps = {(row, true): share(box, truth.boxes[true], true in crowds)
                for row, box in enumerate(boxes) for true in places}  # fmt: skip
    pairs, rows = [], []
    for overlap, row, true in sorted(((value, *pair) for pair, value in overlaps.items()), reverse=True):
        is_free = row not in {pair[0] for pair in pairs} and true not in {pair[1] for pair in pairs}
        if overlap >= 0.5 and true not in crowds and scores[row] >= least and is_free:
            pairs.append((row, true))
    for row, true in pairs:
        fields = truth.labels[true], labels[row], scores[row], overlaps[row, true], *truth.boxes[true]
        if labels[row] != truth.labels[true]:
            rows.append((1, scores[row], *fields))
        elif overlaps[row, true] < 0.75:
            rows.append((2, scores[row] * (1 - overlaps[row, true]), *fields))
    for row, box in enumerate(boxes):
        nearest = max((overlaps[row, true] for true in places if true not in crowds), default=0.0)
        in_crowd = any(overlaps[row, true] >= 0.5 for true in crowds)
        if scores[row] >= least and nearest < 0.5 and not in_crowd:
            rows.append((0, scores[row], -1, labels[row], scores[row], nearest, *box))
    for true in places:
        if true in crowds or true in {pair[1] for pair in pairs}:
            continue
        near = [row for row in range(len(boxes)) if overlaps[row, true] >= 0.5]
        best = max(near, key=lambda row: scores[row], default=None)
        found = (-1, 0, 0) if best is None else (labels[best], scores[best], overlaps[best, true])
        rows.append((3, (1 - found[1]) / 2, truth.labels[true], *found, *truth.boxes[true]))
    return sorted(rows, key=lambda row: -row[1])[:20]


def test_all_suspects_are_those_of_loops():
    random, kinds, longest = np.random.default_rng(0), set(), 0
    for number, found in [(3, 4), (6, 9), (12, 60)] * 4:
        true_boxes = np.concatenate([random.uniform(0, 60, (number, 2)), random.uniform(10, 30, (number, 2))], axis=1)
        near = true_boxes[random.integers(number, size=found)] + random.normal(0, 3, (found, 4))
        boxes = np.where(random.random((found, 1)) < 0.6, near, random.uniform(5, 50, (found, 4)))
        boxes = np.maximum(boxes, [-9, -9, 1, 1])
        scores, labels = random.random(found), random.integers(3, size=found)
        is_crowd = random.random(number) < 0.2
        truth = BoxGroundTruth(true_boxes, random.integers(3, size=number), true_boxes[:, 2:].prod(axis=1), is_crowd)
        corners = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
        suspects = find_suspects(truth, DetectedObjects(corners, scores, labels), 0.3)
        expected = np.array(find_by_hand(truth, boxes, scores, labels, 0.3)).reshape(-1, 10)
        np.testing.assert_allclose(suspects, expected, rtol=1e-5, atol=1e-5)
        kinds, longest = kinds | set(suspects[:, 0].tolist()), max(longest, len(suspects))
    assert kinds == {0, 1, 2, 3} and longest == 20


@pytest.mark.parametrize(
    ("right", "kinds"),
    [
        (7.5, []),  # an overlap of 0.75 is the right place
        (7.4375, [("another place", 0.7437)]),
        (5.0, [("another place", 0.5)]),  # the smallest overlap that pairs
        (4.9375, [("no label here", 0.4938), ("not found", 0.0)]),
    ],
)
def test_overlaps_at_the_limits_of_a_pair_and_of_a_good_place(right, kinds):
    truth = BoxGroundTruth(np.array([[0.0, 0, 10, 10]]), np.array([0]), np.array([100.0]), np.array([False]))
    found = DetectedObjects(np.array([[0, 0, right, 10]], np.float32), np.array([0.5], np.float32), np.array([0]))
    rows = list_suspects([find_suspects(truth, found, 0.5)], ["a.png"], NAMES)  # a score that just counts
    assert [(row[1], row[6]) for row in rows] == kinds


@pytest.mark.parametrize(("left", "is_inside"), [(95.0, True), (95.0625, False)])
def test_a_box_of_which_half_is_inside_a_crowd_needs_no_label(left, is_inside):
    found = DetectedObjects(
        np.array([[left, 70, left + 10, 80]], np.float32), np.array([0.9], np.float32), np.array([0])
    )
    rows = list_suspects([find_suspects(TRUTH, found, 0.5)], ["a.png"], NAMES)
    assert ("no label here" in [row[1] for row in rows]) == (not is_inside)
