"""Intervals cover what they say, and depend on the table of samples alone."""

import numpy as np
import pytest

from paddlevit_dist.intervals import (
    Classified,
    Interval,
    bootstrap,
    confusion_scores,
    join,
    means,
    weighted_sums,
    with_exact_end,
)

DRAWS = 500  # of data; of 500 intervals that cover in 95 % of cases, 465 to 485 do in 96 % of such tests


def shares_that_cover(draw, truths: dict, percent: float) -> dict:
    """Of 500 sets of samples, those whose interval contains the truth.

    Args:
        draw: from a generator to ``Recompute`` and the number of samples.
    """
    generator, hits = np.random.default_rng(1), dict.fromkeys(truths, 0)
    for _ in range(DRAWS):
        found = bootstrap(*draw(generator), percent=percent, resamples=400)
        for name, truth in truths.items():
            hits[name] += found[name].low <= truth <= found[name].high
    return {name: number / DRAWS for name, number in hits.items()}


def drawn_labels(generator):
    labels = generator.choice(4, 400, p=[0.4, 0.3, 0.2, 0.1])
    return Classified(labels, (generator.random(400) >= np.array([0.9, 0.8, 0.7, 0.6])[labels]).astype(int), 4), 400


def drawn_errors(generator):
    return means({"error": generator.gamma(2.0, 0.7, 400)}), 400


def drawn_confusions(generator):
    """Scenes of very different sizes whose points are right with a share that differs from scene to scene."""
    true = generator.poisson(generator.gamma(2.0, 50.0, (150, 1)), (150, 2))
    right = generator.binomial(true, generator.beta(8, 2, (150, 2)))
    wrong = true - right
    return confusion_scores(np.stack([right, true, right + wrong[:, ::-1]], axis=1), ["a", "b"]), 150


OF_LABELS = {"top-1": 100 * (0.36 + 0.24 + 0.14 + 0.06), "balanced accuracy": 75.0, "recall 1": 80.0}


@pytest.mark.parametrize(
    "draw, truths, percent, low, high",
    [
        (drawn_labels, OF_LABELS, 95, 0.93, 0.97),
        (drawn_labels, OF_LABELS, 99, 0.975, 1.0),
        (drawn_errors, {"error": 1.4}, 95, 0.93, 0.97),
        (drawn_confusions, {"mIoU": 0.8 / 1.2}, 95, 0.93, 0.97),
    ],
)
def test_an_interval_covers_the_truth_as_often_as_it_says(draw, truths, percent, low, high):
    shares = shares_that_cover(draw, truths, percent)
    assert all(low <= share <= high for share in shares.values()), shares


@pytest.mark.parametrize(
    "percent, right, shown", [(95, 360, "[99.0, 100.0]"), (99, 360, "[98.5, 100.0]"), (95, 0, "[0.0, 1.0]")]
)
def test_where_all_or_none_are_right_the_end_is_that_of_clopper_and_pearson(percent, right, shown):
    value = 100.0 * right / 360
    found = with_exact_end(Interval(value, value, value), 360, percent)
    assert found.ends(1) == shown and found.value == value
    farther = found.low if right else 100 - found.high
    assert (farther / 100) ** 360 == pytest.approx((1 - percent / 100) / 2)  # as likely are 360 alike
    assert with_exact_end(Interval(50.0, 40.0, 60.0), 360, percent) == (50.0, 40.0, 60.0)


def test_an_interval_of_a_mean_is_that_of_the_normal_distribution():
    numbers = np.random.default_rng(0).normal(10.0, 2.0, 5000)
    interval = bootstrap(means({"mean": numbers}), 5000, resamples=4000)["mean"]
    half = 1.96 * numbers.std() / np.sqrt(5000)
    assert interval.value == pytest.approx(numbers.mean())
    assert [interval.low, interval.high] == pytest.approx([numbers.mean() - half, numbers.mean() + half], abs=half / 15)


def test_how_many_draws_are_made_at_a_time_changes_nothing(monkeypatch):
    numbers = np.random.default_rng(0).normal(size=(300, 1))
    seen = {}
    for most in (300, 7 * 300 + 5, 1 << 22):
        monkeypatch.setattr("paddlevit_dist.intervals.resampling._MOST_WEIGHTS", most)
        parts = []

        def recompute(weights, parts=parts):
            parts.append(weights.copy())
            return {"sum": weighted_sums(weights, numbers)[:, 0]}

        seen[most] = bootstrap(recompute, 300, resamples=50), np.concatenate(parts)
    (first, weights), *others = seen.values()
    assert all(found == first and (other == weights).all() for found, other in others)
    assert weights.shape == (51, 300) and (weights[0] == 1).all() and (weights.sum(axis=1) == 300).all()


def test_a_biased_score_is_moved_back_and_an_unbiased_one_is_not():
    numbers = np.random.default_rng(0).random(60)

    def largest(weights):
        return {"max": np.where(weights > 0, numbers, 0.0).max(axis=1), "mean": weights @ numbers / 60}

    found = bootstrap(largest, 60)
    assert found["max"].value == numbers.max() < found["max"].high  # no draw is above it
    assert found["mean"].low < found["mean"].value < found["mean"].high


def test_values_that_are_not_defined_are_left_out():
    found = bootstrap(Classified(np.array([0, 0, 2]), np.array([0, 1, 0]), 4, ["a", "b", "c", "d"]), 3)
    assert set(found) == {"top-1", "balanced accuracy", "recall a", "recall c"}
    assert found["balanced accuracy"].value == 75.0 and found["recall c"] == (100.0, 100.0, 100.0)


def test_joined_tables_are_ordered_and_padding_counts_once():
    parts = [
        ([4, 0, 1], [np.array([40, 0, 10]), np.eye(5)[[4, 0, 1]]]),
        ([2, 3, 0], [np.array([20, 30, 0]), np.eye(5)[[2, 3, 0]]]),
    ]
    numbers, rows = join(parts)
    assert numbers.tolist() == [0, 10, 20, 30, 40] and (rows == np.eye(5)).all()
    assert all((one == other).all() for one, other in zip(join(parts[::-1]), (numbers, rows)))
    with pytest.raises(ValueError, match="2 rows for 3 samples"):
        join([([0, 1, 2], [np.zeros(2)])])


def test_a_thousand_classes_are_counted_as_one_by_one():
    generator = np.random.default_rng(3)
    labels, places = generator.integers(0, 7, 90), generator.integers(0, 9, 90)
    weights = generator.integers(0, 4, (6, 90)).astype(float)
    found = Classified(labels, places, 8, top=(1, 5))(weights)
    for draw, counts in enumerate(weights.astype(int)):
        of, at = np.repeat(labels, counts), np.repeat(places, counts)
        recalls = [100 * (at[of == label] == 0).mean() for label in range(7)]
        assert found["top-1"][draw] == pytest.approx(100 * (at == 0).mean())
        assert found["top-5"][draw] == pytest.approx(100 * (at < 5).mean())
        assert [found[f"recall {label}"][draw] for label in range(7)] == pytest.approx(recalls)
        assert found["balanced accuracy"][draw] == pytest.approx(np.mean(recalls))
    assert np.isnan(found["recall 7"]).all()
