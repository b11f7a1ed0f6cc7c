"""Which files are images by their first bytes, how skipped ones are summed up, and which folders are walked."""

import json
import os
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
from PIL import Image, ImageFile, features

from paddlevit_dist.images.data.formats import (
    SkippedFiles,
    detect_image_type,
    get_suffix,
    read_head,
    readable_formats,
    readable_suffixes,
    split_in_name,
    walk_files,
)


@pytest.mark.parametrize("lacking", [(), ("WEBP",), ("JPEG2000",)])
def test_formats_that_pillow_decodes_itself_are_read(lacking, monkeypatch):
    if "JPEG2000" in lacking:
        monkeypatch.setitem(features.codecs, "jpg_2000", ("none", None))
    if "WEBP" in lacking:
        monkeypatch.delitem(Image.SAVE, "WEBP")
    for function in (readable_formats, readable_suffixes):
        function.cache_clear()
    try:
        found, suffixes = readable_formats(), readable_suffixes()
    finally:
        monkeypatch.undo()
        for function in (readable_formats, readable_suffixes):
            function.cache_clear()
    stubs = {
        name
        for name, (factory, _) in Image.OPEN.items()
        if isinstance(factory, type) and issubclass(factory, ImageFile.StubImageFile)
    }
    assert {"GRIB", "HDF5", "WMF"} <= stubs
    assert list(found) == [name for name in Image.ID if name not in (*stubs, *lacking, "EPS", "MPEG")]
    assert {b".jpg", b".jpeg", b".png", b".bmp", b".mpo", b".tif"} <= suffixes
    assert not suffixes & {b".eps", b".mpg", b".wmf", b".JPG"}
    assert (b".webp" in suffixes, b".jp2" in suffixes) == ("WEBP" not in lacking, "JPEG2000" not in lacking)


def test_heif_is_read_where_its_plugin_is_installed(monkeypatch):
    class HeifImageFile(ImageFile.ImageFile):
        """As the plugin's; nothing is opened here."""

    def register():
        Image.ID.append("HEIF")
        monkeypatch.setitem(Image.OPEN, "HEIF", (HeifImageFile, None))
        monkeypatch.setitem(Image.EXTENSION, ".heic", "HEIF")

    monkeypatch.setitem(sys.modules, "pillow_heif", SimpleNamespace(register_heif_opener=register))
    for function in (readable_formats, readable_suffixes):
        function.cache_clear()
    try:
        assert "HEIF" in readable_formats() and b".heic" in readable_suffixes()
    finally:
        monkeypatch.undo()
        Image.ID.remove("HEIF")
        for function in (readable_formats, readable_suffixes):
            function.cache_clear()


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"RIFF\x10\0\0\0WEBPVP8 ", "WebP"),
        (b"RIFF\x10\0\0\0WAVEfmt ", None),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC"),
        (b"\0\0\0\x18ftypavif\0\0\0\0", "AVIF"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0", None),
        (b"GIF88a", None),
    ],
)
def test_signatures_of_containers_are_told_apart_by_what_is_in_them(head, kind):
    assert detect_image_type(head) == kind


@pytest.mark.parametrize(
    ("name", "suffix"), [(b"a.b.PNG", b".png"), (b".png", b""), (b"png", b""), (b"a.", b""), (b"a.b c", b"")]
)
def test_suffixes_follow_a_name(name, suffix):
    assert get_suffix(name) == suffix


@pytest.mark.parametrize(
    ("name", "whole", "part"),
    [
        ("Train", "train", "train"),
        ("seg_train2017", "train", "train"),
        ("TestSet", "test", "test"),
        ("Validation images", "val", "val"),
        ("train_masks", None, "train"),
        ("train-training", "train", "train"),
        ("train_val", None, None),
        ("trains", None, None),
        ("2017", None, None),
    ],
)
def test_splits_are_words_of_a_name(name, whole, part):
    assert (split_in_name(name), split_in_name(name, is_whole=False)) == (whole, part)


