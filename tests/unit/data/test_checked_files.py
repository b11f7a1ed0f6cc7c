"""A cached file that was damaged in any way is made again: what is served is always what the source says."""

import pytest
from support.files.cached_files import KINDS, check


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_caches_are_made_again(kind, tmp_path):
    check(kind, tmp_path, 12)


def test_an_untouched_cache_is_not_made_again(tmp_path):
    for kind, (write, dataset, served) in KINDS.items():
        root, cache = tmp_path / kind, tmp_path / f"{kind} cache"
        root.mkdir()
        cache.mkdir()
        write(root)
        served(dataset(str(root), "train", cache))
        before = {path: path.stat().st_ino for path in cache.rglob("*") if path.is_file()}
        served(dataset(str(root), "train", cache))
        assert {path: path.stat().st_ino for path in cache.rglob("*") if path.is_file()} == before, kind
