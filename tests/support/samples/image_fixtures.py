"""Fixtures shared by several tests."""

import functools
from unittest import mock

import pytest
from paddle.nn.initializer import Constant, Normal, TruncatedNormal

from paddlevit_dist.core.commands import convert


@pytest.fixture
def weights_of_zero(monkeypatch):
    """Drawing initial weights that are replaced at once, or not looked at, would take most of the time."""
    for kind in (Normal, TruncatedNormal):
        monkeypatch.setattr(kind, "forward", lambda self, var, block=None: Constant(0.0)(var, block))


@pytest.fixture
def cache(tmp_path):
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def families_once():
    """The converter builds a network of each family anew for each file, in most of a second."""
    built = functools.cache(convert.build_families)
    built()  # the first test need not pay for it
    with mock.patch.object(convert, "build_families", built):
        yield