def test_the_most_frequent_eight_suffixes_are_named_and_the_others_counted():
    skipped = SkippedFiles("my_data")
    skipped.counts = Counter({f".{letter}": number for number, letter in enumerate("jihgfedcba", 1)})
    named = "10 .a, 9 .b, 8 .c, 7 .d, 6 .e, 5 .f, 4 .g, 3 .h"
    assert skipped.summary() == f"skipped below my_data: {named}, 3 with 2 other suffixes"
    del skipped.counts[".i"], skipped.counts[".j"]
    assert skipped.summary() == f"skipped below my_data: {named}"
    raw = [f".{letter}" for letter in ("arw", "dng", "erf", "hdr", "iiq", "nrw", "raf", "svg", "x3f")]
    skipped.counts = Counter({**dict.fromkeys(raw, 2), ".txt": 7, ".c": 6})
    skipped.images = Counter(raw)  # all of these are named
    named = ", ".join(f"2 {suffix} (convert to PNG or JPEG)" for suffix in raw)
    assert skipped.summary() == f"skipped below my_data: {named}, 13 with 2 other suffixes"


def test_skipped_files_of_tar_files_are_counted_together_also_after_they_were_stored():
    first, second = SkippedFiles("my.tar"), SkippedFiles("other.tar")
    for skipped, names in ((first, "zc"), (second, "bd")):
        for name in names:
            skipped.add(f"{name}.SVG".encode(), f"{skipped.place}/{name}.SVG".encode(), bytes)
            skipped.add_unusable(f"{name}/1.jpg".encode(), "links to nothing")
        skipped.add_unusable(f"{names[0]}.jpg".encode(), "listed twice", is_lost=False)
    second.add_unusable(b"dev", "devices")
    second.num_links, first.num_links = 1_000, 2
    empty = SkippedFiles("nothing.tar")
    for skipped in (second, empty):
        first.merge(skipped)
    empty.merge(first)
    found = [SkippedFiles.from_json(json.loads(json.dumps(skipped.as_json()))) for skipped in (first, empty)]
    for skipped in found:
        skipped.add(b"1.csv", b"x/1.csv", bytes)
    assert [skipped.lines() for skipped in found] == [
        [
            f"skipped below {place}: 4 .svg (convert to PNG or JPEG), 4 links to nothing: z/1.jpg, c/1.jpg, b/1.jpg "
            "..., 2 listed twice: z.jpg, b.jpg, 1 .csv, 1 devices: dev",
            f"1,002 images in {place} are links to other files in it, which are read",
        ]
        for place in ("my.tar", "nothing.tar")
    ]
    assert [(skipped.num_images, skipped.example) for skipped in found] == [(8, "my.tar/c.SVG")] * 2


def test_skipped_files_need_not_be_readable(tmp_path):
    (tmp_path / "long").write_bytes(bytes(range(40)))
    assert read_head(os.fsencode(tmp_path / "long")) == bytes(range(16))
    assert read_head(os.fsencode(tmp_path / "missing")) == b""


def test_folders_that_cannot_be_walked_are_refused_and_the_others_listed(tmp_path):
    for name in ("a/1", "b/c/2", ".d/3"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "b" / "again").symlink_to(tmp_path)
    (tmp_path / "same").symlink_to(tmp_path / "a")
    refused = []
    found = walk_files(os.fsencode(tmp_path), lambda folder, reason: refused.append((os.fsdecode(folder), reason)))
    paths = sorted(os.path.relpath(os.fsdecode(entry.path), tmp_path) for entry in found)
    assert paths == [".d", "a/1", "b/c/2", "same/1"]
    assert refused == [(f"{tmp_path}/b/again", "it is a link to a folder that contains it; remove the link")]
    missing = os.fsencode(tmp_path / "nowhere")
    assert list(walk_files(missing, lambda folder, reason: refused.append((folder, reason)))) == []
    assert refused[1:] == [(missing, "it cannot be listed: No such file or directory")]
