"""Tar files at an address: the same images as in a folder, by listing and by index, and changed files."""

import io
import os
import pickle
import shutil
import sys
import tarfile
import time
from types import ModuleType, SimpleNamespace

import pytest
from support.files.shard_writer import make_image, write_shards
from support.hosts.range_server import RangeServer
from support.hosts.s3_folder import S3Folder
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.data.tar import TarImages
from paddlevit_dist.images.prepare.published_index import publish_index

pytest.importorskip("aiohttp")
pytest.importorskip("fsspec")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, "train", range(10))
    write_shards(folder, "val", range(100, 103))
    (folder / "classes.txt").write_text("cat\ndog\nelk\n")
    return folder


@pytest.fixture
def folder(shards, tmp_path):
    return shutil.copytree(shards, tmp_path / "served")


@pytest.fixture
def server(folder):
    with RangeServer(folder) as server:
        yield server


def assert_same(dataset, expected):
    assert len(dataset) == len(expected) and dataset.class_names == expected.class_names
    assert dataset.labels.tolist() == expected.labels.tolist() and dataset.num_classes == expected.num_classes
    for index in range(len(expected)):
        assert dataset.encoded(index) == expected.encoded(index)
        assert dataset.identity(index) == expected.identity(index)
        assert dataset.part(index, 3, 20).tobytes() == expected.part(index, 3, 20).tobytes()
    assert dataset.identities().tolist() == expected.identities().tolist()


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("is_published", [False, True])
def test_images_at_an_address_are_those_of_the_folder(split, is_published, folder, server, cache):
    if is_published:
        assert list(publish_index(folder)) == [("train", 10, 3), ("val", 3, 1)]
        server.has_listings = False
    expected = TarImages(str(folder), split, cache)
    dataset = TarImages(server.address(), split, cache)
    assert_same(dataset, expected)
    assert dataset.describe(0) == server.address(f"{split}-00000.tar/0{'000' if split == 'train' else '100'}.png")
    asked = sum(server.requests.values())
    copy = pickle.loads(pickle.dumps(dataset))
    assert len(pickle.dumps(dataset)) < 1500
    assert_same(copy, expected)
    assert sum(server.requests.values()) == asked  # all from the cache
    dataset.limit_cache(0.5)
    tars, address = list(folder.glob("*.tar" if split == "val" and not is_published else f"{split}-*.tar")), copy.root
    size, how = sum(file.stat().st_size for file in tars) / 2**30, "with" if is_published else "without"
    cached = next(cache.rglob("images"))
    assert dataset.notices[-1] == (
        f"note: {len(tars)} tar files of {size:,.2f} GiB are read from {address} ({how} a published index), image "
        f"by image into a cache of at most 0.5 GiB in {cached}"
    )


@pytest.mark.parametrize("is_published", [False, True])
def test_sizes_and_tags_of_s3_are_those_of_its_list(is_published, folder, cache, monkeypatch):
    system = S3Folder(folder)
    monkeypatch.setitem(sys.modules, "s3fs", ModuleType("s3fs"))
    monkeypatch.setitem(sys.modules, "fsspec", SimpleNamespace(filesystem=lambda kind: {"s3": system}[kind]))
    asked = list(publish_index(folder)) if is_published else []
    dataset = TarImages("s3://bucket/", "train", cache)
    assert_same(dataset, TarImages(str(folder), "train", cache))
    assert system.calls["examine"] == bool(asked)  # of the index alone


def test_a_batch_is_fetched_at_once_and_each_image_once(folder, server, cache):
    dataset = TarImages(server.address(), "train", cache)
    server.requests.clear()
    dataset.prefetch([1, 5, 9, 1])
    assert sum(server.requests.values()) == 3
    expected = TarImages(str(folder), "train", cache)
    assert [dataset.encoded(index) for index in (1, 5, 9)] == [expected.encoded(index) for index in (1, 5, 9)]
    dataset.prefetch([1, 2])
    assert sum(server.requests.values()) == 4


