"""What tests of datasets with boxes share."""

import pytest


@pytest.fixture
def cache(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder
