"""How far outputs may differ, and how they are compared."""

import math

import numpy as np
import pytest

from paddlevit_dist.extensions.export.differences import OutputDifference, compare, require_small


def test_the_largest_difference_of_all_outputs_is_told_with_the_largest_output():
    expected = [np.array([[1.0, -8.0]]), np.array([2.0, 3.0, 4.0])]
    actual = [np.array([[1.25, -8.0]]), np.array([2.0, 2.5, 4.0])]
    difference = compare(expected, actual)
    assert difference == OutputDifference(0.5, 8.0) and str(difference) == "outputs up to 8 differ by at most 5.0e-01"
    assert compare(expected[:1], actual[:1]) == OutputDifference(0.25, 8.0)
    with pytest.raises(ValueError):
        compare(expected, actual[:1])
    bad = compare(expected, [actual[0] * np.nan, actual[1]])
    assert bad.absolute == math.inf and str(bad).endswith("differ by infinity: some are not finite")


def test_a_task_compares_the_trained_outputs_with_the_exported_ones():
    difference = compare(["trained"], ["exported"], lambda expected, actual: (0.25, f"{expected[0]} - {actual[0]}"))
    assert difference == OutputDifference(0.25, 1.0, "trained - exported")
    assert str(difference) == "trained - exported differ by at most 2.5e-01"


@pytest.mark.parametrize("precision, share", [("float32", 1e-4), ("float16", 5e-2)])
def test_rounding_explains_a_share_of_the_largest_output_and_of_1_if_all_are_smaller(precision, share):
    for largest, scale in ((40.0, 40.0), (0.01, 1.0)):
        small, large = OutputDifference(0.99 * share * scale, largest), OutputDifference(1.01 * share * scale, largest)
        assert small.is_rounding(precision) and not large.is_rounding(precision)
        require_small(small, precision, "out")
        with pytest.raises(RuntimeError, match="^out differs from the model it was exported from: by .*nothing was"):
            require_small(large, precision, "out")
    assert OutputDifference(share, 1.0).is_rounding(precision)
    require_small(OutputDifference(0.9, 1.0, "boxes"), precision, "out")  # other objects may be selected
    with pytest.raises(RuntimeError, match="by inf"):
        require_small(OutputDifference(math.inf, 1.0, "boxes"), precision, "out")
