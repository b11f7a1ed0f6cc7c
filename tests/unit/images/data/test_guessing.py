"""A path without a dataset name: its contents decide, or the user is asked."""

import gzip
import json
import os
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image
from support.files.cifar_writer import write_cifar10, write_cifar100

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.images.data import box_layouts, class_trees, formats
from paddlevit_dist.images.data.guessing import guess

KIT = "val/ILSVRC2012_val_00000001.JPEG"
PUBLISHED = {"mnist": [5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3], "fashion_mnist": [9, 0, 0, 3, 0, 2, 7, 2, 5, 5, 0]}


def write(root, *names):
    """Images, tar files without members, what a function writes, and empty files."""
    root.mkdir(parents=True, exist_ok=True)
    for name in names:
        if callable(name):
            name(root)
            continue
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() in (".jpg", ".jpeg"):
            Image.new("RGB", (8, 6)).save(path, "JPEG")
        elif path.suffix == ".tar":
            tarfile.open(path, "w").close()
        else:
            path.write_bytes(b"")


def idx(labels=(0,) * 11, packed=False):
    def make(root):
        values = np.array(labels, np.uint8)
        for prefix in ("train", "t10k"):
            for part, array in (
                ("images-idx3", np.zeros((len(values), 28, 28), np.uint8)),
                ("labels-idx1", values if prefix == "train" else values[:0]),
            ):
                content = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
                name = f"{prefix}-{part}-ubyte"
                (root / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(content) if packed else content)

    return make


def text(name, content):
    return lambda root: (root / name).write_bytes(content.encode())


def dicom(*names):
    def make(root):
        write(root, *names)
        for name in names:
            (root / name).write_bytes(bytes(128) + b"DICM")

    return make


SPLIT_FOLDERS = ("train/ant/1.jpg", "train/bee/1.jpg", "val/ant/2.jpg", "val/bee/2.jpg")
UNSPLIT_FOLDERS = ("ant/1.jpg", "bee/1.jpg", "cat/1.jpg", "dog/1.jpg", "README.md", ".git/x.jpg")
LISTS = (
    *SPLIT_FOLDERS,
    text("train_list.txt", "train/ant/1.jpg 0\ntrain/bee/1.jpg 1\n"),
    text("val_list.txt", "val/ant/2.jpg 0\nval/bee/2.jpg 1\n"),
)
SHARDS = ("train-000.tar", "train-001.tar", "val-000.tar", "classes.txt", "prepared.json")
SCENES = ("classes.txt", "train.txt", "val.txt", "scenes/one.scene")
VOLUMES = ("train/one.nii.gz", "train/one.csv", "val/two.nii.gz", "val/two.csv")
SCANNET = text("prepared.json", json.dumps({"version": 1, "kind": "scannet", "source": "x"}))
PLY = text("prepared.json", json.dumps({"version": 1, "kind": "ply", "source": "x"}))


def test_an_address_has_tar_files():
    made = guess("https://host/train-{000..007}.tar")
    assert made.dataset == "tar" and made.reason.startswith("https://host/train-")


