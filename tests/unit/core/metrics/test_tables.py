"""Tables of classes and samples are those of counts made one by one."""

import numpy as np
import pytest

from paddlevit_dist.core.metrics.tables import class_tables, percent, round_share, sample_table, score_samples
from paddlevit_dist.core.tasks.figures import FigureTable

CONFUSION = np.array([[5, 2, 0, 0], [1, 3, 0, 4], [0, 0, 0, 0], [0, 0, 0, 0]])
NAMES = ["sky", "tree", "road", "car"]


def test_each_class_that_occurs_has_a_row_with_its_shares():
    table, matrix = class_tables(CONFUSION, NAMES, "points")
    assert (table.title, table.columns) == (
        "Classes of points",
        ["class", "IoU", "recall", "precision", "labeled points"],
    )
    assert table.rows == [
        ("sky", 0.625, round(5 / 7, 4), round(5 / 6, 4), 7),
        ("tree", 0.3, 0.375, 0.6, 8),
        ("car", 0.0, None, 0.0, 0),  # predicted only
    ]
    assert table.note == "Neither labeled nor predicted: road."
    assert (matrix.title, matrix.names, matrix.values is CONFUSION) == ("Confusion of points", NAMES, True)
    assert class_tables(np.eye(2, dtype=int), NAMES[:2], "points")[0].note == ""


def test_dice_and_boundary_shares_stand_before_the_number():
    boundaries = np.array([[1, 2, 0, 0], [3, 4, 0, 0], [2, 5, 0, 1]])
    table, _ = class_tables(CONFUSION, NAMES, "pixels", boundaries)
    assert table.columns[3:] == ["precision", "Dice", "boundary IoU", "labeled pixels"]
    assert table.shares == table.columns[1:-1]
    assert [row[4:] for row in table.rows] == [
        (round(10 / 13, 4), 0.25, 7),
        (round(6 / 13, 4), round(2 / 7, 4), 8),
        (0.0, 0.0, 0),
    ]


@pytest.mark.parametrize("more, end", [(1, "x"), (2, "...")])
def test_lists_of_absent_classes_of_more_than_300_letters_are_cut(more, end):
    names = ["first", *(f"class {number:02}" for number in range(29)), "x" * (9 + more)]  # 290 letters, and the last
    note = class_tables(np.diag([1] + [0] * 30), names, "points")[0].note
    assert note.startswith("Neither labeled nor predicted: class 00, class 01") and note.endswith(f"{end}.")
    assert len(note) == len("Neither labeled nor predicted: .") + 300


def test_samples_stand_from_the_worst_to_the_best_and_those_without_labels_first():
    statistics = np.array(
        [
            [[4, 0, 1], [4, 0, 2], [5, 0, 1]],  # IoU 4 / 5 and 1 / 2
            [[0, 0, 0], [0, 0, 0], [0, 0, 0]],
            [[1, 0, 0], [3, 1, 0], [2, 1, 1]],  # 1 / 4, 0 / 2 and 0 / 1
            [[0, 0, 0], [3, 0, 0], [0, 3, 0]],  # nothing is right
        ]
    )
    columns = ("scene", "mIoU", "accuracy", "labeled points")
    expected = [("b", None, None, 0), ("d", 0.0, 0.0, 3)]
    expected += [("c", round(0.25 / 3, 4), 0.25, 4), ("a", 0.65, round(5 / 6, 4), 6)]
    table = sample_table("Scenes", "scene", "abcd", score_samples(statistics), "points")
    assert table == FigureTable("Scenes", columns, expected, shares=columns[1:3])


@pytest.mark.parametrize("number, note", [(1000, ""), (1001, "The 1,000 worst of 1,001.")])
def test_a_table_shows_the_thousand_worst_samples(number, note):
    statistics = np.tile(np.array([[[1, 0], [1, 1], [1, 1]]]), (number, 1, 1))
    table = sample_table("Scenes", "scene", list(map(str, range(number))), score_samples(statistics), "points")
    assert (len(table.rows), table.note) == (1000, note)


@pytest.mark.parametrize("share, expected", [(1 / 3, 33.33), (2 / 3, 66.67), (0.0, 0.0), (np.nan, None)])
def test_a_percentage_has_two_decimals_or_is_unknown(share, expected):
    assert percent(share) == expected
    assert round_share(share) == (expected if expected is None else round(share, 4))
