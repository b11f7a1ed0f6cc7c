"""Images of a prediction, listed from files, folders, tar files and videos."""

import io
import os
import tarfile
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.images.data import listing as listing_module
from paddlevit_dist.images.data.listing import InputListing, ListedImage, VideoFile, natural_key, read_frame_times
from paddlevit_dist.images.data.reading import UnreadableImage


def encode(kind="PNG"):
    out = io.BytesIO()
    Image.new("RGB", (4, 3)).save(out, kind)
    return out.getvalue()


PNG = encode()


def add(path):
    listing = InputListing()
    listing.add(os.fsencode(path))
    return listing


def list_names(listing, folder):
    return [os.fsdecode(image.name).removeprefix(f"{folder}/") for image in listing.images]


def test_a_folder_is_listed_in_natural_order_with_what_is_left_out(tmp_path):
    folder = tmp_path / "in"
    names = ("b/10.png", "b/2.JPG", "b/9.png", "a.png", ".x.png", ".git/y.png", "c.heic", "d.txt", "e.dat", "f.csv")
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(PNG if name in ("e.dat", "a.png") else b"text")
    os.utime(folder / "a.png", ns=(5, 1_600_000_000_000_000_007))
    found = add(folder)
    assert list_names(found, folder) == ["a.png", "b/2.JPG", "b/9.png", "b/10.png"]
    assert found.images[0][1:] == (-1, 1_600_000_000_000_000_007, len(PNG)) and found.archives == []
    heic, misnamed = found.unreadable
    assert heic[0] == f"{folder}/c.heic" and heic[1].startswith("an image that Pillow cannot open here (")
    reason = "a PNG image by its content, but not by its name: rename it, or pass the file itself"
    assert misnamed == (f"{folder}/e.dat", reason)
    kinds = "1 .dat (images by their content: rename them, for example to .jpg), 1 .csv, 1 .txt"
    hidden = f"skipped below {folder}: 2 hidden files or folders"
    assert found.notices == [hidden, f"skipped below {folder}: {kinds}"]


def test_a_folder_or_an_archive_without_images_is_told(tmp_path):
    (tmp_path / "in").mkdir()
    assert add(tmp_path / "in").unreadable == [(f"{tmp_path}/in", "the folder contains no images")]
    assert add(tmp_path / "in").notices == []
    with tarfile.open(tmp_path / "a.tar", "w"):
        pass
    found = add(tmp_path / "a.tar")
    assert found.unreadable == [(f"{tmp_path}/a.tar", "the archive contains no images")]
    assert add(tmp_path / "gone").unreadable == [(f"{tmp_path}/gone", "No such file or directory")]
    ((path, reason),) = add("a\0b").unreadable
    assert path == "a\0b" and "embedded null" in reason
    (tmp_path / "torn.tar").write_bytes(b"torn" * 300)
    (reason,) = add(tmp_path / "torn.tar").unreadable
    assert reason[0] == f"{tmp_path}/torn.tar" and reason[1] != "the archive contains no images"
    (tmp_path / "torn.tar").rename(tmp_path / "in" / "torn.tar")
    assert [path for path, _ in add(tmp_path / "in").unreadable] == [f"{tmp_path}/in/torn.tar"]


def test_members_of_an_archive_are_at_their_offsets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first.tar").write_bytes(b"")
    content = {"x/2.png": PNG, "x/.h.png": PNG, "y.dat": PNG, "z.txt": b"word", "w.heic": b"h", "1.png": PNG + b"more"}
    with tarfile.open("b.tar", "w") as tar:
        for name, data in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    found = InputListing()
    found.archives.append("first")
    found.add(b"b.tar")
    assert [image.name for image in found.images] == [b"b.tar/x/2.png", b"b.tar/1.png"]
    assert [image.archive for image in found.images] == [1, 1] and found.archives == ["first", f"{tmp_path}/b.tar"]
    stored = (tmp_path / "b.tar").read_bytes()
    for image, expected in zip(found.images, (PNG, PNG + b"more")):
        assert stored[image.offset : image.offset + image.size] == expected
    assert [path for path, _ in found.unreadable] == ["b.tar/y.dat", "b.tar/w.heic"]
    assert found.notices[0] == "skipped in b.tar: 1 hidden file" and len(found.notices) == 2


def test_the_digest_tells_inputs_order_size_and_time(tmp_path):
    def digest(*images, unreadable=("x",), paths=("a",)):
        listing = InputListing()
        listing.images = [ListedImage(*image) for image in images]
        listing.unreadable = [(path, "any reason") for path in unreadable]
        return listing.digest(paths)

    one, two = (b"a", -1, 5, 7), (b"b", 0, 5, 7)
    found = [
        digest(one, two),
        digest(two, one),
        digest(one),
        digest((b"a", -1, 6, 7), two),
        digest((b"a", -1, 5, 8), two),
        digest((b"a", 1, 5, 7), two),
        digest(one, two, unreadable=()),
        digest(one, two, paths=("a", "b")),
    ]
    assert len(set(found)) == len(found) and digest(one, two, paths=(os.path.abspath("a"),)) == found[0]


