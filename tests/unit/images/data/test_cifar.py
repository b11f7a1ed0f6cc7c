"""CIFAR-10 and CIFAR-100 from archives and folders in the published layouts."""

import gzip
import io
import os
import pickle
import tarfile
from typing import Any

import numpy as np
import pytest
from support.files.cifar_writer import (
    TEN,
    make_batches,
    pickled,
    python2_pickle,
    write_archive,
    write_cifar10,
    write_cifar100,
)

from paddlevit_dist import UserError
from paddlevit_dist.images.data.cifar import Cifar10, Cifar100


def binary(batches: dict[str, dict[str, Any]], coarse: bool = False) -> dict[str, bytes]:
    """Each batch as records of label bytes and pixels; with a coarse label of 0 in front where asked for."""
    files = {}
    for name, batch in batches.items():
        labels = np.array(batch["labels"], np.uint8)[:, None]
        columns = [np.zeros_like(labels)] * coarse + [labels, batch["data"]]
        files[f"{name}.bin"] = np.concatenate(columns, axis=1).tobytes()
    return files


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def expected(batches, names):
    """Images (samples, 32, 32, 3) and labels, put together plane by plane."""
    planes = np.concatenate([batches[name]["data"] for name in names]).reshape(-1, 3, 32, 32)
    labels = [label for name in names for label in batches[name]["labels"]]
    return np.stack([planes[:, 0], planes[:, 1], planes[:, 2]], axis=-1), labels


def assert_holds(dataset, batches, names):
    images, labels = expected(batches, names)
    assert len(dataset) == len(labels) and dataset.labels.tolist() == labels
    for index in range(len(dataset)):
        image, label = dataset.read(index)
        assert image.mode == "RGB" and label == labels[index]
        np.testing.assert_array_equal(np.asarray(image), images[index], strict=True)


def test_the_written_batches_are_what_python_reads():
    batches = make_batches(["train"], 3, 10)
    loaded = pickle.loads(pickled(batches)["train"], encoding="latin1")
    np.testing.assert_array_equal(loaded["data"], batches["train"]["data"], strict=True)
    assert loaded["labels"] == batches["train"]["labels"] and loaded["filenames"][2] == "image_2.png"


@pytest.mark.parametrize(("split", "names"), [("train", TEN[:5]), ("val", TEN[5:])])
def test_cifar10_archive(split, names, folder, cache):
    batches = write_cifar10(folder)
    assert_holds(Cifar10(str(folder), split, cache), batches, names)
    assert_holds(Cifar10(str(folder / "cifar-10-python.tar.gz"), split, cache), batches, names)


@pytest.mark.parametrize(("split", "name"), [("train", "train"), ("val", "test")])
def test_cifar100_archive_has_the_fine_labels(split, name, folder, cache):
    batches = write_cifar100(folder, rows=200)
    dataset = Cifar100(str(folder), split, cache)
    assert_holds(dataset, batches, [name])
    assert dataset.num_classes == len(dataset.class_names) == 100


def test_extracted_folder_itself_and_above(folder, cache):
    batches = write_cifar10(folder)
    with tarfile.open(folder / "cifar-10-python.tar.gz") as archive:
        archive.extractall(folder)
    os.unlink(folder / "cifar-10-python.tar.gz")
    for path in (folder, folder / "cifar-10-batches-py"):
        assert_holds(Cifar10(str(path), "train", cache), batches, TEN[:5])


def test_a_folder_is_converted_again_when_one_of_its_files_changes(folder, cache):
    batches, place = make_batches(TEN, 3, 10), folder / "cifar-10-batches-py"
    place.mkdir()
    for labels in ([1, 2, 3], [9, 8]):
        batches["data_batch_4"] = {**make_batches(["data_batch_4"], len(labels), 10)["data_batch_4"], "labels": labels}
        for name, content in pickled(batches).items():
            with open(place / name, "wb") as file:  # in place: the folder does not change
                file.write(content)
        assert_holds(Cifar10(str(folder), "train", cache), batches, TEN[:5])


def test_a_batch_that_is_far_too_long_is_not_read(folder, cache):
    write_cifar10(folder)
    with tarfile.open(folder / "cifar-10-python.tar.gz") as archive:
        archive.extractall(folder)
    os.unlink(folder / "cifar-10-python.tar.gz")
    Cifar10(str(folder), "train", cache)
    os.truncate(folder / "cifar-10-batches-py" / "data_batch_1", (1 << 28) + 1)  # takes no room on a disk
    with pytest.raises(UserError, match="data_batch_1.* it is far too long"):
        Cifar10(str(folder), "train", cache / "other")


