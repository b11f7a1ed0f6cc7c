"""Fixtures shared by several model tests."""

from __future__ import annotations

import pytest
from paddle.nn.initializer import Constant, TruncatedNormal


@pytest.fixture
def weights_of_zero(monkeypatch):
    """Drawing initial weights that are replaced at once, or not looked at, would take most of the time."""
    monkeypatch.setattr(TruncatedNormal, "forward", lambda self, var, block=None: Constant(0.0)(var, block))
