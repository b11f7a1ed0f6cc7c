"""A cached file that was damaged in any way is made again: what is served is always what the source says."""

import zlib

import numpy as np
import pytest
from support.files.cached_files import KINDS, check

from paddlevit_dist.core.data import checked_files


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


def write(path, content):
    with checked_files.checked_file(path) as out:
        half = len(content) // 2
        assert out.write(content[:half]) == half and out.tell() == half
        out.write(memoryview(content[half:]))


def test_a_file_ends_with_the_checksums_of_its_name_and_content_and_of_the_trailer(tmp_path):
    for content in (b"", b"the content"):
        write(tmp_path / "name", content)
        checksum = zlib.crc32(b"name" + content)
        head = b"pdcheck\0" + checksum.to_bytes(4, "little")
        assert (tmp_path / "name").read_bytes() == content + head + zlib.crc32(head).to_bytes(4, "little")
        assert checked_files.verify(tmp_path / "name") == checksum
        assert checked_files.read_checked(str(tmp_path / "name")) == content


def test_any_changed_byte_or_name_is_damage(tmp_path):
    write(tmp_path / "name", b"the content")
    content = (tmp_path / "name").read_bytes()
    changed = [content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in range(len(content))]
    for other in (*changed, content[1:], content + b"x", content[:20]):
        (tmp_path / "name").write_bytes(other)
        with pytest.raises(checked_files.DamagedCacheError, match="name does not match its checksum$"):
            checked_files.verify(tmp_path / "name")
    (tmp_path / "name").write_bytes(content[:15])
    with pytest.raises(checked_files.DamagedCacheError, match="name is truncated$"):
        checked_files.verify(tmp_path / "name")
    (tmp_path / "other").write_bytes(content)
    for name, reason in (("other", "does not match its checksum"), ("none", "cannot be read: No such file or dir")):
        with pytest.raises(checked_files.DamagedCacheError, match=f"{name} {reason}"):
            checked_files.read_checked(tmp_path / name)


def test_an_array_is_written_with_its_checksum_and_nothing_else_is_one(tmp_path):
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    checksum = checked_files.write_array(tmp_path / "a.npy", array)
    assert checked_files.verify(tmp_path / "a.npy") == checksum
    mapped = checked_files.map_verified(tmp_path / "a.npy")
    assert mapped.tolist() == array.tolist() and mapped.dtype == np.int16
    write(tmp_path / "b.npy", b"no array")
    with pytest.raises(checked_files.DamagedCacheError, match=r"b\.npy is not an array: "):
        checked_files.map_verified(tmp_path / "b.npy")
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        checked_files.write_array(tmp_path / "c.npy", np.array([{}]))
    assert not (tmp_path / "c.npy").exists()
