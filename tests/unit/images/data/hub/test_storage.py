"""Data files: damage, bombs, groups of rows that do not fit, and metadata of images in files."""

import json
import os
import re
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.files.hub_files import IMAGE, classes, images, picture, write_arrow, write_parquet

from paddlevit_dist import UserError
from paddlevit_dist.images.data.guessing import guess
from paddlevit_dist.images.data.hub import storage
from paddlevit_dist.images.data.hub.hub_images import HubImages, HubLabelSets
from paddlevit_dist.images.data.hub.storage import ensure_places, open_data

FEATURES = {"image": IMAGE, "label": classes()}
COLUMNS = {"image": images([4, 1, 3]), "label": [2, 0, 1]}


@pytest.fixture(autouse=True)
def unpacked(tmp_path, monkeypatch):
    monkeypatch.setenv("PADDLEVIT_DIST_CACHE", str(tmp_path / "shared"))


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("damage", ["empty", "cut", "zeros", "text", "folder"])
def test_damaged_files_end_in_one_line(tmp_path, cache, form, damage):
    write = write_parquet if form == "parquet" else write_arrow
    path = write(tmp_path / "d" / f"train.{form}", COLUMNS, FEATURES)
    content = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        half = len(content) // 2
        damaged = {"empty": b"", "cut": content[:half], "text": b"image,label\n" * 99}
        path.write_bytes(damaged.get(damage, content[:200] + bytes(len(content) - 200)))
    with pytest.raises(UserError) as raised:
        HubImages(str(path), "train", cache)
    assert "\n" not in str(raised.value) and str(path) in str(raised.value)


def test_damaged_pages_are_found_by_their_checksums(tmp_path, cache):
    path = write_parquet(
        tmp_path / "d" / "train.parquet", COLUMNS, FEATURES, write_page_checksum=True, compression=None
    )
    content = bytearray(path.read_bytes())
    at = content.index(picture(1)) + 20
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="train.parquet cannot be read: .*; copy or download it again$"):
        HubImages(str(tmp_path / "d"), "train", cache)


def test_offsets_outside_of_the_file_are_damage(tmp_path, cache):
    path = write_arrow(tmp_path / "d" / "train.arrow", {"image": images([4, 1]), "label": [0, 1]}, FEATURES)
    sizes = [len(picture(4)), len(picture(4)) + len(picture(1))]
    content = path.read_bytes()
    offsets = b"".join(size.to_bytes(4, "little") for size in sizes)
    assert content.count(offsets) == 1
    path.write_bytes(content.replace(offsets, sizes[0].to_bytes(4, "little") + (1 << 30).to_bytes(4, "little")))
    with pytest.raises(UserError, match="train.arrow cannot be read: "):
        HubImages(str(tmp_path / "d"), "train", cache)


@pytest.mark.parametrize(
    "column",
    [pa.array([[1], [2]]), pa.array([1, 2]), pa.array([{"bytes": "a", "path": 1}] * 2), pa.array([{"a": 1}] * 2)],
)
def test_images_of_another_type_than_the_metadata_say_end_in_one_line(tmp_path, cache, column):
    write_parquet(tmp_path / "d" / "train.parquet", {"image": column, "label": [0, 1]}, FEATURES)
    with pytest.raises(UserError, match="its images are|no row of split|images at|missing|not fit") as raised:
        HubImages(str(tmp_path / "d"), "train", cache)
    assert "\n" not in str(raised.value)


def test_a_value_that_a_dictionary_repeats_is_read_in_small_batches(tmp_path, monkeypatch):
    """An image of 256 KiB that 400 rows repeat is a small file, and 100 MiB in memory."""
    image = {"bytes": os.urandom(1 << 18), "path": None}
    path = write_parquet(tmp_path / "train.parquet", {"image": pa.array([image] * 400)}, {"image": IMAGE})
    assert path.stat().st_size < 1 << 20
    data = open_data(str(path))
    sizes = [arrays[0].nbytes for arrays in data.batches(["image"])]
    assert sum(sizes) > 100 << 20 and max(sizes) < 2 * storage._BATCH_BYTES
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda path: _Usage(90 << 20))
    with pytest.raises(UserError, match="are free: free space, or set DATA.CACHE_FOLDER") as raised:
        ensure_places(data, ["image"], tmp_path / "out", [])
    needed, free = re.search(r"need ([\d,]+) bytes, but only ([\d,]+) are free", str(raised.value)).groups()
    assert int(needed.replace(",", "")) > int(free.replace(",", "")) == 90 << 20
    assert not list((tmp_path / "out").glob("*.unpacked"))


class _Usage:
    def __init__(self, free: int) -> None:
        self.free = free


def write_bomb(path, kind):
    """A file of a few kilobytes that unpacks to megabytes."""
    number = 10_000
    zeros = pa.array(np.zeros(number, np.int32))
    image = pa.array([b"\x89PNG" + bytes(60_000)])
    columns = {"image": images([1]).take(zeros), "label": zeros}
    if kind == "image":
        repeated = pa.DictionaryArray.from_arrays(zeros, image)
        columns["image"] = pa.StructArray.from_arrays([repeated, pa.nulls(number, pa.string())], ["bytes", "path"])
    elif kind == "label":
        columns["label"] = pa.DictionaryArray.from_arrays(zeros, pa.array(["a" * 60_000]))
    else:
        bounds, cells = [0, 1 << 20], pa.array(np.zeros(1 << 20, np.int8))
        columns = {"image": images([1]), "label": pa.LargeListArray.from_arrays(pa.array(bounds), cells)}
    pq.write_table(pa.table(columns), path, store_schema=False, compression="zstd")
    assert path.stat().st_size < 1 << 14


@pytest.mark.parametrize("kind", ["image", "label", "list"])
def test_a_small_file_that_unpacks_to_much_is_refused_by_its_headers(tmp_path, cache, monkeypatch, kind):
    monkeypatch.setattr(storage, "_MOST_BYTES", 1 << 20)
    monkeypatch.setattr(storage, "_MOST_TIMES", 10)
    write_bomb(tmp_path / "train.parquet", kind)
    before = pa.total_allocated_bytes()
    with pytest.raises(UserError, match=r"has [\d,]+ bytes, but unpacks to more than 1,048,576 in (image|label)"):
        HubLabelSets(str(tmp_path / "train.parquet"), "train", cache)
    written = sum(file.stat().st_size for file in tmp_path.rglob("*.unpacked"))
    assert pa.total_allocated_bytes() - before < 1 << 20 and written < 1 << 21


def test_an_image_that_arrow_repeats_is_refused_before_it_is_unpacked(tmp_path, cache):
    zeros = pa.array(np.zeros(20_000, np.int32))
    repeated = pa.DictionaryArray.from_arrays(zeros, pa.array([bytes(60_000)]))
    image = pa.StructArray.from_arrays([repeated, pa.nulls(20_000, pa.string())], ["bytes", "path"])
    path = write_arrow(tmp_path / "train.arrow", {"image": image, "label": zeros}, FEATURES, rows=20_000)
    with pytest.raises(UserError, match="train.arrow cannot be read: its images repeat, to more than 1,073,741,824 b"):
        HubImages(str(path), "train", cache)


def test_local_data_need_no_network_and_run_no_script(tmp_path, cache, monkeypatch):
    write_parquet(tmp_path / "flowers" / "train.parquet", COLUMNS, FEATURES)
    (tmp_path / "flowers" / "flowers.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
    (tmp_path / "flowers" / "README.md").write_text("---\nconfigs:\n- data_files: '*.parquet'\n---\n")
    asked = []
    monkeypatch.setattr("socket.socket.connect", lambda *words: asked.append(words))
    monkeypatch.setattr("socket.getaddrinfo", lambda *words, **options: asked.append(words))
    dataset = HubImages(str(tmp_path / "flowers"), "train", cache)
    assert dataset.read(0)[0].width == 14 and not asked and not (tmp_path / "run").exists()


def test_without_the_library_parquet_is_refused_and_metadata_are_read(tmp_path, cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    path = write_parquet(tmp_path / "d" / "train.parquet", COLUMNS, FEATURES)
    for root in (path, path.parent):
        with pytest.raises(UserError, match=r"need the library datasets, but .*: pip install 'datasets>=4.2,<6'$"):
            HubImages(str(root), "train", cache)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.png").write_bytes(picture(1))
    (tmp_path / "files" / "metadata.jsonl").write_text('{"file_name": "a.png", "label": "x"}')
    assert HubImages(str(tmp_path / "files"), "train", cache).class_names == ["x"]


def test_a_group_of_rows_beyond_the_free_memory_is_refused(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "train.parquet", COLUMNS, FEATURES)
    monkeypatch.setattr(storage, "read_memory", lambda: (1 << 30, 100))
    with pytest.raises(
        UserError, match="a group of rows has .* but only 100 are free: write it again with smaller groups"
    ):
        ensure_places(open_data(str(path)), ["image"], tmp_path / "out", [])
    monkeypatch.setattr(storage, "read_memory", lambda: None)
    monkeypatch.setattr(storage, "_LARGE_GROUP", 10)
    notices = []
    ensure_places(open_data(str(path)), ["image"], tmp_path / "out", notices)
    assert "groups of rows of up to" in notices[0]


def test_threads_that_need_one_file_write_it_once(tmp_path, monkeypatch):
    path, written = str(write_parquet(tmp_path / "train.parquet", COLUMNS, FEATURES)), []
    monkeypatch.setattr(storage, "_require_room", lambda target, size: written.append(size))
    threads = [
        threading.Thread(target=lambda: ensure_places(open_data(path), ["image"], tmp_path / "out", []))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(written) == 1 and len(list((tmp_path / "out").glob("*.unpacked"))) == 1


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_metadata_name_images_in_files(tmp_path, cache, form):
    rows = [{"file_name": "deep/b.png", "label": "dog"}, {"file_name": "a.png", "label": "cat"}]
    for split in ("train", "test"):
        (tmp_path / "d" / split / "deep").mkdir(parents=True)
        for number, row in enumerate(rows):
            (tmp_path / "d" / split / row["file_name"]).write_bytes(picture(number))
        file = tmp_path / "d" / split / f"metadata.{form}"
        if form == "jsonl":
            file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        else:
            pq.write_table(pa.Table.from_pylist(rows), file)
    root = str(tmp_path / "d")
    assert guess(root).dataset == ("hub" if form == "jsonl" else "table")
    dataset = HubImages(root, "val", cache)
    assert dataset.class_names == ["cat", "dog"] and dataset.labels.tolist() == [1, 0]
    assert [dataset.identity(k) for k in (0, 1)] == ["test/deep/b.png", "test/a.png"] and dataset.read(0)[0].width == 10
    (tmp_path / "d" / "test" / "a.png").unlink()
    with pytest.raises(UserError, match="1 of 2 images that it names are missing: test/a.png"):
        HubImages(root, "test", cache)


def test_class_folders_next_to_metadata_open_as_before(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "train" / name).mkdir(parents=True)
        (tmp_path / "train" / name / "1.png").write_bytes(picture(1))
    (tmp_path / "train" / "metadata.jsonl").write_text('{"file_name": "cat/1.png", "text": "a"}\n')
    assert guess(str(tmp_path)).dataset == "folder"