def test_an_archive_that_a_browser_has_unpacked(folder, cache):
    batches, file = write_cifar10(folder), folder / "cifar-10-python.tar.gz"
    file.write_bytes(gzip.decompress(file.read_bytes()))
    assert_holds(Cifar10(str(folder), "train", cache), batches, TEN[:5])


def test_binary_versions(folder, cache):
    batches = make_batches(TEN, 3, 10)
    write_archive(folder / "cifar-10-binary.tar.gz", "cifar-10-batches-bin", binary(batches))
    assert_holds(Cifar10(str(folder), "train", cache), batches, TEN[:5])
    batches = make_batches(["train", "test"], 3, 100)
    write_archive(folder / "cifar-100-binary.tar.gz", "cifar-100-binary", binary(batches, coarse=True))
    assert_holds(Cifar100(str(folder), "val", cache), batches, ["test"])


def test_converted_once_and_again_when_the_archive_changes(folder, cache):
    write_cifar10(folder)
    first = Cifar10(str(folder), "train", cache)
    changed = os.stat(first.file).st_mtime_ns
    assert os.stat(Cifar10(str(folder), "train", cache).file).st_mtime_ns == changed
    batches = write_cifar10(folder, rows=4)
    assert_holds(Cifar10(str(folder), "train", cache), batches, TEN[:5])
    assert len(first) == 15  # its file is still there


def test_a_batch_that_would_execute_something_is_refused(folder, cache, tmp_path):
    files = pickled(make_batches(TEN, 3, 10))
    files["data_batch_2"] = b"\x80\x02cos\nsystem\nU\x05touch\x85R."
    write_archive(folder / "cifar-10-python.tar.gz", "cifar-10-batches-py", files)
    with pytest.raises(
        UserError, match=r"data_batch_2 is not a batch as published: .*'os.system'.*nothing was executed"
    ):
        Cifar10(str(folder), "train", cache)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (python2_pickle({"labels": [1]}), "no array 'data'"),
        (python2_pickle({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}), "no list 'labels' of 2 whole numbers"),
        (python2_pickle({"data": np.zeros((1, 3071), np.uint8), "labels": [1]}), "no array 'data' of bytes in rows"),
        (b"words", "damaged"),
    ],
)
def test_a_batch_of_another_form_is_named(content, reason, folder, cache):
    write_archive(folder / "cifar-10-python.tar.gz", "x", {**pickled(make_batches(TEN, 3, 10)), "test_batch": content})
    with pytest.raises(
        UserError, match=rf"test_batch is not a batch as published: .*{reason}.*get it again from https"
    ):
        Cifar10(str(folder), "val", cache)


def test_a_label_that_is_no_class(folder, cache):
    batches = make_batches(TEN, 3, 10)
    batches["data_batch_2"]["labels"][1] = 10
    write_archive(folder / "cifar-10-python.tar.gz", "x", pickled(batches))
    with pytest.raises(UserError, match=r"sample 4 of .* has label 10, but cifar10 has 10 classes"):
        Cifar10(str(folder), "train", cache)


