"""Fixtures shared by several tests."""

import functools
from unittest import mock

import pytest

from paddlevit_dist.core.checkpoint import families

_build_family = functools.cache(families.build_family)


@pytest.fixture
def cache(tmp_path):
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def families_once():
    """The converter builds a network of each family anew for each file, in most of a second."""
    with mock.patch.object(families, "build_family", _build_family):
        yield
