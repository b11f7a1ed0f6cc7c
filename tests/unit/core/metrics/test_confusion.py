"""Scores of counted pairs: of all samples, of one, of drawn ones, and of tables that are stored."""

import numpy as np
import pytest

from paddlevit_dist.core.intervals import ConfidenceInterval
from paddlevit_dist.core.metrics import ConfusionMetrics
from paddlevit_dist.core.metrics.confusion import ConfusionScores
from paddlevit_dist.core.metrics.counts import pack_counts, reduce_confusions, unpack_counts
from paddlevit_dist.core.tasks.score_kind import find_score_kind

NAMES = ["sky", "tree", "road"]
SAMPLES = np.array([[[5, 2, 0], [1, 3, 0], [0, 0, 0]], [[1, 0, 0], [2, 2, 0], [0, 0, 0]]])
STATISTICS = reduce_confusions(SAMPLES)
POINTS = {"statistics": STATISTICS, "losses": np.array([0.5, 1.5])}
PIXELS = {"statistics": STATISTICS, "boundaries": STATISTICS[::-1], "losses": np.full(2, np.nan)}


def counted(columns, names=NAMES):
    metrics = ConfusionMetrics(names)
    for row in range(len(columns["losses"])):
        metrics.add(**{name: column[row] for name, column in columns.items()})
    return metrics


def shares(confusion):
    right, true, taken = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    with np.errstate(invalid="ignore"):
        return right / (true + taken - right), right / true


def test_the_cross_entropy_is_not_called_the_loss_if_a_user_has_written_another():
    metrics = counted(POINTS)
    metrics.expect_own_loss(is_added=False)
    values = metrics.compute({})
    assert "loss" not in values and values["cross_entropy"] == pytest.approx(2 / 16)
    assert "cross_entropy" in metrics.columns(metrics.per_sample())
    assert metrics.summary(values).endswith("cross_entropy 0.1250")


def test_counts_of_all_samples_are_summed_before_they_are_divided():
    metrics = counted(POINTS, tuple(NAMES))
    values = metrics.compute({})
    ious, recalls = shares(SAMPLES.sum(axis=0))
    assert values["mIoU"] == pytest.approx(ious[:2].mean()) and values["accuracy"] == pytest.approx(11 / 16)
    assert values["mean class accuracy"] == pytest.approx(recalls[:2].mean())
    assert [values.get(f"IoU {name}") for name in NAMES] == [*map(pytest.approx, ious[:2]), None]
    assert values["points"] == 16 and values["loss"] == pytest.approx(2 / 16)
    drawn = metrics.bootstrap_values(metrics.per_sample(), np.array([[1.0, 1.0], [0.0, 3.0]]))
    assert drawn["mIoU"] == pytest.approx([ious[:2].mean(), shares(SAMPLES[1])[0][:2].mean()])
    assert drawn["loss"] == pytest.approx([2 / 16, 1.5 / 5])
    assert metrics.state == {} and "boundary IoU" not in values


def test_pixels_have_scores_near_boundaries_and_no_loss():
    first = counted({name: column[:1] for name, column in PIXELS.items()}).compute({})
    assert first["boundary IoU"] == pytest.approx(shares(SAMPLES[1])[0][:2].mean())
    assert first["mIoU"] == pytest.approx(shares(SAMPLES[0])[0][:2].mean())
    assert first["pixels"] == 11 and "loss" not in first and "points" not in first


def test_without_labels_no_mean_and_no_class_has_a_value():
    nothing = counted({name: 0 * column[:1] for name, column in PIXELS.items()}).compute({})
    assert nothing == {"pixels": 0}


def test_a_loss_that_is_not_finite_is_no_loss_of_0():
    values = counted({**POINTS, "losses": np.array([0.5, np.nan])}).compute({})
    assert "loss" not in values and ConfusionMetrics(NAMES).summary(values).endswith(" loss nan")


