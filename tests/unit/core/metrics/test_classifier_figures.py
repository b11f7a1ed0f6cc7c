"""Figures of a classifier's evaluation: whole tables, the borders of bins, and who is shown in galleries."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from support.filled_cells import to_dense

from paddlevit_dist.core.metrics.classification import RECORD
from paddlevit_dist.core.metrics.classifier_figures import EvaluatedPredictions, calibration, galleries, tables
from paddlevit_dist.core.tasks.figures import FigureTable

LABELS = [0, 0, 0, 0, 1, 1, 2, 2, 2, 0]
PREDICTED = [0, 1, 1, 2, 1, 0, 2, 0, 1, 0]


def make_evaluated(labels, predicted, names=None, classes=4, scores=None, true=None, **options):
    rows = np.zeros(len(labels), RECORD)
    rows["label"], rows["classes"][:, 0] = labels, predicted
    rows["scores"][:, 0] = 0.75 if scores is None else scores
    rows["true"] = 0.25 if true is None else true
    return EvaluatedPredictions(100 + np.arange(len(labels)), rows, classes, names, **options)


def test_tables_of_confusions_and_of_classes_as_a_whole():
    evaluated = make_evaluated(LABELS, PREDICTED, ["ant", 7], sample_name="shapes")
    assert evaluated.names == ["ant", "7", "2", "3"]
    matrix, pairs, classes, *_ = tables(evaluated)
    assert to_dense(matrix.values, 4).tolist() == [[2, 2, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
    share = 100 * (2 / 5 + 1 / 2 + 1 / 3) / 3
    assert (matrix.title, matrix.names, matrix.note) == (
        "Confusion",
        ["ant", "7", "2", "3"],
        f"4 of 10 shapes (40.00%) are classified correctly; the average over classes is {share:.2f}% (macro accuracy).",
    )
    columns = ("true class", "taken for", "shapes", "% of the class", "the other way round")
    rows = [("ant", "7", 2, 40.0, 1), ("ant", "2", 1, 20.0, 1), ("7", "ant", 1, 50.0, 2)]
    rows += [("2", "ant", 1, 100 / 3, 1), ("2", "7", 1, 100 / 3, 0)]
    assert pairs == FigureTable("Most confused", columns, rows)
    columns = ("class", "recall %", "precision %", "F1 %", "most often taken for", "shapes", "predicted")
    rows = [("ant", 40.0, 50.0, 44.44, "7", 5, 4), ("7", 50.0, 25.0, 33.33, "ant", 2, 4)]
    rows += [("2", 33.33, 50.0, 40.0, "ant", 3, 2), ("3", None, None, None, None, 0, 0)]
    assert classes == FigureTable("Classes", columns, rows)
    assert make_evaluated(LABELS, PREDICTED, list("abcde"), 3).names == ["a", "b", "c"]


def test_without_mistakes_or_samples_there_are_fewer_tables():
    right = tables(make_evaluated([0, 1], [0, 1]))
    assert [figure.title for figure in right] == ["Confusion", "Classes", "Calibration", "Confidence"]
    nothing = tables(make_evaluated([], []))
    assert nothing[0].note == (
        "0 of 0 images (0.00%) are classified correctly; the average over classes is 0.00% (macro accuracy)."
    )
    assert nothing[2].note.startswith("Expected calibration error 0.00 %;")


@pytest.mark.parametrize("mistakes, note", [(40, ""), (41, "The 40 most frequent.")])
def test_forty_pairs_of_classes_are_shown(mistakes, note):
    labels, predicted = np.divmod(np.arange(mistakes).repeat(2), 6)
    predicted += predicted >= labels  # another class
    table = tables(make_evaluated(labels, predicted, classes=7))[1]
    assert (len(table.rows), table.note) == (40, note)
    assert [row[:2] for row in table.rows[:7]] == [("0", str(other)) for other in range(1, 7)] + [("1", "0")]
    each_once = tables(make_evaluated(labels[::2], predicted[::2], classes=7))
    assert [figure.title for figure in each_once] == ["Confusion", "Classes", "Calibration", "Confidence"]


def test_scores_that_are_no_numbers_have_no_confidence_and_are_wrong():
    evaluated = make_evaluated([0, 3, 1], [-1, 7, 1], scores=[np.nan, 0.5, np.inf], true=[np.nan, 0.5, 0.25])
    assert evaluated.predicted.tolist() == [0, 3, 1] and evaluated.is_right.tolist() == [False, True, False]
    assert evaluated.confidence[:2].tolist() == [0.0, 0.5] and evaluated.true_scores.tolist() == [0.0, 0.5, 0.25]


def test_bins_of_confidence_include_their_upper_ends():
    """15 of equal width: 0 is in the first, 1 in the last, and k / 15 in the k-th."""
    confidence = np.array([0.0, 0.01, 0.2, 0.21, 1.0])  # 0.2 = 3 / 15
    reliability, histogram = calibration(confidence, np.array([True, False, True, False, True]), "shapes")
    described = [histogram.title, histogram.x_label, histogram.y_label, histogram.kind]
    assert described == ["Confidence", "confidence", "shapes", "bar"]
    centers, numbers = histogram.lines["shapes"]
    np.testing.assert_allclose(centers, [(number + 0.5) / 15 for number in range(15)])
    assert numbers.tolist() == [2, 0, 1, 1, *[0] * 10, 1]
    mean, accuracy = reliability.lines["this model"]
    np.testing.assert_allclose(mean, [0.005, 0.2, 0.21, 1.0])
    assert accuracy.tolist() == [0.5, 1.0, 0.0, 1.0] and reliability.lines["perfect"] == ((0.0, 1.0), (0.0, 1.0))
    described = [reliability.title, reliability.x_label, reliability.y_label, reliability.kind]
    assert described == ["Calibration", "confidence", "share that is right", "line"]
    error = 100 * (0.99 + 0.8 + 0.21 + 0.0) / 5
    assert reliability.note == (
        f"Expected calibration error {error:.2f} %; overall the model is less sure than it could be."
    )
    assert calibration(confidence, np.zeros(5, bool))[0].note.endswith(" is surer than it should be.")
    assert calibration(confidence, np.zeros(5, bool))[1].y_label == "images"


def test_galleries_show_twelve_mistakes_and_of_the_others_the_twelve_hardest():
    """Of 14 mistakes and 14 right ones, all with different scores; two of the hardest cannot be read."""
    labels, predicted = np.zeros(28, int), np.arange(28) % 2
    scores, true = np.linspace(0.5, 0.9, 28), np.linspace(0.45, 0.1, 28)
    evaluated = make_evaluated(labels, predicted, ["cat", "dog"], 2, scores, true, sample_name="shapes")
    images = {index: np.full((2, 2), index, np.uint8) for index in range(100, 128) if index not in (126, 122)}
    mistakes, hardest = galleries(evaluated, images.get, lambda index: f"file {index}")
    ending = " As the model sees them, with its scores in brackets."
    assert (mistakes.title, mistakes.note) == (
        "Most confident mistakes",
        f"Wrong, by how sure the model is of them.{ending}",
    )
    assert (hardest.title, hardest.note) == (
        "Hardest shapes",
        f"Of the others, right or wrong, those whose true class the model believes in least.{ending}",
    )
    assert [pixels[0, 0] for pixels, _ in mistakes.images] == [*range(127, 103, -2)]
    assert [pixels[0, 0] for pixels, _ in hardest.images] == [124, 120, 118, 116, 114, 112, 110, 108, 106, 104]
    assert mistakes.images[0][1] == f"true: cat ({true[27]:.1%})\npredicted: dog ({scores[27]:.1%})\nfile 127"
    assert hardest.images[0][1] == f"cat ({true[24]:.1%})\nfile 124"
    assert [figure.title for figure in galleries(evaluated, lambda index: None, str)] == []


def test_twenty_thousand_classes_take_memory_for_their_samples_alone():
    generator, number = np.random.default_rng(0), 20_000
    labels, predicted = generator.integers(0, number, (2, 3000))
    evaluated = make_evaluated(labels, predicted, classes=number)
    tracemalloc.start()
    try:
        matrix, *_, classes, _, _ = tables(evaluated)
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()
    assert sorted(zip(*map(np.ndarray.tolist, matrix.values))) == sorted(
        (*pair, count) for pair, count in Counter(zip(labels.tolist(), predicted.tolist())).items()
    )
    assert len(classes.rows) == number
