"""The largest network of MinkowskiEngine: values and gradients of the original implementation, in float64."""

from integration.points.test_golden_networks import BY_NIGHT, float64, require_golden_minkunet  # noqa: F401


def test_golden_minkunet():
    require_golden_minkunet(BY_NIGHT)
