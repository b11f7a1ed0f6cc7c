"""Columns of a table of images, and which arrays belong to the kind of scores of pretraining."""

import numpy as np
import pytest

from paddlevit_dist.images.pretraining.scores import PretrainingScores

CLASSES = ("cow", "ant", "bee")
LOSS = np.array([0.5, 2.0, 1.25, 4.0])
LABELS, PREDICTIONS = np.array([2, 0, 1, 0], np.int32), np.array([2, 1, -1, 0], np.int32)


@pytest.fixture
def scores():
    return PretrainingScores(CLASSES)


def test_columns_have_names_of_classes_and_whether_the_neighbors_are_right(scores):
    columns = scores.columns({"labels": LABELS, "loss": LOSS, "predictions": PREDICTIONS})
    assert list(columns) == ["truth", "prediction", "correct", "loss"]
    assert columns["truth"] == ["bee", "cow", "ant", "cow"]
    assert columns["prediction"] == ["bee", "ant", "-1", "cow"]
    assert list(columns["correct"]) == [True, False, False, True] and list(columns["loss"]) == list(LOSS)
    beyond = scores.columns({"labels": LABELS[:1] + 1, "predictions": LABELS[:1]})
    assert (beyond["truth"], beyond["prediction"]) == (["3"], ["bee"])


def test_without_classes_there_are_numbers_alone(scores):
    columns = scores.columns({"loss": LOSS})
    assert list(columns) == ["loss"] and columns["loss"] is LOSS
    assert scores.truth({"loss": LOSS}) is None
    assert scores.truth({"loss": LOSS, "labels": LABELS, "predictions": PREDICTIONS}) is LABELS


@pytest.mark.parametrize(
    ("arrays", "is_valid"),
    [
        ({"loss": LOSS}, True),
        ({"loss": LOSS, "labels": LABELS, "predictions": PREDICTIONS}, True),
        ({"loss": LOSS[:3]}, False),
        ({"loss": LOSS[:, None]}, False),
        ({"loss": LOSS, "labels": LABELS}, False),
        ({"loss": LOSS, "predictions": PREDICTIONS}, False),
        ({"loss": LOSS, "labels": LABELS, "predictions": PREDICTIONS[:3]}, False),
    ],
)
def test_each_image_has_each_number(scores, arrays, is_valid):
    assert scores.is_valid(arrays, 4, 3) == is_valid


def test_an_evaluation_ends_with_the_votes_first_and_without_counts(scores):
    values = {"loss": 0.12346, "top-1": 66.666, "entropy": 2.0, "images": 300}
    line = scores.summary(values, lambda name, decimals: f" [{name} {decimals}]")
    assert line == "top-1 of neighbors 66.67% [top-1 1] loss 0.1235 [loss 4] entropy 2.0000 [entropy 4]"
    assert scores.summary({"loss": 1.0, "images": 3}, lambda name, decimals: "") == "loss 1.0000"
