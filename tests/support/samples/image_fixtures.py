"""Fixtures shared by several tests."""

import functools
from unittest import mock

import pytest
from paddle.nn.initializer import Constant, Normal, TruncatedNormal

from paddlevit_dist.core.commands import convert

_build_families = functools.cache(convert.build_families)


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
    with mock.patch.object(convert, "build_families", _build_families):
        yield
