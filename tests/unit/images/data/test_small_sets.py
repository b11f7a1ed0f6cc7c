"""MNIST and Fashion-MNIST from IDX files."""

import gzip
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.data.small_sets import FashionMnist, Mnist

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
WHOLE = 16 + 12 * 28 * 28


def idx_bytes(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def samples():
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (12, 28, 28), dtype=np.uint8)
    return images, (np.arange(12) % 10).astype(np.uint8)


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
    for index, (pixels, label) in enumerate(zip(*samples, strict=True)):
        image, read_label = dataset.read(index)
        assert image.mode == "L"
        np.testing.assert_array_equal(np.asarray(image), pixels, strict=True)
        assert read_label == label and type(read_label) is int


def assert_refused(folder, cache, message):
    with pytest.raises(UserError, match=message) as error:
        Mnist(str(folder), "train", cache)
    assert "\n" not in str(error.value) and not list(cache.iterdir())


@pytest.mark.parametrize("split, prefix", [("train", "train"), ("val", "t10k")])
@pytest.mark.parametrize("spelling", ["-idx", ".idx"])
@pytest.mark.parametrize("packed", [False, True])
def test_files_of_every_published_name_are_converted_once(split, prefix, spelling, packed, folder, cache, samples):
    for file in list(folder.iterdir()):
        file.rename(folder / file.name.replace("-idx", spelling).replace("train", prefix))
    if packed:
        compress(folder)
    assert_holds(Mnist(str(folder), split, cache), samples)
    (file,) = cache.iterdir()
    inode = file.stat().st_ino
    dataset = Mnist(str(folder), split, cache)
    assert_holds(dataset, samples)
    assert [made.stat().st_ino for made in cache.iterdir()] == [inode]
    assert re.fullmatch(rf"sample 7 of {folder}/{prefix}-images.*ubyte(.gz)?", dataset.describe(7))


def test_changed_file_is_converted_again(folder, cache, samples):
    compress(folder)
    Mnist(str(folder), "train", cache)
    inverted = 255 - samples[0]
    source = folder / "train-images-idx3-ubyte.gz"
    source.write_bytes(gzip.compress(idx_bytes(inverted)))
    os.utime(source, (1, 1))
    assert_holds(Mnist(str(folder), "train", cache), (inverted, samples[1]))


@pytest.mark.parametrize(
    "part, change, message",
    [
        ("images-idx3", lambda content: content[:5000], f"truncated: expected {WHOLE} bytes, found 5000"),
        ("labels-idx1", lambda content: b"\0\0\x08", "truncated: expected at least 8 bytes, found 3"),
        ("labels-idx1", lambda content: content + b"\0", "too long: its header announces 20 bytes, found at least 21"),
        ("images-idx3", lambda content: content[:3] + b"\1" + content[4:], "begins with 00000801, expected 00000803"),
        ("labels-idx1", lambda content: idx_bytes(np.zeros(11, np.uint8)), "has 12 images, but .* has 11 labels"),
        ("images-idx3", lambda content: idx_bytes(np.zeros((12, 0, 28), np.uint8)), "contains no samples"),
        (
            "labels-idx1",
            lambda content: content[:-3] + b"\x0a\0\x0b",
            "sample 9 of .* has label 10.* labels are 0 to 9",
        ),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_wrong_in_a_file_is_told(part, change, message, packed, folder, cache):
    file = folder / f"train-{part}-ubyte"
    file.write_bytes(change(file.read_bytes()))
    if packed:
        compress(folder)
    for _ in range(2):
        assert_refused(folder, cache, rf"{file}(\.gz)? .*{message}|{message}")


def test_a_packed_file_may_be_of_images_that_compress_well(folder, cache):
    blank = np.zeros((200, 28, 28), np.uint8), np.zeros(200, np.uint8)
    for name, values in zip(("images-idx3", "labels-idx1"), blank):
        (folder / f"train-{name}-ubyte").write_bytes(idx_bytes(values))
    compress(folder)
    file = folder / "train-images-idx3-ubyte.gz"
    assert blank[0].size > 200 * file.stat().st_size  # twice as well as others may
    assert_holds(Mnist(str(folder), "train", cache), blank)


def test_a_plain_file_that_announces_much_is_truncated(folder, cache):
    file = folder / "train-images-idx3-ubyte"
    file.write_bytes(b"\0\0\x08\x03" + 3 * b"\0\0\x10\0")
    assert_refused(folder, cache, f"{file} is truncated: expected {16 + (1 << 36)} bytes, found 16")


def test_truncated_compressed_file_tells_bytes_expected_and_found(folder, cache):
    compress(folder)
    file = folder / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:6000])
    with pytest.raises(UserError, match=rf"{file} is truncated: expected {WHOLE} bytes, found \d+") as error:
        Mnist(str(folder), "train", cache)
    assert 5000 < int(str(error.value).split("found ")[1].split(";")[0]) < WHOLE


@pytest.mark.parametrize("position", [0, 20, -6])
def test_damaged_compressed_file_is_named(folder, cache, position):
    compress(folder)
    file = folder / "train-labels-idx1-ubyte.gz"
    content = bytearray(file.read_bytes())
    content[position] ^= 0xFF
    file.write_bytes(content)
    assert_refused(folder, cache, rf"{file} is (damaged|truncated)")


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"])
def test_file_that_cannot_be_opened_is_named(folder, cache, name):
    (folder / "train-images-idx3-ubyte").unlink()
    (folder / name).mkdir()
    assert_refused(folder, cache, rf"{folder / name} cannot be read: Is a directory")


def test_missing_file_names_folder_files_and_source(folder, cache):
    message = refusal_of(Mnist, str(folder), "val", cache)
    for part in (str(folder), "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", ".gz", "https://"):
        assert part in message


@pytest.mark.parametrize("dataset", [Mnist, FashionMnist])
def test_data_path_must_exist(dataset, cache, tmp_path):
    with pytest.raises(UserError, match=rf"{tmp_path}/nowhere does not exist.*train-images-idx3-ubyte"):
        dataset(str(tmp_path / "nowhere"), "train", cache)


def test_only_fashion_mnist_has_a_default_folder(folder, cache, samples, monkeypatch):
    with pytest.raises(UserError, match=r"mnist needs -data_path=.*https://"):
        Mnist(None, "train", cache)
    monkeypatch.setattr(FashionMnist, "default_folder", str(folder))
    assert_holds(FashionMnist(None, "train", cache), samples)
    monkeypatch.setattr(FashionMnist, "default_folder", str(folder / "absent"))
    with pytest.raises(UserError, match=r"fashion_mnist needs -data_path=.*dataset-fashion-mnist"):
        FashionMnist(None, "train", cache)


@pytest.mark.skipif(not DEBIAN_FOLDER.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
@pytest.mark.parametrize("split, prefix, count", [("train", "train", 60000), ("val", "t10k", 10000)])
def test_published_fashion_mnist_is_read_whole(split, prefix, count, cache):
    dataset = FashionMnist(None, split, cache)
    published = gzip.decompress((DEBIAN_FOLDER / f"{prefix}-images-idx3-ubyte.gz").read_bytes())[16:]
    assert np.bincount(dataset.labels).tolist() == [count // 10] * 10
    for index in (0, 1, count // 2, count - 1):
        assert dataset.read(index)[0].tobytes() == published[index * 784 : (index + 1) * 784]
