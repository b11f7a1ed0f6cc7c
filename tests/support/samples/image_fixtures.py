"""Fixtures shared by several tests."""

import functools
from unittest import mock

import pytest

from paddlevit_dist.core.commands import convert

_build_families = functools.cache(convert.build_families)


@pytest.fixture
def cache(tmp_path):
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def families_once():
    """The converter builds a network of each family anew for each file, in most of a second."""
    with mock.patch.object(convert, "build_families", _build_families):
        yield
