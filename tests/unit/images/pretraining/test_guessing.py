"""A path without a dataset name, for a task that reads no labels: images with classes, else any images."""

import tarfile

import pytest
from PIL import Image
from support.files.cifar_writer import write_cifar10

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.lookup import guess_dataset


def write(folder, names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jpg":
            Image.new("RGB", (8, 6)).save(path)
        elif path.suffix == ".tar":
            tarfile.open(path, "w").close()
        else:
            path.touch()


@pytest.mark.parametrize(
    "names, expected",
    [
        (["a.jpg", "deep/er/b.jpg"], "unlabeled"),
        (["images/train/a.jpg", "labels/train/a.txt"], "unlabeled"),  # boxes in YOLO's layout
        (["train-0.tar", "cat/a.jpg", "dog/b.jpg"], "unlabeled"),  # two kinds of classes, of which none is chosen
        (["scene_vh_clean_2.ply", "photo.jpg"], "unlabeled"),
        (["train/cat/a.jpg", "val/cat/b.jpg"], "folder"),
    ],
)
def test_a_task_without_labels_reads_any_images(tmp_path, names, expected):
    write(tmp_path / "data", names)
    assert guess_dataset(str(tmp_path / "data"), "masked_autoencoder").dataset == expected


def test_a_task_without_labels_reads_published_images_with_classes(tmp_path):
    write_cifar10(tmp_path)
    assert guess_dataset(str(tmp_path), "self_distillation").dataset == "cifar10"


def test_a_task_without_labels_reads_a_tar_file_but_no_path_that_is_missing(tmp_path):
    write(tmp_path, ["images.tar"])
    assert guess_dataset(str(tmp_path / "images.tar"), "masked_autoencoder").dataset == "unlabeled"
    with pytest.raises(UserError, match="does not exist"):
        guess_dataset(str(tmp_path / "images"), "masked_autoencoder")


def test_a_task_without_labels_reads_the_images_of_rows_with_boxes(tmp_path):
    hub_files = pytest.importorskip("support.files.hub_files")
    objects = [[{"bbox": [0.0, 0.0, 2.0, 2.0], "category": 0}]]
    columns = {"image": hub_files.images([1]), "objects": objects}
    hub_files.write_parquet(tmp_path / "train.parquet", columns)
    assert guess_dataset(str(tmp_path), "masked_autoencoder").dataset == "hub"
    assert guess_dataset(str(tmp_path), "detection").dataset == "hub_boxes"