def test_a_changed_file_is_refused_and_its_index_built_anew(folder, server, cache):
    dataset = TarImages(server.address(), "train", cache)
    dataset.encoded(0)
    before = (folder / "train-00000.tar").stat().st_size
    write_shards(folder, "train", range(50, 54))  # in the place of the first tar file
    assert (folder / "train-00000.tar").stat().st_size == before
    with pytest.raises(UserError, match="train-00000.tar has changed since it was opened: .* bytes with tag"):
        dataset.encoded(1)
    again = TarImages(server.address(), "train", cache)
    assert_same(again, TarImages(str(folder), "train", cache))
    other = TarImages(server.address(), "train", cache / "without images")
    (folder / "train-00001.tar").unlink()
    with pytest.raises(UserError, match="train-00001.tar cannot be read: it does not exist: the server answers 404"):
        other.prefetch([5])


def test_an_index_of_exchanged_tar_files_is_refused(folder, server, cache):
    (folder / "train-00002.tar").unlink()
    write_shards(folder, "train", range(8))
    list(publish_index(folder))
    first, second = (folder / f"train-0000{number}.tar" for number in (0, 1))
    contents = first.read_bytes(), second.read_bytes()
    assert len(contents[0]) == len(contents[1])
    second.write_bytes(contents[0])
    first.write_bytes(contents[1])
    with pytest.raises(UserError, match="train-00000.tar/0000.png is not at byte 512 of its tar file, as tar-index"):
        TarImages(server.address(), "train", cache)


def test_an_index_of_other_tar_files_is_refused(folder, server, cache):
    list(publish_index(folder))
    TarImages(server.address(), "train", cache)
    write_shards(folder, "train", range(3))
    with pytest.raises(UserError, match="train-00000.tar has .* bytes, in tar-index.json .*: write the index again"):
        TarImages(server.address(), "train", cache)
    list(publish_index(folder))
    TarImages(server.address(), "train", cache)
    with (folder / "train-00000.tar").open("r+b") as tar:  # of equal size, also without new names
        tar.seek(1000)
        tar.write(b"xyz")
    with pytest.raises(UserError, match="train-00000.tar has changed since its index was first read: .*prepare index"):
        TarImages(server.address(), "train", cache)
    TarImages(server.address(), "train", cache / "of another machine")
    with (folder / "train-00000.tar").open("r+b") as tar:  # what is there is no header at all
        tar.write(bytes(range(256)) * 2)
    with pytest.raises(UserError, match="train-00000.tar/0000.png is not at byte 512 of its tar file, as tar-index"):
        TarImages(server.address(), "train", cache / "of a fourth machine")
    write_shards(folder, "train", range(50, 53))
    with pytest.raises(UserError, match="train-00000.tar/0000.png is not at byte .* as tar-index.json says: write the"):
        TarImages(server.address(), "train", cache / "of a third machine")
    list(publish_index(folder))
    assert len(TarImages(server.address(), "train", cache)) == 9  # the other tar files have the images 4 to 9
    (locations,) = folder.glob("tar-train-*.npy")
    content = bytearray(locations.read_bytes())
    content[-9] ^= 1
    locations.write_bytes(content)
    remedy = "does not match its checksum: write it again with 'prepare index', and upload it"
    with pytest.raises(UserError, match=rf"^{cache}/.*/{locations.name} {remedy}$"):
        TarImages(server.address(), "train", cache / "of a fifth machine")
    locations.unlink()
    with pytest.raises(UserError, match=rf"^{server.address(locations.name)} does not exist$"):
        TarImages(server.address(), "train", cache / "of a fifth machine")
    (folder / "tar-index.json").write_text("{}")
    with pytest.raises(UserError, match="tar-index.json cannot be read: .*prepare index"):
        TarImages(server.address(), "train", cache)


@pytest.mark.parametrize(
    "name, problem",
    [
        ("classes.txt", "does not exist"),
        ("tar-index.json", "cannot be read: it does not exist: the server answers 404 Not Found"),
    ],
)
def test_files_that_are_listed_and_not_there_are_named(name, problem, folder, server, cache):
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("nowhere")
    with pytest.raises(UserError, match=rf"^{server.address(name)} {problem}$"):
        TarImages(server.address(), "train", cache)