def test_truncated_archive_is_named(folder, cache):
    write_cifar10(folder, rows=20)
    archive = folder / "cifar-10-python.tar.gz"
    packed = archive.read_bytes()
    plain = gzip.decompress(packed)  # a browser has unpacked what it got
    for content, reason in ((packed, "Compressed file ended before .*"), (plain, "unexpected end of data")):
        archive.write_bytes(content[: len(content) // 2])
        with pytest.raises(UserError, match=rf"^{archive} is damaged or truncated: {reason}; get it again from https"):
            Cifar10(str(folder), "train", cache)
    archive.write_bytes(b"no archive at all")
    with pytest.raises(UserError, match=rf"{archive} is damaged or truncated"):
        Cifar10(str(folder), "train", cache)


def test_an_archive_on_a_failing_disk_is_named(folder, cache):
    (folder / "cifar-10-python.tar.gz").symlink_to("/proc/self/mem")  # a file whose first byte cannot be read
    with pytest.raises(UserError, match=rf"^{folder}/cifar-10-python.tar.gz cannot be read: Input/output error$"):
        Cifar10(str(folder), "train", cache)


def test_what_is_missing_is_named(folder, cache):
    files = pickled(make_batches(TEN, 3, 10))
    del files["data_batch_3"]
    write_archive(folder / "cifar-10-python.tar.gz", "x", files)
    with pytest.raises(UserError, match=r"cifar-10-python.tar.gz has no data_batch_3"):
        Cifar10(str(folder), "train", cache)
    with pytest.raises(UserError, match=r"has no cifar-100-python.tar.gz \(or its folder cifar-100-python\)"):
        Cifar100(str(folder), "train", cache)
    with pytest.raises(UserError, match="dataset cifar10 needs -data_path"):
        Cifar10(None, "train", cache)
    with pytest.raises(UserError, match="data path .*/nowhere does not exist; dataset cifar10 expects"):
        Cifar10(str(folder / "nowhere"), "train", cache)


def test_a_folder_or_binary_records_with_bytes_missing_are_named(folder, cache):
    batches = make_batches(TEN, 3, 10)
    batches["data_batch_2"]["labels"][1] = 255
    place = folder / "cifar-10-batches-py"
    place.mkdir()
    for name, content in pickled(batches).items():
        (place / name).write_bytes(content)
    with pytest.raises(UserError, match="has label 255, but cifar10 has 10 classes"):
        Cifar10(str(folder), "train", cache)
    os.unlink(place / "data_batch_4")
    with pytest.raises(UserError, match=r"cifar-10-batches-py has no data_batch_4; get the whole archive again"):
        Cifar10(str(folder), "train", cache)
    (place / "data_batch_4").write_bytes(pickled(batches)["data_batch_4"])
    for label in (b"J\x00\x01\x00\x00", b"J\xff\xff\xff\xff"):  # 256 and -1
        batch = python2_pickle({"data": np.zeros((1, 3072), np.uint8), "labels": [7]}).replace(b"K\x07", label)
        (place / "data_batch_2").write_bytes(batch)
        with pytest.raises(UserError, match="data_batch_2 is not .*'labels' has a number that is not a class"):
            Cifar10(str(folder), "train", cache)


@pytest.mark.parametrize("extra", [1, -1, -3 * 3073])
def test_binary_records_have_3073_bytes(folder, cache, extra):
    files = binary(make_batches(TEN, 3, 10))
    name = next(name for name in files if "batch_2" in name)
    files[name] = files[name] + b"x" if extra > 0 else files[name][:extra]
    write_archive(folder / "cifar-10-binary.tar.gz", "cifar-10-batches-bin", files)
    with pytest.raises(UserError, match=rf"{name} is not .*its {3 * 3073 + extra} bytes are not records of 3073"):
        Cifar10(str(folder), "train", cache)


def add(archive, name, content=None):
    member = tarfile.TarInfo(f"x/{name}")
    member.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
    member.size = len(content or b"")
    archive.addfile(member, io.BytesIO(content or b""))


def test_folders_and_repeated_names_in_an_archive_are_skipped(folder, cache):
    batches, others = make_batches(TEN, 3, 10), make_batches(["data_batch_2"], 5, 10)
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz", compresslevel=1) as archive:
        add(archive, "data_batch_1")
        for name in ("data_batch_2", "data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"):
            add(archive, name, pickled(batches)[name])
            if name == "data_batch_2":
                add(archive, name, pickled(others)[name])
    assert_holds(Cifar10(str(folder), "train", cache), batches, TEN[:5])


@pytest.mark.parametrize("form", ["plain", "gz"])
def test_an_archive_that_announces_more_than_the_published_one_holds_is_refused(form, folder):
    file, member = folder / "cifar-10-python.tar.gz", tarfile.TarInfo("large")
    for size, is_too_large in (((1 << 28) - 511, True), ((1 << 28) - 512, False)):  # after a header of 512 bytes
        member.size = size
        content = member.tobuf() + bytes(1024)
        file.write_bytes(content if form == "plain" else gzip.compress(content, 1))
        with pytest.raises(UserError, match="is damaged or truncated: ") as told:
            Cifar10(str(file), "train", folder)
        assert ("it unpacks to more than 268,435,456 bytes, which" in str(told.value)) == is_too_large
