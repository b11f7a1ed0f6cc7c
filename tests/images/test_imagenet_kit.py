"""Labels of ImageNet's validation pictures from the development kit, whose class list is a MATLAB file."""

from __future__ import annotations

import contextlib
import io
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.errors import UserError
from paddlevit_dist.images.data import imagenet, listed_labels
from paddlevit_dist.images.data.imagenet import ImageNet2012
from paddlevit_dist.images.data.mat_file import read_structures
from paddlevit_dist.images.data.tar import TarImages

# Written by scipy.io.savemat(do_compression=True): a matrix 'other' and 'synsets' of three elements.
META = Path(__file__).with_name("synsets.mat").read_bytes()
WNIDS = ["n03", "n01", "n02"]


def inflated():
    """The same file with its compressed parts unpacked."""
    content, at = META[:128], 128
    while at < len(META):
        kind, size = struct.unpack_from("<II", META, at)
        assert kind == 15
        content += zlib.decompress(META[at + 8 : at + 8 + size])
        at += 8 + size
    return content


@pytest.mark.parametrize("content", [META, inflated()], ids=["compressed", "plain"])
def test_structures_of_a_file_that_scipy_wrote(content):
    found = read_structures(content, "synsets")
    assert [element["WNID"] for element in found] == WNIDS
    assert [element["ILSVRC2012_ID"] for element in found] == [1, 2.0, 3.0]
    assert [element["words"] for element in found] == ["äpple, fruit", "b", "c"]
    np.testing.assert_array_equal(found[2]["children"], [0.0, 1.0])


def test_other_and_damaged_files_are_refused():
    with pytest.raises(ValueError, match="no structure array 'classes'"):
        read_structures(META, "classes")
    with pytest.raises(ValueError, match="not a little-endian MATLAB file"):
        read_structures(b"words" * 100, "synsets")
    plain = inflated()
    for content in (META, plain):
        for size in range(130, len(content) - 1, 7):
            with pytest.raises(ValueError, match="."):
                read_structures(content[:size], "synsets")
    generator = np.random.default_rng(0)
    for _ in range(300):
        spoilt = bytearray(plain)
        spoilt[generator.integers(128, len(plain))] = generator.integers(256)
        with contextlib.suppress(ValueError):  # and nothing else
            read_structures(bytes(spoilt), "synsets")


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Three classes and four validation pictures in one folder; picture n is n grey."""
    monkeypatch.setattr(listed_labels, "_CLASSES", 3)
    monkeypatch.setattr(imagenet, "NUM_CLASSES_OF_LISTS", 3)
    data = tmp_path / "ILSVRC2012_devkit_t12" / "data"
    data.mkdir(parents=True)
    (data / "meta.mat").write_bytes(META)
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("3\n1\n2\n1\n")
    (tmp_path / "val").mkdir()
    for number in range(1, 5):
        Image.new("L", (3, 3), number).save(tmp_path / "val" / f"ILSVRC2012_val_{number:08d}.JPEG", "PNG")
    for wnid in WNIDS:
        (tmp_path / "train" / wnid).mkdir(parents=True)
        Image.new("L", (3, 3)).save(tmp_path / "train" / wnid / "1.JPEG", "PNG")
    (tmp_path / "cache").mkdir()
    return tmp_path


LABELS = [1, 2, 0, 2]  # of n02, n03, n01, n03


def test_pictures_in_one_folder_get_the_kits_labels(root):
    dataset = ImageNet2012(str(root), "val", root / "cache")
    assert dataset.labels.tolist() == LABELS and dataset.class_names == sorted(WNIDS)
    assert [dataset.read(index)[0].getpixel((0, 0))[0] for index in range(4)] == [1, 2, 3, 4]


def test_the_validation_archive_gets_them_too_and_the_kit_may_be_packed(root):
    data = root / "ILSVRC2012_devkit_t12"
    with tarfile.open(root / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as tar:
        tar.add(data, data.name)
    data.rename(root / "elsewhere")
    with tarfile.open(root / "ILSVRC2012_img_val.tar", "w") as tar:
        for picture in sorted((root / "val").iterdir()):
            tar.add(picture, picture.name)
    assert TarImages(str(root), "val", root / "cache").labels.tolist() == LABELS
    assert ImageNet2012(str(root), "val", root / "cache").labels.tolist() == LABELS


def test_what_does_not_fit_is_told(root):
    def refused(message):
        with pytest.raises(UserError, match=message):
            ImageNet2012(str(root), "val", root / "cache")

    data = root / "ILSVRC2012_devkit_t12"
    (root / "val" / "ILSVRC2012_val_00000003.JPEG").rename(root / "x.JPEG")
    refused(r"val/ILSVRC2012_val_00000003.JPEG is missing, but the development kit has it")
    (root / "x.JPEG").rename(root / "val" / "ILSVRC2012_val_00000003.JPEG")
    (root / "train" / "n04").mkdir()
    refused(r"the development kit numbers 3 classes, but .*/train has 4")
    (root / "train" / "n04").rmdir()
    (data / "data" / "meta.mat").write_bytes(META[:300])
    refused(r"is not as published: .*get it again")
    data.rename(root / "elsewhere")
    refused(r"val has no class folders, and .* no ILSVRC2012_devkit_t12")
    (root / "ILSVRC2012_devkit_t12.tar.gz").write_bytes(b"x")
    refused(r"the development kit .* cannot be read: .*get it again")


def test_a_list_with_two_labels_for_one_name_is_refused(root):
    with tarfile.open(root / "val.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("1.JPEG"), io.BytesIO())
    (root / "val_list.txt").write_text("a/1.JPEG 0\nb/1.JPEG 1\n")
    with pytest.raises(UserError, match=r"val_list.txt line 2: 1.JPEG has two labels"):
        TarImages(str(root), "val", root / "cache")
