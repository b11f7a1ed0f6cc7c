"""Scores of weighted samples are those of the samples written out as often as they count."""

import numpy as np
import pytest

from paddlevit_dist.core.intervals.scores import (
    ClassificationCounts,
    class_shares,
    confusion_scores,
    means,
    nanmean,
    panoptic_scores,
    quotient,
)

NAMES = ["wall", "floor", "door", "lamp"]
WEIGHTS = np.array([[1, 1, 1, 1, 1, 1], [0, 3, 1, 0, 2, 0], [5, 0, 0, 1, 0, 0]], np.float64)


def repeat(draw, values) -> list:
    return [value for weight, value in zip(draw.astype(int), values) for _ in range(weight)]


def test_accuracies_and_recalls_of_classes():
    labels, places = np.array([0, 2, 1, 0, 2, 2]), np.array([0, 1, 0, 3, 0, 2])
    counts = ClassificationCounts(labels, places, 4, NAMES, (1, 3))
    found = counts(WEIGHTS)
    assert list(found) == ["top-1", "top-3", "balanced accuracy", *(f"recall {name}" for name in NAMES)]
    for number, draw in enumerate(WEIGHTS):
        pairs = repeat(draw, zip(labels.tolist(), places.tolist()))
        recalls = []
        for label, name in enumerate(NAMES):
            own = [place == 0 for one, place in pairs if one == label]
            expected = 100 * np.mean(own) if own else np.nan
            assert found[f"recall {name}"][number] == pytest.approx(expected, nan_ok=True)
            recalls += [expected] if own else []
        assert found["balanced accuracy"][number] == pytest.approx(np.mean(recalls))
        for k in (1, 3):
            assert found[f"top-{k}"][number] == pytest.approx(100 * np.mean([place < k for _, place in pairs]))
    assert counts.rates() == {"top-1": 6, "top-3": 6, "recall wall": 2, "recall floor": 1, "recall door": 3}
    unnamed = ClassificationCounts(labels, places, 4)
    assert unnamed.rates() == {"top-1": 6, "recall 0": 2, "recall 1": 1, "recall 2": 3}
    assert set(unnamed(WEIGHTS)) == {"top-1", "balanced accuracy", *(f"recall {label}" for label in range(4))}


def test_means_leave_out_what_is_undefined_and_are_infinite_where_a_number_is():
    numbers = {
        "a": np.array([1, np.nan, 4, np.inf, 8, 2.0]),
        "b": np.array([np.nan, 1, np.nan, np.nan, 5, np.nan]),
        "c": np.array([-np.inf, 1, np.nan, 3, 5, np.nan]),
    }
    found = means(numbers)(WEIGHTS)
    for number, draw in enumerate(WEIGHTS):
        for name, column in numbers.items():
            values = [value for value in repeat(draw, column) if not np.isnan(value)]
            expected = np.mean(values) if values else np.nan
            np.testing.assert_allclose(found[name][number], expected)
    assert np.isinf(found["a"]).any() and np.isfinite(found["a"]).any() and (found["c"] == -np.inf).any()
    assert means({"both": np.array([np.inf, -np.inf, 1.0])})(np.ones((1, 3)))["both"] == np.inf  # not undefined


