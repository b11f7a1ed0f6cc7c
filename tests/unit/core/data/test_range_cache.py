"""The cache of byte ranges: what is read back, its size, and what killed or racing writers leave."""

import fcntl
import hashlib
import os
import pickle
import random
import threading
import time
import zlib
from pathlib import Path

import pytest
from support.refusals import refusal_of

from paddlevit_dist.core.data import range_cache
from paddlevit_dist.core.data.range_cache import FOLDERS, RangeCache


@pytest.fixture
def cache(tmp_path):
    return RangeCache(tmp_path / "cache", FOLDERS * 10_000)


def files(cache):
    found = [os.path.join(top, name) for top, _, names in os.walk(cache.folder) for name in names]
    return [path for path in found if os.path.basename(path) != "bytes"]


def test_what_is_put_is_got_also_by_a_pickled_copy(cache):
    assert cache.get("a") is None
    cache.put("a", b"x" * 100)
    cache.put("b", b"")
    assert cache.get("a") == b"x" * 100 and pickle.loads(pickle.dumps(cache)).get("b") == b""
    assert cache.get("c") is None


def test_size_never_exceeds_the_limit_and_the_latest_ranges_stay(cache):
    generator, kept = random.Random(3), {}
    for number in range(500):
        kept[f"{number}"] = generator.randbytes(generator.randrange(6000))
        cache.put(f"{number}", kept[f"{number}"])
        if number % 100 == 0:
            assert sum(map(os.path.getsize, files(cache))) <= cache.limit_bytes
    assert sum(map(os.path.getsize, files(cache))) > cache.limit_bytes / 2
    answers = {key: cache.get(key) for key in kept}
    assert all(answers[key] in (None, kept[key]) for key in kept)
    assert all(answers[str(number)] == kept[str(number)] for number in range(460, 500))
    assert answers["0"] is None


def test_ranges_read_longest_ago_are_removed_first(cache):
    cache.limit_bytes, cache.folders = 10_000, 1
    for number, name in enumerate("abc"):
        cache.put(name, bytes(3000))
        os.utime(cache.find_path(name), (number, number))
    cache.get("a")
    cache.put("d", bytes(3000))
    assert [name for name in "abcd" if cache.get(name) is not None] == ["a", "c", "d"]


def test_a_range_larger_than_its_part_is_not_kept(cache):
    cache.put("a", bytes(10_000))
    assert cache.get("a") is None and files(cache) == []


@pytest.mark.parametrize("damage", [lambda c: c[:50], lambda c: b"", lambda c: bytes(len(c)), lambda c: c + b"x"])
def test_a_damaged_file_is_not_read(damage, cache):
    cache.put("a", b"x" * 100)
    [path] = files(cache)
    with open(path, "rb") as stream:
        content = stream.read()
    with open(path, "wb") as stream:
        stream.write(damage(content))
    assert cache.get("a") is None
    cache.put("a", b"x" * 100)
    assert cache.get("a") == b"x" * 100


def test_an_interrupted_write_leaves_nothing_and_leftovers_are_removed(cache, monkeypatch):
    cache.limit_bytes, cache.folders = 10_000, 1
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        cache.put("a", bytes(100))
    assert cache.get("a") is None and files(cache) == []
    leftover = os.path.join(cache.folder, "00", "name.host.1.0123abcd.tmp")  # of a killed process
    with open(leftover, "wb") as stream:
        stream.write(bytes(5000))
    os.utime(leftover, (1, 1))
    for number in range(4):
        cache.put(str(number), bytes(3000))
    assert not os.path.exists(leftover)


def test_racing_writers_and_readers_see_whole_ranges(cache):
    contents = {str(number): bytes([number]) * (500 + number) for number in range(200)}
    wrong = []

    def work(seed):
        generator = random.Random(seed)
        for _ in range(60):
            key = str(generator.randrange(200))
            found = cache.get(key)
            wrong.extend([key] if found not in (None, contents[key]) else [])
            cache.put(key, contents[key])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and sum(map(os.path.getsize, files(cache))) <= cache.limit_bytes


def test_files_of_other_writers_stay(cache, monkeypatch):
    cache.limit_bytes, cache.folders = 10_000, 1
    other = os.path.join(cache.folder, "00", "name.host.1.0123abcd.tmp")
    written, replace = [], os.replace

    def replace_while_another_writes(source, target):
        if not written:
            written.append(target)
            cache.put("second", bytes(3000))  # fits beside the first one
            cache.put("third", bytes(3000))  # only in the place of the second one
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_while_another_writes)
    cache.put("first", bytes(6000))
    assert [len(cache.get(name) or b"") for name in ("first", "second", "third")] == [6000, 0, 3000]
    with open(other, "wb") as stream:
        stream.write(bytes(5000))
    cache.put("fourth", bytes(6000))
    assert cache.get("fourth") is None and os.path.exists(other)
    cache.put("fifth", bytes(4000))
    assert cache.get("fifth") == bytes(4000) and os.path.exists(other)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    cache = RangeCache(tmp_path / "file", 1 << 30)
    assert refusal_of(cache.put, "a", b"x") == (
        f"cannot write {cache.find_path('a')}: Not a directory; there is a file where a folder is expected: rename it, "
        "or choose another folder; it is below DATA.CACHE_FOLDER and takes up to DATA.REMOTE_CACHE_GIGABYTES"
    )


