"""Fixtures shared by several tests."""

import pytest
from paddle.nn.initializer import Constant, Normal, TruncatedNormal


@pytest.fixture
def weights_of_zero(monkeypatch):
    """Drawing initial weights that are replaced at once, or not looked at, would take most of the time."""
    for kind in (Normal, TruncatedNormal):
        monkeypatch.setattr(kind, "forward", lambda self, var, block=None: Constant(0.0)(var, block))


@pytest.fixture
def cache(tmp_path):
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"
