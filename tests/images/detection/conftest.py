"""What tests of datasets with boxes share."""

from __future__ import annotations

import pytest


@pytest.fixture
def cache(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder
