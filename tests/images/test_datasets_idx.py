"""MNIST and Fashion-MNIST from IDX files."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from paddlevit_dist.errors import UserError
from paddlevit_dist.images.data.idx import FashionMnist, Mnist

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")


def idx_bytes(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def samples():
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (12, 28, 28), dtype=np.uint8)
    return images, (np.arange(12) % 10).astype(np.uint8)


@pytest.fixture
def cache(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


@pytest.fixture
def folder(tmp_path, samples):
    """Plain training files under their published names."""
    path = tmp_path / "mnist"
    path.mkdir()
    (path / "train-images-idx3-ubyte").write_bytes(idx_bytes(samples[0]))
    (path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(samples[1]))
    return path


def compress(folder):
    for file in list(folder.iterdir()):
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()


def assert_holds(dataset, samples):
    assert len(dataset) == len(samples[0])
    for index, (pixels, label) in enumerate(zip(*samples)):
        picture, read_label = dataset.read(index)
        assert picture.mode == "L"
        np.testing.assert_array_equal(np.asarray(picture), pixels)
        assert read_label == label and type(read_label) is int


def test_plain_files_are_read_where_they_are(folder, cache, samples):
    assert_holds(Mnist(str(folder), "train", cache), samples)
    assert list(cache.iterdir()) == []


def test_plain_files_are_mapped_and_not_copied(folder, cache):
    dataset = Mnist(str(folder), "train", cache)
    dataset.read(5)
    with open(folder / "train-images-idx3-ubyte", "r+b") as file:
        file.seek(16 + 5 * 28 * 28)
        file.write(bytes([1, 2, 3]))
    assert np.asarray(dataset.read(5)[0])[0, :3].tolist() == [1, 2, 3]


def test_names_with_a_dot_are_found(folder, cache, samples):
    for file in list(folder.iterdir()):
        file.rename(folder / file.name.replace("-idx", ".idx"))
    assert_holds(Mnist(str(folder), "train", cache), samples)


def test_val_is_the_published_test_set(folder, cache, samples):
    for file in list(folder.iterdir()):
        file.rename(folder / file.name.replace("train", "t10k"))
    assert_holds(Mnist(str(folder), "val", cache), samples)


@pytest.mark.parametrize("dotted", [False, True])
def test_compressed_files_are_decompressed_once(folder, cache, samples, dotted):
    compress(folder)
    if dotted:
        for file in list(folder.iterdir()):
            file.rename(folder / file.name.replace("-idx", ".idx"))
    assert_holds(Mnist(str(folder), "train", cache), samples)
    first = {file.name: file.stat().st_ino for file in cache.iterdir()}
    assert len(first) == 2

    assert_holds(Mnist(str(folder), "train", cache), samples)
    assert {file.name: file.stat().st_ino for file in cache.iterdir()} == first


def test_changed_compressed_file_is_decompressed_again(folder, cache, samples):
    compress(folder)
    Mnist(str(folder), "train", cache)
    inverted = 255 - samples[0]
    source = folder / "train-images-idx3-ubyte.gz"
    source.write_bytes(gzip.compress(idx_bytes(inverted)))
    os.utime(source, (1, 1))
    assert_holds(Mnist(str(folder), "train", cache), (inverted, samples[1]))


def test_damaged_copy_in_the_cache_is_replaced(folder, cache, samples):
    compress(folder)
    Mnist(str(folder), "train", cache)
    for file in cache.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    assert_holds(Mnist(str(folder), "train", cache), samples)


def test_truncated_file_tells_bytes_expected_and_found(folder, cache):
    file = folder / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(UserError, match=rf"{file} is truncated: expected {16 + 12 * 784} bytes, found 5000"):
        Mnist(str(folder), "train", cache)


def test_file_without_a_whole_header_is_truncated(folder, cache):
    file = folder / "train-labels-idx1-ubyte"
    file.write_bytes(b"\0\0\x08")
    with pytest.raises(UserError, match=rf"{file} is truncated: expected at least 8 bytes, found 3"):
        Mnist(str(folder), "train", cache)


def test_file_with_surplus_bytes_is_refused(folder, cache):
    file = folder / "train-labels-idx1-ubyte"
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(UserError, match=rf"{file} is too long: its header announces 20 bytes, found 21"):
        Mnist(str(folder), "train", cache)


def test_truncated_compressed_file_tells_bytes_expected_and_found(folder, cache):
    compress(folder)
    file = folder / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:6000])
    with pytest.raises(
        UserError, match=rf"{file} .*is truncated: expected {16 + 12 * 784} bytes, found (\d+)"
    ) as error:
        Mnist(str(folder), "train", cache)
    found = int(str(error.value).split("found ")[1].split(";")[0])
    assert 5000 < found < 16 + 12 * 784
    assert not [file for file in cache.iterdir() if "images" in file.name]


def test_compressed_file_of_truncated_content_is_refused_each_time(folder, cache):
    file = folder / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:5000])
    compress(folder)
    for _ in range(2):
        with pytest.raises(UserError, match=rf"{file}.gz is truncated: expected {16 + 12 * 784} bytes, found 5000"):
            Mnist(str(folder), "train", cache)


@pytest.mark.parametrize("position", [0, 20, -6])
def test_damaged_compressed_file_is_named(folder, cache, position):
    compress(folder)
    file = folder / "train-labels-idx1-ubyte.gz"
    content = bytearray(file.read_bytes())
    content[position] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(UserError, match=rf"{file}.* is (damaged|truncated)"):
        Mnist(str(folder), "train", cache)


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"])
def test_file_that_cannot_be_opened_is_named(folder, cache, name):
    (folder / "train-images-idx3-ubyte").unlink()
    (folder / name).mkdir()
    with pytest.raises(UserError, match=rf"{folder / name} cannot be read: Is a directory"):
        Mnist(str(folder), "train", cache)


def test_labels_in_place_of_images_are_refused(folder, cache):
    (folder / "train-images-idx3-ubyte").write_bytes((folder / "train-labels-idx1-ubyte").read_bytes())
    with pytest.raises(UserError, match="begins with 00000801, expected 00000803"):
        Mnist(str(folder), "train", cache)


def test_counts_of_images_and_labels_must_agree(folder, cache):
    (folder / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(11, np.uint8)))
    with pytest.raises(UserError, match=r"has 12 images, but .*train-labels-idx1-ubyte has 11 labels"):
        Mnist(str(folder), "train", cache)


def test_file_of_no_samples_is_refused(folder, cache):
    (folder / "train-images-idx3-ubyte").write_bytes(idx_bytes(np.zeros((0, 28, 28), np.uint8)))
    (folder / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(0, np.uint8)))
    with pytest.raises(UserError, match="holds no samples"):
        Mnist(str(folder), "train", cache)


def test_label_that_is_no_class_is_named_with_its_position(folder, cache):
    labels = np.zeros(12, np.uint8)
    labels[[7, 9]] = 10, 11
    (folder / "train-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    with pytest.raises(UserError, match=r"sample 7 of .*train-labels-idx1-ubyte has label 10.*from 0 to 9"):
        Mnist(str(folder), "train", cache)


def test_missing_file_names_folder_files_and_source(folder, cache):
    with pytest.raises(UserError) as error:
        Mnist(str(folder), "val", cache)
    for part in (str(folder), "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", ".gz", "https://"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("dataset", [Mnist, FashionMnist])
def test_data_path_must_exist(dataset, cache, tmp_path):
    with pytest.raises(UserError, match=rf"{tmp_path}/nowhere does not exist.*train-images-idx3-ubyte"):
        dataset(str(tmp_path / "nowhere"), "train", cache)


def test_mnist_without_data_path_asks_for_one(cache):
    with pytest.raises(UserError, match=r"mnist needs -data_path=.*https://"):
        Mnist(None, "train", cache)


def test_fashion_mnist_without_data_path_takes_the_default_folder(folder, cache, samples, monkeypatch):
    monkeypatch.setattr(FashionMnist, "default_folder", str(folder))
    assert_holds(FashionMnist(None, "train", cache), samples)
    monkeypatch.setattr(FashionMnist, "default_folder", str(folder / "absent"))
    with pytest.raises(UserError, match=r"fashion_mnist needs -data_path=.*dataset-fashion-mnist"):
        FashionMnist(None, "train", cache)


def test_describe_names_position_and_file(folder, cache):
    assert Mnist(str(folder), "train", cache).describe(7) == f"sample 7 of {folder / 'train-images-idx3-ubyte'}"


@pytest.mark.skipif(not DEBIAN_FOLDER.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
@pytest.mark.parametrize("split, prefix, count", [("train", "train", 60000), ("val", "t10k", 10000)])
def test_published_fashion_mnist_is_read_whole(split, prefix, count, cache):
    dataset = FashionMnist(None, split, cache)
    published = gzip.decompress((DEBIAN_FOLDER / f"{prefix}-images-idx3-ubyte.gz").read_bytes())[16:]
    assert np.bincount(dataset.labels).tolist() == [count // 10] * 10
    for index in (0, 1, count // 2, count - 1):
        assert dataset.read(index)[0].tobytes() == published[index * 784 : (index + 1) * 784]