@pytest.mark.parametrize(
    "names, dataset, reason",
    [
        (SPLIT_FOLDERS, "folder", "my_data has class folders below train and val"),
        (("train/ant/a/b/c/d/1.JPEG", "validation/ant/2.jpg"), "folder", "class folders below train and validation"),
        (("train/ant/1.heic", "val/ant/1.heic"), "folder", "my_data has class folders below train and val"),
        (UNSPLIT_FOLDERS, "folder", "class folders ant, bee, cat, …, not split into train and val"),
        (("val/ant/2.jpg", "val/bee/2.jpg"), "folder", "my_data has class folders below val"),
        (LISTS, "imagenet2012", "my_data has train_list.txt and val_list.txt, lists of 'path label' for"),
        (
            (*LISTS, "train-0.tar"),
            "imagenet2012",
            "my_data has train_list.txt and val_list.txt, lists of 'path label' for",
        ),
        (("val/2.jpg", text("val_list.txt", "val/2.jpg 0\n")), "imagenet2012", "has val_list.txt, lists of"),
        ((*SPLIT_FOLDERS, text("val_list.txt", "val/9.jpg 0\n")), "imagenet2012", "has val_list.txt, lists of"),
        (("train/n01/1.JPEG", KIT), "imagenet2012", f"my_data has class folders below train and {KIT}, ImageNet's"),
        ((KIT,), "imagenet2012", f"my_data has {KIT}, ImageNet's"),
        (SHARDS, "tar", "my_data has tar files such as train-000.tar and val-000.tar"),
        (("train/ant.tar", "train/bee.tar"), "tar", "my_data has tar files such as train/ant.tar"),
        (("ILSVRC2012_img_val.tar", text("val_list.txt", "val/x.JPEG 65\n")), "tar", "such as ILSVRC2012_img_val.tar"),
        ((idx(PUBLISHED["mnist"]),), "mnist", "begin with the labels of mnist"),
        ((idx(PUBLISHED["fashion_mnist"], packed=True),), "fashion_mnist", "begin with the labels of fashion_mnist"),
        ((idx(),), "mnist", "read as mnist since its name does not contain fashion"),
        (("t10k-images-idx3-ubyte.gz",), "mnist", "read as mnist since its name does not contain fashion"),
        ((text("train-labels-idx1-ubyte.gz", "no gzip"),), "mnist", "since its name does not contain fashion"),
        (("train-labels.idx1-ubyte",), "mnist", "read as mnist since its name does not contain fashion"),
        ((write_cifar10,), "cifar10", "cifar-10"),
        ((write_cifar100,), "cifar100", "cifar-100"),
        ((*SCENES, PLY), "scenes", "point clouds for recipes such as configs/pointgroup_scannet.yaml"),
        ((*SCENES, SCANNET), "scannet", "point clouds"),
        (SCENES, "scenes", "point clouds"),
        (VOLUMES, "landmarks", "volumes below train such as one.nii.gz, for recipes such as configs/landmark_unet3d"),
        (("train/one.npy", "train/one.json"), "landmarks", "volumes below train such as one.npy"),
        (("train/anna/1.dcm", "train/anna/2.dcm", "train/anna.fcsv"), "landmarks", "train such as anna/*.dcm"),
        ((dicom("train/anna/IM1"), "train/anna.fcsv"), "landmarks", "volumes below train such as anna/*.dcm"),
        (("images/1.jpg", "masks/1.jpg"), "label_maps", "my_data has images and label maps"),
        (("train/images/1.jpg", "train/masks/1.jpg"), "label_maps", "my_data has images and label maps"),
    ],
)
def test_what_lies_there_names_the_data_set(names, dataset, reason, tmp_path, monkeypatch):
    write(tmp_path / "my_data", *names)
    monkeypatch.chdir(tmp_path)
    for path in ("my_data", "my_data/"):
        made = guess(path)
        assert made.dataset == dataset and made.dataset in REGISTRY.datasets and reason in made.reason


@pytest.mark.parametrize("names", [SPLIT_FOLDERS, LISTS, (idx(PUBLISHED["mnist"]),), (write_cifar10,), UNSPLIT_FOLDERS])
def test_the_named_data_set_reads_what_lies_there(names, tmp_path, cache):
    write(tmp_path / "data", *names)
    target = resolve("dataset", guess(str(tmp_path / "data")).dataset)
    if names is UNSPLIT_FOLDERS:
        assert len(target.whole(str(tmp_path / "data"), cache)) == 4
    else:
        assert len(target(str(tmp_path / "data"), "train", cache)) >= 2


def test_the_reason_can_be_printed_whatever_the_folders_are_called(tmp_path):
    write(tmp_path / "data", *UNSPLIT_FOLDERS)
    os.rename(tmp_path / "data" / "ant", os.path.join(os.fsencode(tmp_path), b"data/a\xe9"))
    assert "class folders a\\xe9, bee" in guess(str(tmp_path / "data")).reason.encode("utf-8").decode()


def test_idx_files_of_a_folder_named_for_fashion(tmp_path):
    write(tmp_path / "Fashion-MNIST" / "raw", idx())
    assert guess(str(tmp_path / "Fashion-MNIST" / "raw")).dataset == "fashion_mnist"


def test_a_file_is_an_archive_of_cifar_or_a_tar_file_whose_folder_is_asked_for(tmp_path):
    write(tmp_path, "cifar-10-python.tar.gz", "train.tar", "data.zip")
    assert guess(str(tmp_path / "cifar-10-python.tar.gz")).dataset == "cifar10"
    with pytest.raises(UserError, match=f"train.tar is a tar file; give its folder: {tmp_path}"):
        guess(str(tmp_path / "train.tar"))
    assert guess(str(tmp_path / "data.zip")) is None


@pytest.mark.parametrize(
    "names",
    [
        ("1.jpg", "2.jpg"),
        ("train/1.jpg", "val/2.jpg"),
        ("Train/1.jpg", "Test/2.jpg"),
        ("train2017/1.jpg", "val2017/1.jpg"),
        ("photos/1.jpg",),
        ("train/ant/a/b/c/d/e/1.jpg", "val/bee/a/b/c/d/e/1.jpg"),
        ("a/x.txt", "b/x.txt", "labels.csv"),
        (),
    ],
)
def test_what_is_no_data_set_of_ours_is_not_taken_for_one(names, tmp_path):
    write(tmp_path / "data", *names)
    assert guess(str(tmp_path / "data")) is None


