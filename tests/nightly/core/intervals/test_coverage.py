"""Intervals cover as often as they say."""

import pytest
from unit.core.intervals.test_resampling import OF_LABELS, drawn_confusions, drawn_labels, shares_that_cover

from paddlevit_dist.core.intervals import means

SETS = 500  # of data; of 500 intervals that cover in 95 % of cases, 465 to 485 do in 96 % of such tests


def drawn_errors(generator):
    return means({"error": generator.gamma(2.0, 0.7, 400)}), 400


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
    shares = shares_that_cover(draw, truths, percent, SETS)
    assert all(low <= share <= high for share in shares.values()), shares