@pytest.fixture
def small(cache):
    """One subfolder of 1,000 bytes, and its counted bytes."""
    cache.limit_bytes, cache.folders = 1000, 1

    def count() -> int:
        with open(os.path.join(cache.folder, "00", "bytes"), "rb") as stream:
            return int.from_bytes(stream.read(), "little")

    return cache, count


def fill(cache, sizes) -> str:
    """Put ranges of these sizes in files, which have 4 bytes more, and return the names of all that are kept."""
    for name, size in sizes.items():
        cache.put(name, bytes(size - 4))
        path = cache.find_path(name)
        if os.path.exists(path):
            os.utime(path, (ord(name), ord(name)))
    return "".join(name for name in map(chr, range(97, 123)) if os.path.exists(cache.find_path(name)))


def test_a_full_folder_keeps_nine_tenths_or_what_leaves_room(small):
    cache, count = small
    assert fill(cache, dict.fromkeys("abcdefghij", 100)) == "abcdefghij" and count() == 1000
    assert fill(cache, {"k": 20}) == "bcdefghijk" and count() == 920
    assert fill(cache, {"l": 80}) == "bcdefghijkl" and count() == 1000
    assert fill(cache, {"m": 300}) == "efghijklm" and count() == 1000
    assert fill(cache, {"n": 1000}) == "n" and count() == 1000
    assert fill(cache, {"o": 1001}) == "n"


def test_a_folder_without_its_count_is_counted(small):
    cache, count = small
    fill(cache, {"a": 300, "b": 300})
    with open(os.path.join(cache.folder, "00", "bytes"), "wb") as stream:
        stream.write(b"\1\2")
    assert fill(cache, {"c": 100}) == "abc" and count() == 700


@pytest.mark.parametrize("age, is_gone", [(3600, False), (3601, True)])
def test_a_file_that_is_written_for_an_hour_is_left_by_a_killed_process(small, simulated_time, age, is_gone):
    simulated_time.now = 50_000.0
    cache, count = small
    fill(cache, {"a": 300, "b": 300})
    leftover = os.path.join(cache.folder, "00", "name.host.1.0123abcd.tmp")
    with open(leftover, "wb") as stream:
        stream.write(bytes(500))
    os.utime(leftover, (50_000 - age,) * 2)
    assert fill(cache, {"c": 500}) == ("bc" if is_gone else "c")
    assert os.path.exists(leftover) is not is_gone
    assert count() == (800 if is_gone else 1000)
    assert fill(cache, {"d": 600}) == ("d" if is_gone else "") and count() == (600 if is_gone else 500)


def test_the_count_is_believed_while_there_is_room_and_locked_while_it_changes(small):
    cache, count = small
    fill(cache, {"a": 300})
    path = os.path.join(cache.folder, "00", "bytes")
    with open(path, "wb") as stream:  # as after a writer that was killed
        stream.write((900).to_bytes(8, "little"))
    assert fill(cache, {"b": 50}) == "ab" and count() == 950
    assert fill(cache, {"c": 100}) == "abc" and count() == 450
    with range_cache.locked_counter(Path(path)), open(path, "rb") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(path, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_ranges_are_spread_by_their_digest_and_readable_by_others(cache):
    names = {cache.find_path(str(number)) for number in range(1000)}
    folders = {os.path.basename(os.path.dirname(path)) for path in names}
    assert folders == {f"{number:02d}" for number in range(64)} and len(names) == 1000
    digest = hashlib.blake2b("ä\udce9".encode("utf-8", "surrogateescape"), digest_size=20).hexdigest()
    path = f"{cache.folder}/{int(digest[:8], 16) % 64:02d}/{digest}"
    assert cache.find_path("ä\udce9") == path
    before = os.umask(0o026)
    try:
        cache.put("ä\udce9", b"abc")
    finally:
        os.umask(before)
    with open(path, "rb") as stream:
        assert stream.read() == b"abc" + zlib.crc32(b"abc").to_bytes(4, "little")
    assert {os.stat(os.path.join(os.path.dirname(path), name)).st_mode & 0o777 for name in ("bytes", path)} == {0o640}
    assert cache.get("ä\udce9") == b"abc" and os.stat(path).st_mtime > time.time() - 600
