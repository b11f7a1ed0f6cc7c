"""What a parameter is drawn from."""

import math

import numpy as np
import pytest


def is_uniform(parameter, bound: float) -> bool:
    values = parameter.numpy()
    assert 0.9 * bound < values.max() <= bound and -bound <= values.min() < -0.9 * bound
    assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    return True


def is_normal(parameter, deviation: float) -> bool:
    values = parameter.numpy()
    assert abs(values).max() > 2.2 * deviation and abs(values.mean()) < 0.2 * deviation
    assert values.std() == pytest.approx(deviation, rel=0.1)
    return True


def is_constant(parameter, value: float) -> bool:
    return np.allclose(parameter.numpy(), value, rtol=1e-6)