def test_names_that_a_member_s_header_cannot_hold_are_those_of_the_index(folder, server, cache):
    """A header of the POSIX format has "?" for other than ASCII; the name is in another header before it."""
    with tarfile.open(folder / "val-00000.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for number, name in enumerate(["\u00e9l\u00e9phant.png", "ant.png", "\u718a.png"]):
            for suffix, content in ((".png", make_image(number)), (".cls", b"%d" % number)):
                member = tarfile.TarInfo(name.replace(".png", suffix))
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    assert b"?l?phant.png\0" in (folder / "val-00000.tar").read_bytes()
    list(publish_index(folder))
    dataset = TarImages(server.address(), "val", cache)
    assert [dataset.encoded(index) for index in range(3)] == [make_image(number) for number in range(3)]
    assert dataset.identity(0) == "val-00000.tar/\u00e9l\u00e9phant.png"


def test_a_tar_file_that_changes_twice_in_a_second_is_indexed_again(folder, server, cache):
    server.marks = server.part_marks = ("Last-Modified",)
    moment = time.time() + 3600
    file = folder / "val-00000.tar"
    for start in (100, 200):
        write_shards(folder, "val", range(start, start + 3))
        os.utime(file, (moment, moment))
        assert_same(TarImages(server.address(), "val", cache), TarImages(str(folder), "val", cache))


def test_tar_files_that_are_not_older_than_their_index_are_compared_with_it(folder, server, cache):
    list(publish_index(folder))
    server.marks = ("ETag", "Last-Modified")
    for file in folder.iterdir():
        os.utime(file, (10**9, 10**9 + file.name.endswith(".json")))
    assert "older" not in " ".join(TarImages(server.address(), "train", cache).notices)
    os.utime(folder / "train-00001.tar", (10**9 + 1, 10**9 + 1))
    [note] = [line for line in TarImages(server.address(), "train", cache / "other").notices if "not older" in line]
    assert "1 tar files" in note and note.endswith("train-00001.tar: their labels were read again, and are the same")
    server.marks = ("ETag",)
    assert "older" not in " ".join(TarImages(server.address(), "train", cache / "third").notices)


def test_labels_corrected_in_a_tar_file_of_the_same_size_are_not_read_with_the_index_of_before(folder, server, cache):
    list(publish_index(folder))
    server.marks = ("ETag", "Last-Modified")
    for file in folder.iterdir():
        os.utime(file, (10**9, 10**9))
    size = (folder / "train-00001.tar").stat().st_size
    write_shards(folder, "train", range(10), classes=2)
    assert (folder / "train-00001.tar").stat().st_size == size
    message = refusal_of(TarImages, server.address(), "train", cache)
    assert "has another place or label than in tar-index.json: write the index again with 'prepare index'" in message
    list(publish_index(folder))
    assert_same(TarImages(server.address(), "train", cache), TarImages(str(folder), "train", cache))


def test_tar_files_without_tag_and_date_are_told_with_a_mend_that_works(folder, server, cache):
    assert "neither" not in " ".join(TarImages(server.address(), "train", cache).notices)
    server.marks = server.part_marks = ()
    for _ in range(2):  # also from the index
        first = TarImages(server.address(), "train", cache)
        first.encoded(0)
        [note] = [line for line in first.notices if "neither ETag nor date of train-00000.tar" in line]
    (folder / "train-00000.tar").rename(folder / "other")
    (folder / "train-00001.tar").rename(folder / "train-00000.tar")
    (folder / "other").rename(folder / "train-00001.tar")
    assert f"another DATA.CACHE_FOLDER than {cache}, which" in note
    assert_same(TarImages(server.address(), "train", cache / "new"), TarImages(str(folder), "train", cache / "new"))


def test_a_copy_at_another_address_has_an_index_of_its_own(folder, server, cache, tmp_path):
    list(publish_index(folder))
    server.marks = server.part_marks = ("Last-Modified",)
    expected = TarImages(server.address(), "train", cache)
    shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copy)
    os.utime(tmp_path / "copy" / "train-00000.tar", (10**9, 10**9))
    with RangeServer(tmp_path / "copy") as other:
        other.marks = other.part_marks = ("Last-Modified",)
        assert_same(TarImages(other.address(), "train", cache), expected)