def test_scores_of_pixels_are_those_of_summed_counts():
    generator = np.random.default_rng(0)
    right = generator.integers(0, 5, (6, 2, 4))  # of all pixels, and near boundaries
    counts = np.stack(
        [right, right + generator.integers(0, 4, (6, 2, 4)), right + generator.integers(0, 4, (6, 2, 4))], 2
    )
    counts[..., 3] = 0  # a class that neither occurs nor is predicted
    losses = generator.random(6)
    found = confusion_scores(counts[:, 0], NAMES, losses, counts[:, 1])(WEIGHTS)
    plain = confusion_scores(counts[:, 0], NAMES)(WEIGHTS)
    assert set(found) - set(plain) == {"boundary IoU", "loss"}
    for number, draw in enumerate(WEIGHTS):
        (hits, true, predicted), boundary = np.sum(repeat(draw, counts), axis=0).astype(float)
        hits, true, predicted = hits[:3], true[:3], predicted[:3]
        ious = hits / (true + predicted - hits)
        expected = {
            "mIoU": ious.mean(),
            "accuracy": hits.sum() / true.sum(),
            "mean class accuracy": (hits / true).mean(),
        }
        expected |= {"mean Dice": (2 * hits / (true + predicted)).mean(), "IoU door": ious[2], "IoU lamp": np.nan}
        for name, value in expected.items():
            assert found[name][number] == plain[name][number] == pytest.approx(value, nan_ok=True) or np.isnan(value)
            assert np.isnan(found[name][number]) == np.isnan(value)
        hits, near, predicted = boundary[:, :3]
        assert found["boundary IoU"][number] == pytest.approx((hits / (near + predicted - hits)).mean())
        assert found["loss"][number] == pytest.approx(sum(repeat(draw, losses)) / true.sum())


def test_panoptic_quality_is_that_of_summed_segments():
    generator = np.random.default_rng(3)
    counts = generator.integers(0, 4, (6, 6, 4))
    counts[:, 4:] += counts[:, 3:4]  # no fewer elements of the class than correct ones
    counts[:, :3, 2] = 0  # no segments: only points of this class
    ious = counts[:, 0] * generator.uniform(0.5, 1.0, (6, 4))
    is_thing = np.array([True, True, False, False])
    found = panoptic_scores(counts, ious, NAMES, is_thing)(WEIGHTS)
    for number, draw in enumerate(WEIGHTS):
        matched, false, missed, right, true, predicted = np.sum(repeat(draw, counts), axis=0)
        iou, rows = np.sum(repeat(draw, ious), axis=0), {}
        for label in (0, 1, 3):
            rq = matched[label] / (matched[label] + false[label] / 2 + missed[label] / 2)
            sq = iou[label] / matched[label]
            rows[label] = (sq * rq, sq, rq)
            assert found[f"PQ {NAMES[label]}"][number] == pytest.approx(sq * rq)
        assert np.isnan(found["PQ door"][number])
        for place, name in enumerate(("PQ", "SQ", "RQ")):
            assert found[name][number] == pytest.approx(np.mean([row[place] for row in rows.values()]))
        points = [right[label] / (true[label] + predicted[label] - right[label]) for label in (2, 3)]
        assert found["PQ_dagger"][number] == pytest.approx(np.mean([rows[0][0], rows[1][0], *points]))
        assert found["PQ_things"][number] == pytest.approx((rows[0][0] + rows[1][0]) / 2)
        assert found["PQ_stuff"][number] == pytest.approx(rows[3][0])


def test_quotients_and_means_of_nothing_are_no_numbers():
    np.testing.assert_array_equal(
        quotient(np.array([1.0, 4, 3]), np.array([2.0, 0, -1])), [0.5, np.nan, np.nan], strict=True
    )
    np.testing.assert_array_equal(nanmean(np.array([[[1, np.nan, 3], [np.nan] * 3]])), [[2, np.nan]], strict=True)


def test_shares_of_classes_are_quotients_of_their_counts():
    counts = np.array([[[3, 0, 0], [4, 2, 0], [5, 0, 0]], [[1, 1, 1], [1, 1, 2], [1, 2, 1]]])  # (samples, 3, classes)
    nan = np.nan
    expected = {
        "IoU": [[0.5, 0.0, nan], [1.0, 0.5, 0.5]],
        "recall": [[0.75, 0.0, nan], [1.0, 1.0, 0.5]],
        "precision": [[0.6, nan, nan], [1.0, 0.5, 1.0]],
        "Dice": [[2 / 3, 0.0, nan], [1.0, 2 / 3, 2 / 3]],
    }
    shares = class_shares(counts)
    assert list(shares) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(shares[name], values, rtol=1e-15)
