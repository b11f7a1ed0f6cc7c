"""A cached file that was damaged in any way is made again: what is served is always what the source says."""

import pytest
from support.files.cached_files import KINDS, check


@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_caches_are_made_again(kind, tmp_path):
    check(kind, tmp_path, 150)
