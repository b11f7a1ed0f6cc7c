"""Every registered classifier has its published size, and learns, evaluates and keeps its state where it is small."""

import pytest
from support.networks.every_classifier import NAMES, ONE_OF_EACH_FAMILY, require_learning, require_published_size

OTHERS = [name for name in NAMES if name not in ONE_OF_EACH_FAMILY]


@pytest.mark.parametrize("name", OTHERS)
def test_the_number_of_parameters_is_the_published_one(name):
    require_published_size(name)


@pytest.mark.parametrize("name", OTHERS)
def test_forward_backward_and_state(name, tmp_path):
    require_learning(name, tmp_path)
