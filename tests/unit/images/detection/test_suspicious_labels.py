"""Disagreements of labels and confident boxes are found, ordered, and written with image, class, score and overlap."""

import csv

import numpy as np

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
    assert build_suspect_table([], "s.csv") == []
    many = [(*rows[0][:2], number, *rows[0][3:]) for number in range(101)]
    (table,) = build_suspect_table(many, "s.csv")
    assert list(table.rows) == many[:100] and table.note.endswith("The first 100 of 101; all: s.csv.")
    assert build_suspect_table(many[:100], "s.csv")[0].note.endswith("Also in s.csv.")


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