@pytest.mark.parametrize(
    "names, named",
    [
        ((*SPLIT_FOLDERS, *SHARDS), ("-dataset=folder", "-dataset=tar")),
        ((write_cifar10, write_cifar100), ("-dataset=cifar10", "-dataset=cifar100")),
        ((*SPLIT_FOLDERS, idx()), ("-dataset=folder", "-dataset=mnist")),
        ((*SPLIT_FOLDERS, *VOLUMES), ("-dataset=folder", "-dataset=landmarks")),
        ((*LISTS, *SCENES), ("-dataset=imagenet2012", "-dataset=scenes")),
    ],
)
def test_two_kinds_of_data_are_both_named(names, named, tmp_path):
    write(tmp_path / "data", *names)
    with pytest.raises(UserError, match="select one with -dataset") as caught:
        guess(str(tmp_path / "data"))
    assert all(name in str(caught.value) for name in named) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name, command, dataset",
    [
        ("scene0000_00/scene0000_00_vh_clean_2.ply", "scannet", "scannet"),
        ("train/one.ply", "ply", "scenes"),
        ("train/scene0000_00_inst_nostuff.pth", "pth", "scannet"),
        ("train/tile.laz", "scenes", "scenes"),
        ("tile.pcd", "scenes", "scenes"),
    ],
)
def test_raw_point_clouds_are_told_to_be_prepared(name, command, dataset, tmp_path):
    write(tmp_path / "data", "a.txt", name)
    said = f"{tmp_path}/data contains point clouds such as {os.path.basename(name)}: convert them once with "
    with pytest.raises(
        UserError, match=f"^{said}'.* prepare {command} {tmp_path}/data OUT', then .*={dataset} -data_p"
    ):
        guess(f"{tmp_path}/data/")


def test_first_files_on_a_failing_disk_are_not_taken_for_data(tmp_path):
    write(tmp_path / "data", "train/anna.fcsv")
    for folder in ("train/anna", "labels"):
        (tmp_path / "data" / folder).mkdir()
    for name in ("train/anna/IM1", "labels/1.txt"):
        (tmp_path / "data" / name).symlink_to("/proc/self/mem")  # its first byte cannot be read
    assert guess(str(tmp_path / "data")) is None


def test_nothing_there_and_compressed_tar_files_are_told(tmp_path):
    with pytest.raises(UserError, match=f"data path {tmp_path}/nowhere does not exist"):
        guess(str(tmp_path / "nowhere"))
    write(tmp_path / "data", "train.tar.gz")
    with pytest.raises(UserError, match=r"train\.tar\.gz is compressed"):
        guess(str(tmp_path / "data"))
    write(tmp_path / "data", *SPLIT_FOLDERS)  # then the archive is where they came from
    assert guess(str(tmp_path / "data")).dataset == "folder"


def test_of_a_folder_with_very_many_names_some_are_looked_at(tmp_path, monkeypatch):
    seen = set()
    monkeypatch.setattr(box_layouts, "MOST_NAMES", 10)
    monkeypatch.setattr(class_trees, "_MOST_NAMES", 10)
    monkeypatch.setattr(formats, "is_hidden", lambda name: seen.add(name))
    write(tmp_path, "others/notes.txt", *(f"pictures/{number:02d}.jpg" for number in range(50)))
    assert guess(tmp_path) is None
    assert len({name for name in seen if name.endswith(b".jpg")}) <= 10


def test_each_ending_of_volumes_and_of_what_is_next_to_them(tmp_path):
    volumes = "nii nii.gz mha mhd nrrd nhdr".split()
    arrays = [(array, marks) for array in ("npy", "npz") for marks in ("csv", "json", "fcsv")]
    for number, names in enumerate([(suffix,) for suffix in volumes] + arrays):
        for spell in (str, str.upper):
            root = tmp_path / f"{number}{spell.__name__}"
            write(root, *(f"train/One.{spell(suffix)}" for suffix in names))
            made = guess(str(root))
            assert made is not None and made.dataset == "landmarks" and f"one.{names[0]}" in made.reason, names
    for suffix in ("dcm", "dicom", "ima", "DCM", "IMA"):
        write(tmp_path / suffix, f"train/anna/1.{suffix}", "train/anna.fcsv")
        assert guess(str(tmp_path / suffix)).dataset == "landmarks", suffix
    write(tmp_path / "array", "train/One.npy")
    assert guess(str(tmp_path / "array")) is None


def test_files_with_endings_in_capitals_are_what_others_are(tmp_path):
    write(tmp_path, "A.CSV", "B.TSV", "c.TAR", "D.JSON", "E.YAML", "F.yml", "G.XML")
    assert [guess(str(tmp_path / name)).dataset for name in ("A.CSV", "B.TSV")] == ["table", "table"]
    with pytest.raises(UserError, match="c.TAR is a tar file; give its folder"):
        guess(str(tmp_path / "c.TAR"))
    for name in ("D.JSON", "E.YAML", "F.yml", "G.XML"):
        with pytest.raises(UserError, match=f"{name} is a file; give the folder with this file and the images"):
            guess(str(tmp_path / name))
