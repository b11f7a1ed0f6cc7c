"""A path without a dataset name: its contents decide, or the user is asked."""

from __future__ import annotations

import gzip
import json
import os
import struct
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.errors import UserError
from paddlevit_dist.images.data.guessing import guess
from paddlevit_dist.registry import DATASETS, resolve

from .cifar_writer import write_cifar10, write_cifar100

PUBLISHED = {"mnist": [5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3], "fashion_mnist": [9, 0, 0, 3, 0, 2, 7, 2, 5, 5, 0]}


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def pictures(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(root / name, "JPEG")


def split_folders(root):
    pictures(root, "train/ant/1.jpg", "train/bee/1.jpg", "val/ant/2.jpg", "val/bee/2.jpg")


def other_split_name(root):
    pictures(root, "train/ant/deep/er/1.JPEG", "validation/ant/2.jpg")


def only_heic(root):
    touch(root, "train/ant/1.heic", "val/ant/1.heic")


def unsplit_folders(root):
    pictures(root, "ant/1.jpg", "bee/1.jpg", "cat/1.jpg", "dog/1.jpg")
    touch(root, "README.md", ".git/x.jpg")


def validation_only(root):
    pictures(root, "val/ant/2.jpg", "val/bee/2.jpg")


def lists(root):
    split_folders(root)
    (root / "train_list.txt").write_text("train/ant/1.jpg 0\ntrain/bee/1.jpg 1\n")
    (root / "val_list.txt").write_text("val/ant/2.jpg 0\nval/bee/2.jpg 1\n")


def validation_list(root):
    pictures(root, "val/2.jpg")
    (root / "val_list.txt").write_text("val/2.jpg 0\n")


def kit(root):
    pictures(root, "train/n01/1.JPEG", "val/ILSVRC2012_val_00000001.JPEG")


def tar(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w"):
        pass


def shards(root):
    for name in ("train-000.tar", "train-001.tar", "val-000.tar"):
        tar(root / name)
    touch(root, "classes.txt", "prepared.json")


def class_tars(root):
    tar(root / "train" / "ant.tar")
    tar(root / "train" / "bee.tar")


def listed_tars(root):
    tar(root / "ILSVRC2012_img_val.tar")
    (root / "val_list.txt").write_text("val/ILSVRC2012_val_00000001.JPEG 65\n")


def idx(labels=None, packed=False):
    def write(root):
        root.mkdir(parents=True, exist_ok=True)
        values = np.array(labels or [0] * 11, np.uint8)
        for prefix in ("train", "t10k"):
            for part, array in (
                ("images-idx3", np.zeros((len(values), 28, 28), np.uint8)),
                ("labels-idx1", values if prefix == "train" else values[:0]),
            ):
                content = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
                name = f"{prefix}-{part}-ubyte"
                (root / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(content) if packed else content)

    return write


def cifar(write):
    def make(root):
        root.mkdir(parents=True, exist_ok=True)
        write(root)

    return make


def scenes(kind):
    def write(root):
        touch(root, "classes.txt", "train.txt", "val.txt", "scenes/one.scene")
        if kind:
            (root / "prepared.json").write_text(json.dumps({"version": 1, "kind": kind, "source": "x"}))

    return write


def volumes(root):
    touch(root, "train/one.nii.gz", "train/one.csv", "val/two.nii.gz", "val/two.csv")


def arrays(root):
    touch(root, "train/one.npy", "train/one.json")


def series(root):
    touch(root, "train/anna/1.dcm", "train/anna/2.dcm", "train/anna.fcsv", "val/ben/1.dcm", "val/ben.csv")


def series_without_suffix(root):
    series(root)
    for old in sorted(root.rglob("*.dcm")):
        old.with_name(f"IM{old.stem}").write_bytes(bytes(128) + b"DICM")
        old.unlink()


@pytest.mark.parametrize(
    "write, dataset, reason",
    [
        (split_folders, "folder", "my_data has class folders below train and val"),
        (other_split_name, "folder", "my_data has class folders below train and validation"),
        (only_heic, "folder", "my_data has class folders below train and val"),
        (unsplit_folders, "folder", "my_data has class folders ant, bee, cat, …, not split into train and val"),
        (validation_only, "folder", "my_data has class folders below val"),
        (lists, "imagenet2012", "my_data has train_list.txt and val_list.txt, lists of 'path label' for"),
        (validation_list, "imagenet2012", "my_data has val_list.txt, lists of 'path label' for"),
        (kit, "imagenet2012", "ILSVRC2012_val_00000001.JPEG"),
        (shards, "tar", "my_data has tar files such as train-000.tar and val-000.tar"),
        (class_tars, "tar", "my_data has tar files such as train/ant.tar"),
        (listed_tars, "tar", "my_data has tar files such as ILSVRC2012_img_val.tar"),
        (idx(PUBLISHED["mnist"]), "mnist", "begin with the labels of mnist"),
        (idx(PUBLISHED["fashion_mnist"], packed=True), "fashion_mnist", "begin with the labels of fashion_mnist"),
        (idx(), "mnist", "taken for mnist as nothing says fashion_mnist"),
        (cifar(write_cifar10), "cifar10", "cifar-10"),
        (cifar(write_cifar100), "cifar100", "cifar-100"),
        (scenes("ply"), "scenes", "point clouds for recipes such as configs/pointgroup_scannet.yaml"),
        (scenes("scannet"), "scannet", "point clouds"),
        (scenes(None), "scenes", "point clouds"),
        (
            volumes,
            "landmarks",
            "volumes below train such as one.nii.gz, for recipes such as configs/landmark_unet3d.yaml",
        ),
        (arrays, "landmarks", "volumes below train such as one.npy"),
        (series, "landmarks", "volumes below train such as anna/*.dcm"),
        (series_without_suffix, "landmarks", "volumes below train such as anna/*.dcm"),
    ],
)
def test_what_lies_there_names_the_data_set(write, dataset, reason, tmp_path, monkeypatch):
    write(tmp_path / "my_data")
    monkeypatch.chdir(tmp_path)
    for path in ("my_data", "my_data/"):
        made = guess(path)
        assert made.dataset == dataset and made.dataset in DATASETS and reason in made.reason


@pytest.mark.parametrize(
    "write", [split_folders, lists, idx(PUBLISHED["mnist"]), cifar(write_cifar10), unsplit_folders]
)
def test_the_named_data_set_reads_what_lies_there(write, tmp_path):
    write(tmp_path / "data")
    target = resolve("dataset", guess(str(tmp_path / "data")).dataset)
    (tmp_path / "cache").mkdir()
    if write is unsplit_folders:
        assert len(target.whole(str(tmp_path / "data"), tmp_path / "cache")) == 4
    else:
        assert len(target(str(tmp_path / "data"), "train", tmp_path / "cache")) >= 2


def test_the_reason_can_be_printed_whatever_the_folders_are_called(tmp_path):
    unsplit_folders(tmp_path / "data")
    os.rename(tmp_path / "data" / "ant", os.path.join(os.fsencode(tmp_path), b"data/a\xe9"))
    assert "class folders a\\xe9, bee" in guess(str(tmp_path / "data")).reason.encode("utf-8").decode()


def test_idx_files_of_a_folder_named_for_fashion(tmp_path):
    idx()(tmp_path / "Fashion-MNIST" / "raw")
    assert guess(str(tmp_path / "Fashion-MNIST" / "raw")).dataset == "fashion_mnist"


def test_a_file_is_an_archive_of_cifar_or_a_tar_file_whose_folder_is_asked_for(tmp_path):
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"")
    assert guess(str(tmp_path / "cifar-10-python.tar.gz")).dataset == "cifar10"
    tar(tmp_path / "train.tar")
    with pytest.raises(UserError, match=f"train.tar is a tar file; give the folder that holds it: {tmp_path}"):
        guess(str(tmp_path / "train.tar"))
    touch(tmp_path, "data.zip")
    assert guess(str(tmp_path / "data.zip")) is None


def loose_pictures(root):
    pictures(root, "1.jpg", "2.jpg")


def loose_splits(root):
    pictures(root, "train/1.jpg", "val/2.jpg")


def other_spelling(root):
    pictures(root, "Train/1.jpg", "Test/2.jpg")


def masks(root):
    pictures(root, "images/1.jpg", "masks/1.jpg")


def detection(root):
    pictures(root, "train2017/1.jpg", "val2017/1.jpg")


def one_folder(root):
    pictures(root, "photos/1.jpg")


def texts(root):
    touch(root, "a/x.txt", "b/x.txt", "labels.csv")


def empty(root):
    root.mkdir()


@pytest.mark.parametrize(
    "write", [loose_pictures, loose_splits, other_spelling, masks, detection, one_folder, texts, empty]
)
def test_what_is_no_data_set_of_ours_is_not_taken_for_one(write, tmp_path):
    write(tmp_path / "data")
    assert guess(str(tmp_path / "data")) is None


@pytest.mark.parametrize(
    "first, second, named",
    [
        (split_folders, shards, ("-dataset=folder", "-dataset=tar")),
        (cifar(write_cifar10), cifar(write_cifar100), ("-dataset=cifar10", "-dataset=cifar100")),
        (split_folders, idx(), ("-dataset=folder", "-dataset=mnist")),
        (split_folders, volumes, ("-dataset=folder", "-dataset=landmarks")),
        (lists, scenes("ply"), ("-dataset=imagenet2012", "-dataset=scenes")),
    ],
)
def test_two_kinds_of_data_are_both_named(first, second, named, tmp_path):
    first(tmp_path / "data")
    second(tmp_path / "data")
    with pytest.raises(UserError) as caught:
        guess(str(tmp_path / "data"))
    assert all(name in str(caught.value) for name in named) and "\n" not in str(caught.value)
    assert "name the right one with -dataset" in str(caught.value)


@pytest.mark.parametrize(
    "name, command",
    [
        ("scene0000_00/scene0000_00_vh_clean_2.ply", "prepare scannet"),
        ("train/one.ply", "prepare ply"),
        ("train/scene0000_00_inst_nostuff.pth", "prepare pth"),
    ],
)
def test_raw_point_clouds_are_told_to_be_prepared(name, command, tmp_path):
    touch(tmp_path, f"data/{name}")
    with pytest.raises(UserError, match=f"holds point clouds such as {os.path.basename(name)}: .*{command} "):
        guess(str(tmp_path / "data"))


def test_nothing_there_and_compressed_tar_files_are_told(tmp_path):
    with pytest.raises(UserError, match=f"data path {tmp_path}/nowhere does not exist"):
        guess(str(tmp_path / "nowhere"))
    touch(tmp_path, "data/train.tar.gz")
    with pytest.raises(UserError, match=r"train\.tar\.gz is compressed"):
        guess(str(tmp_path / "data"))
    split_folders(tmp_path / "data")  # then the archive is where they came from
    assert guess(str(tmp_path / "data")).dataset == "folder"


def test_it_needs_no_paddle(tmp_path):
    split_folders(tmp_path)
    program = (
        "import sys; sys.modules['paddle'] = None\n"  # any import of paddle fails
        "from paddlevit_dist.images.data.guessing import guess; print(guess(sys.argv[1]).dataset)"
    )
    run = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert run.stdout == "folder\n", run.stderr
