"""Scores of counted pairs: of all samples, of one, of drawn ones, and of tables that are stored."""

import numpy as np
import pytest

from paddlevit_dist.intervals import ConfidenceInterval
from paddlevit_dist.metrics.confusion import CONFUSION, ConfusionMetrics, ConfusionScores
from paddlevit_dist.metrics.counts import pack_counts, reduce_confusions, unpack_counts
from paddlevit_dist.tasks.score_kind import find_score_kind

NAMES = ["sky", "tree", "road"]
SAMPLES = np.array([[[5, 2, 0], [1, 3, 0], [0, 0, 0]], [[1, 0, 0], [2, 2, 0], [0, 0, 0]]])
STATISTICS = reduce_confusions(SAMPLES)


class Counted(ConfusionMetrics):
    def per_sample(self):
        return [STATISTICS, np.array([0.5, 1.5])]


def shares(confusion):
    right, true, taken = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    with np.errstate(invalid="ignore"):
        return right / (true + taken - right), right / true


def test_counts_of_all_samples_are_summed_before_they_are_divided():
    metrics = Counted(tuple(NAMES))
    values = metrics.compute({CONFUSION: SAMPLES.sum(axis=0).astype(np.float64)})
    ious, recalls = shares(SAMPLES.sum(axis=0))
    assert values["mIoU"] == pytest.approx(ious[:2].mean()) and values["accuracy"] == pytest.approx(11 / 16)
    assert values["mean class accuracy"] == pytest.approx(recalls[:2].mean())
    assert [values.get(f"IoU {name}") for name in NAMES] == [*map(pytest.approx, ious[:2]), None]
    drawn = metrics.bootstrap_values(metrics.per_sample(), np.array([[1.0, 1.0], [0.0, 3.0]]))
    assert drawn["mIoU"] == pytest.approx([ious[:2].mean(), shares(SAMPLES[1])[0][:2].mean()])
    assert drawn["loss"] == pytest.approx([2 / 16, 1.5 / 5])
    assert metrics.state == {} and "boundary IoU" not in values
    bounded = metrics.scores(STATISTICS[:1], STATISTICS[1:])
    assert bounded["boundary IoU"] == pytest.approx(shares(SAMPLES[1])[0][:2].mean())
    assert bounded["mIoU"] == pytest.approx(shares(SAMPLES[0])[0][:2].mean())
    nothing = metrics.compute({CONFUSION: np.zeros((3, 3))})
    assert nothing["mIoU"] == 0 and not any(name.startswith("IoU") for name in nothing)


def test_lines_and_columns_of_an_evaluation():
    metrics = Counted(NAMES)
    values = {"mIoU": 0.45678, "accuracy": 0.6875, "mean class accuracy": 0.5, "IoU sky": 0.6, "IoU tree": np.nan}
    text = "mIoU 0.4568{} accuracy 0.6875 mean class accuracy 0.5000"
    assert metrics.summary(values) == text.format("")
    metrics.intervals = {"mIoU": ConfidenceInterval(0.45, 0.4, 0.5)}
    assert metrics.summary(values) == text.format(" [0.400, 0.500]")
    assert metrics.absent(values) == " (2 of 3 classes neither labeled nor predicted: tree, road)"
    assert metrics.absent(dict.fromkeys((f"IoU {name}" for name in NAMES), 0.0)) == ""
    for names, shown in ((["a" * 29, "b" * 29], f"{'a' * 29}, {'b' * 29}"), (["a" * 61], "a" * 57 + "...")):
        told = f"{len(names)} of {len(names)} classes neither labeled nor predicted"
        assert Counted(names).absent({}) == f" ({told}: {shown})"
    columns = metrics.columns(metrics.per_sample())
    assert list(columns)[0] == "points" and columns["points"].tolist() == [11, 5]
    assert columns["mIoU"] == pytest.approx([shares(sample)[0][:2].mean() for sample in SAMPLES])


class Bounded(Counted):
    elements, second_array = "pixels", "boundaries"


def test_tables_have_the_second_array_of_their_class_and_losses():
    table = Counted(NAMES).to_sample_table([STATISTICS, np.array([0.5, 1.5])])
    assert (table.kind, list(table.classes)) == ("confusions", NAMES)
    assert table.arrays["losses"].tolist() == [0.5, 1.5] and table.arrays["statistics"] is STATISTICS
    bounded = Bounded(NAMES).to_sample_table([STATISTICS, STATISTICS // 2])
    assert np.isnan(bounded.arrays["losses"]).tolist() == [True, True] and (bounded.arrays["boundaries"] * 2).any()


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
        np.testing.assert_array_equal(found, expected)
