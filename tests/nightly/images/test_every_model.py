"""Every registered classifier learns, evaluates and keeps its state; computed with reduced dimensions."""

import pytest
from support.every_classifier import NAMES, ONE_OF_EACH_FAMILY, require_learning


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ONE_OF_EACH_FAMILY])
def test_forward_backward_and_state(name, tmp_path):
    require_learning(name, tmp_path)
