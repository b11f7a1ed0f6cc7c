"""Tar files at an address: cut and slow answers, awkward names, links, and what is refused."""

import io
import shutil
import tarfile

import pytest
from support.files.shard_writer import make_image, write_shards
from support.hosts.range_server import RangeServer
from support.trainings.runs import refused

from paddlevit_dist import StorageOutage, UserError
from paddlevit_dist.core.data import remote_folder
from paddlevit_dist.images.data.remote_tars import RemoteTars
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


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch):
    plain = remote_folder.RemoteFolder.__init__
    monkeypatch.setattr(
        remote_folder.RemoteFolder,
        "__init__",
        lambda self, address, timeout=5.0, pause=0.001: plain(self, address, timeout, pause),
    )


def assert_same(dataset, expected):
    assert len(dataset) == len(expected) and dataset.class_names == expected.class_names
    assert dataset.labels.tolist() == expected.labels.tolist() and dataset.num_classes == expected.num_classes
    for index in range(len(expected)):
        assert dataset.encoded(index) == expected.encoded(index)
        assert dataset.identity(index) == expected.identity(index)
        assert dataset.part(index, 3, 20).tobytes() == expected.part(index, 3, 20).tobytes()
    assert dataset.identities().tolist() == expected.identities().tolist()


@pytest.mark.parametrize("fault", [{"cuts": 3}, {"errors": 3}])
def test_failed_requests_are_repeated(fault, folder, server, cache):
    server.refusals = 2  # of the listing
    dataset = TarImages(server.address(), "train", cache)
    vars(server).update(fault)
    assert dataset.encoded(0) == TarImages(str(folder), "train", cache).encoded(0)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"errors": 99}, r"train-00000.tar cannot be read in \d+ attempts within .* s: the server answers 503"),
        ({"cuts": 99}, r"train-00000.tar cannot be read in \d+ attempts within .* s: "),
        ({"pause_seconds": 8.0}, r"train-00000.tar cannot be read in \d+ attempts within .* s: no answer in time"),
        ({"has_ranges": False}, r"train-00000.tar: the server sends whole files only \(no byte ranges\)"),
    ],
)
def test_a_server_that_does_not_answer_is_one_line(fault, reason, server, cache, monkeypatch):
    dataset = TarImages(server.address(), "train", cache)
    dataset._tars._remote.timeout_seconds = 0.1
    vars(server).update(fault)
    with pytest.raises((UserError, StorageOutage), match=reason) as caught:
        dataset.encoded(0)
    assert "\n" not in str(caught.value) and not list(cache.rglob("images/*/*"))


def test_addresses_without_data_are_one_line(server, cache):
    server.has_listings = False
    with pytest.raises(UserError, match="/ cannot be listed.*and has no tar-index.json"):
        TarImages(server.address(), "train", cache)
    with pytest.raises(UserError, match=r"gs://bucket: expected a folder of this machine, or s3://, http:// or"):
        RemoteTars("gs://bucket", cache)
    server.has_listings = True
    with pytest.raises(UserError, match="has no tar files of the test images"):
        TarImages(server.address(), "test", cache)


AWKWARD = ["Zebra", "a#b", "a+b", "a?b", "100%", "50%25 off", "red fox", "dog's", "k&r", "é", "猫", "http tar"]


@pytest.mark.parametrize("is_published", [False, True])
@pytest.mark.parametrize("packing", ["a tar file each", "folders in one", "tar files in one"])
def test_awkward_names_of_classes_are_labeled_as_in_the_folder(packing, is_published, tmp_path, cache):
    folder = tmp_path / "served"
    for split, first in (("train", 0), ("val", 100)):
        by_name = {
            name: [(f"{name} {n}.png", make_image(first + number + n)) for n in (0, 20)]
            for number, name in enumerate(AWKWARD)
        }
        if packing == "a tar file each":
            for name, files in by_name.items():
                pack(folder / split / f"{name}.tar", files)
        elif packing == "folders in one":
            pack(
                folder / f"{split}#1 &%.tar",
                [(f"{name}/{file}", each) for name, files in by_name.items() for file, each in files],
            )
        else:
            inner = [(f"{name}.tar", pack(tmp_path / "inner.tar", files)) for name, files in by_name.items()]
            pack(folder / f"{split} 50%25.tar", inner)
    if is_published:
        list(publish_index(folder))
    with RangeServer(folder) as server:
        for split in ("train", "val"):
            expected = TarImages(str(folder), split, cache)
            assert expected.class_names == sorted(AWKWARD) and len(expected) == 2 * len(AWKWARD)
            assert_same(TarImages(server.address(), split, cache), expected)


def pack(path, files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path.read_bytes()


@pytest.mark.parametrize("is_published", [False, True])
def test_links_and_joined_tar_files_are_read_as_in_the_folder(is_published, tmp_path, cache):
    folder = tmp_path / "served"
    for shard in range(2):
        files = [(f"a/{shard}{n}.png", make_image(10 * shard + n)) for n in range(3)]
        blobs = [(".store/x.png", make_image(30 + shard)), ("blob", make_image(40 + shard))]
        content = pack(folder / f"train-{shard}.tar", [*blobs, *files] if shard else [*files, *blobs])
        with tarfile.open(tmp_path / "links.tar", "w") as tar:
            targets = [f"../a/{shard}0.png"] * 40 + ["../blob", "../.store/x.png", f"../a/{shard}2.png"]
            for number, target in enumerate(targets):
                member = tarfile.TarInfo(f"b/{number}.png")
                member.type, member.linkname = tarfile.SYMTYPE, target
                tar.addfile(member)
        (folder / f"train-{shard}.tar").write_bytes(content + (tmp_path / "links.tar").read_bytes())
    if is_published:
        list(publish_index(folder))
    expected = TarImages(str(folder), "train", cache)
    assert len(expected) == 2 * (3 + 43)
    with RangeServer(folder) as server:
        dataset = TarImages(server.address(), "train", cache)
        assert_same(dataset, expected)
        assert sum(server.requests.values()) < 60
        assert dataset.skipped_files.num_links == 86


def test_what_is_not_read_from_an_address_is_one_line(tmp_path):
    message = refused("-cfg=detr_shapes", "-dataset=coco", "-data_path=s3://bucket/coco", f"-output={tmp_path / 'out'}")
    assert "dataset coco reads files of this machine: add -dataset=tar for tar files of images with classes" in message