def test_lines_and_columns_of_an_evaluation():
    metrics = counted(POINTS)
    values = {"mIoU": 0.45678, "accuracy": 0.6875, "mean class accuracy": 0.5, "IoU sky": 0.6, "loss": 0.25}
    text = "mIoU 0.4568{} accuracy 0.6875 mean class accuracy 0.5000 "
    assert metrics.summary(values) == text.format("") + "loss 0.2500"
    metrics.intervals = {"mIoU": ConfidenceInterval(0.45, 0.4, 0.5)}
    assert metrics.summary(values) == text.format(" [0.400, 0.500]") + "loss 0.2500"
    columns = metrics.columns(metrics.per_sample())
    assert list(columns)[0] == "points" and columns["points"].tolist() == [11, 5]
    assert columns["mIoU"] == pytest.approx([shares(sample)[0][:2].mean() for sample in SAMPLES])
    assert columns["loss"] == pytest.approx([0.5 / 11, 1.5 / 5])
    pixels = counted(PIXELS)
    columns = pixels.columns(pixels.per_sample())
    assert list(columns)[0] == "pixels" and "loss" not in columns
    assert columns["boundary IoU"] == columns["mIoU"][::-1]


def test_lines_of_pixels_name_the_classes_that_occur_nowhere():
    shown = {"mIoU": 0.5, "accuracy": 0.5, "mean class accuracy": 0.5, "mean Dice": 0.25, "boundary IoU": 0.125}
    text = "mIoU 0.5000 accuracy 0.5000 mean class accuracy 0.5000 mean Dice 0.2500 boundary IoU 0.1250"
    line = ConfusionMetrics(NAMES).summary({**shown, "IoU sky": 0.6})
    assert line == text + " (2 of 3 classes neither labeled nor predicted: tree, road)"
    assert ConfusionMetrics(NAMES).summary({**shown, **dict.fromkeys((f"IoU {name}" for name in NAMES), 0.0)}) == text
    for names, shortened in ((["a" * 29, "b" * 29], f"{'a' * 29}, {'b' * 29}"), (["a" * 61], "a" * 57 + "...")):
        told = f"{len(names)} of {len(names)} classes neither labeled nor predicted"
        assert ConfusionMetrics(names).summary(shown) == f"{text} ({told}: {shortened})"


def test_tables_have_the_columns_of_their_samples():
    for columns in (POINTS, PIXELS):
        metrics = counted(columns)
        table = metrics.to_sample_table(metrics.per_sample())
        assert (table.kind, list(table.classes)) == ("confusions", NAMES)
        assert list(table.arrays) == list(columns)
        for name, column in columns.items():
            np.testing.assert_array_equal(table.arrays[name], column, strict=True)


def test_stored_tables_are_scored_as_one_and_need_all_boundaries():
    kind = find_score_kind("confusions")
    assert type(kind) is ConfusionScores and kind.class_score == "IoU {}"
    parts = [
        {"statistics": STATISTICS[:1], "losses": np.array([0.5]), "boundaries": STATISTICS[1:]},
        {"statistics": STATISTICS[1:], "losses": np.array([1.5]), "boundaries": STATISTICS[1:]},
    ]
    values = kind.recompute(parts, NAMES)(np.ones((1, 2)))
    assert values["mIoU"][0] == pytest.approx(shares(SAMPLES.sum(axis=0))[0][:2].mean())
    assert values["boundary IoU"][0] == pytest.approx(shares(SAMPLES[1])[0][:2].mean())
    assert values["loss"][0] == pytest.approx(2 / 16)
    without = [parts[0], {name: parts[1][name] for name in ("statistics", "losses")}]
    assert "boundary IoU" not in kind.recompute(without, NAMES)(np.ones((1, 2)))
    assert kind.truth(parts[0]).tolist() == [[7, 4, 0]]


@pytest.mark.parametrize(
    "changes, is_valid",
    [
        ({}, True),
        ({"boundaries": STATISTICS}, True),
        ({"boundaries": STATISTICS[:1]}, False),
        ({"boundaries": STATISTICS[:, :, :2]}, False),
        ({"statistics": STATISTICS[:, :2]}, False),
        ({"statistics": STATISTICS[:1]}, False),
        ({"losses": np.zeros(3)}, False),
        ({"losses": np.zeros((2, 1))}, False),
    ],
)
def test_a_table_has_counts_and_a_loss_of_each_sample(changes, is_valid):
    arrays = {"statistics": STATISTICS, "losses": np.zeros(2), **changes}
    assert ConfusionScores().is_valid(arrays, 2, 3) is is_valid


def test_packed_counts_are_the_same_counts_in_fewer_bytes():
    packed = pack_counts(SAMPLES[0], STATISTICS[0])
    assert [array.dtype for array in packed] == [np.int32] * 3 and len(packed[0]) == len(packed[1]) == 4
    for found, expected in zip(unpack_counts(packed), (SAMPLES[0], STATISTICS[0])):
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, expected, strict=True)