def test_numbers_are_ordered_by_value_part_by_part():
    names = [b"a10/1", b"a2/10", b"a2/9", b"a", b"a2", b"a02/9", b"b1"]
    assert sorted(names, key=natural_key) == [b"a", b"a2", b"a02/9", b"a2/9", b"a2/10", b"a10/1", b"b1"]


class Capture:
    """A video of three frames, whose pixels tell their number."""

    def __init__(self):
        self.place = -1

    def grab(self):
        self.place += 1
        return self.place < 3

    def get(self, what):
        return 33.6 * self.place if what == 0 else None

    def retrieve(self):
        return True, np.full((2, 5, 3), [self.place, 7, 9], np.uint8)


def test_frames_are_named_by_number_and_time(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(listing_module, "_open", lambda path: opened.append(path) or Capture())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.clip.MP4").write_bytes(b"12345")
    found = add("my.clip.MP4")
    names = [f"my.clip.MP4/my.clip_{frame:06d}_{time}ms".encode() for frame, time in ((0, 0), (1, 34), (2, 67))]
    assert found.images == [ListedImage(name, 0, frame, 5) for frame, name in enumerate(names)]
    assert found.archives == [f"{tmp_path}/my.clip.MP4"] and read_frame_times("x") == [0, 34, 67]
    opened.clear()
    video = VideoFile("x")
    for number, reopened in ((1, 1), (2, 1), (0, 2), (0, 3)):
        assert np.asarray(video.frame(number))[0, 0].tolist() == [9, 7, number] and len(opened) == reopened
    with pytest.raises(UnreadableImage, match="it has no frame 3 any more"):
        video.frame(3)
    monkeypatch.setattr(listing_module, "_open", lambda path: SimpleNamespace(grab=lambda: False))
    with pytest.raises(UserError, match="^OpenCV finds no frames in this video$"):
        read_frame_times("x")
    assert add("my.clip.MP4").unreadable == [("my.clip.MP4", "OpenCV finds no frames in this video")]


def test_links_and_twice_named_members_of_an_archive(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, target in (("1.png", ""), ("2.png", "1.png"), ("3.png", "gone"), ("n", "gone"), ("1.png", "")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = (tarfile.SYMTYPE if target else tarfile.REGTYPE), target
            content = b"" if target else PNG + b"x" * len(tar.getnames())
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    found = add(tmp_path / "a.tar")
    assert [(os.path.basename(image.name), image.size) for image in found.images] == [
        (b"1.png", len(PNG) + 4), (b"2.png", len(PNG) + 4)
    ]  # fmt: skip
    ((path, reason),) = found.unreadable
    assert path == f"{tmp_path}/a.tar/3.png" and reason.startswith("one of the links that lead to no file in it (")
    [notice] = found.notices
    assert "1 links that lead to no file in it" in notice and "1 files that later ones of the same name" in notice


def test_the_digest_changes_with_the_images_in_an_archive(tmp_path):
    for content in (b"one", b"two"):
        with tarfile.open(tmp_path / "a.tar", "w") as tar:
            member = tarfile.TarInfo("1.png")
            member.size = 3
            tar.addfile(member, io.BytesIO(content))
        os.utime(tmp_path / "a.tar", ns=(0, content[0]))
        digest = add(tmp_path / "a.tar").digest([str(tmp_path / "a.tar")])
        assert digest == add(tmp_path / "a.tar").digest([str(tmp_path / "a.tar")])
        if content == b"one":
            first = digest
    assert first != digest


def test_rows_of_data_files_are_listed_and_tables_without_images_are_not(tmp_path, monkeypatch):
    hub_files = pytest.importorskip("support.files.hub_files")
    monkeypatch.setenv("PADDLEVIT_DIST_CACHE", str(tmp_path / "shared"))
    folder = tmp_path / "in"
    columns = {"photo": hub_files.images([3, None, 1]), "text": ["a", "b", "c"]}
    hub_files.write_parquet(folder / "b.parquet", columns)
    hub_files.write_arrow(folder / "c.arrow", columns)
    hub_files.write_parquet(folder / "numbers.parquet", {"x": [1]})
    (folder / "a.png").write_bytes(PNG)
    found = add(folder)
    assert list_names(found, folder) == ["a.png", "b.parquet/0", "b.parquet/2", "c.arrow/0", "c.arrow/2"]
    assert [name for name, _ in found.unreadable] == [f"{folder}/b.parquet/1", f"{folder}/c.arrow/1"]
    for image, number in zip(found.images[1:], (3, 1, 3, 1)):
        with open(found.archives[image.archive], "rb") as archive:
            archive.seek(image.offset)
            assert archive.read(image.size) == hub_files.picture(number)
    assert "no column of images" in add(folder / "numbers.parquet").unreadable[0][1]
