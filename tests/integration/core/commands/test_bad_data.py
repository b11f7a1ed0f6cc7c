"""Data that is missing, damaged or does not fit: one line that names the file and the fix."""

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.trainings.runs import DIGITS, IMAGES, PLAIN, TINY, contents, refused, write_images

from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.inspection import open_split


@pytest.fixture
def output(tmp_path):
    return tmp_path / "output"


@pytest.fixture
def images(tmp_path):
    return write_images(tmp_path / "pictures")


@pytest.mark.parametrize("dataset", ["folder", "imagenet2012", "mnist"])
def test_a_data_path_that_does_not_exist_or_is_not_given(dataset, output, tmp_path):
    nowhere = tmp_path / "nowhere"
    message = refused(f"-output={output}", *IMAGES, f"-dataset={dataset}", f"-data_path={nowhere}")
    assert f"data path {nowhere} does not exist; dataset {dataset} expects a folder" in message
    assert contents(output) == {}
    assert f"dataset {dataset} needs -data_path=" in refused(f"-output={output}", *IMAGES, f"-dataset={dataset}")


def test_an_empty_class_folder_is_named(images, output):
    (images / "train" / "cat").mkdir()
    message = refused(f"-output={output}", *IMAGES, f"-data_path={images}")
    assert f"class folder {images / 'train' / 'cat'} contains no images; expected files ending in jpg" in message


def test_a_validation_class_that_is_no_training_class(images, output):
    (images / "val" / "bee").rename(images / "val" / "wasp")
    message = refused(f"-output={output}", *IMAGES, f"-data_path={images}")
    assert "'wasp'" in message and str(images / "train") in message


def test_a_folder_of_another_layout_says_what_is_expected(images, output):
    message = refused(f"-output={output}", *IMAGES, f"-data_path={images / 'train'}")
    assert f"{images / 'train'} has no folder train/<class>/" in message


def test_a_label_out_of_range_is_named_with_its_line(images, output):
    (images / "train_list.txt").write_text("train/ant/00.jpg 0\ntrain/bee/00.jpg 1\n")
    (images / "val_list.txt").write_text("val/ant/00.jpg 0\nval/ant/01.jpg 999\nval/bee/00.jpg 1000\n")
    message = refused(f"-output={output}", *IMAGES, "-dataset=imagenet2012", f"-data_path={images}")
    assert f"{images / 'val_list.txt'} line 3: label 1000 is out of range" in message
    assert "0 to 999" in message


def write_idx(folder, images: int, labels: int) -> None:
    folder.mkdir()
    for split in ("train", "t10k"):
        pixels, classes = np.zeros((images, 8, 8), np.uint8), np.zeros(labels, np.uint8)
        head = bytes([0, 0, 8, 3]) + struct.pack(">3I", *pixels.shape)
        (folder / f"{split}-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
        head = bytes([0, 0, 8, 1]) + struct.pack(">I", labels)
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(head + classes.tobytes())


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gz"])
def test_a_truncated_idx_file_tells_the_bytes_it_should_have(compressed, output, tmp_path):
    write_idx(tmp_path / "mnist", 100, 100)
    file = tmp_path / "mnist" / "t10k-images-idx3-ubyte"
    whole = file.read_bytes()
    if compressed:
        file.unlink()
        file = file.with_name(file.name + ".gz")
        packed = gzip.compress(whole, compresslevel=0)
        file.write_bytes(packed[: len(packed) - 1000])
    else:
        file.write_bytes(whole[:-1000])
    message = refused(f"-output={output}", *DIGITS, "-dataset=mnist", f"-data_path={tmp_path / 'mnist'}")
    assert str(file) in message and "truncated" in message and f"expected {len(whole)} bytes" in message
    assert "get it again" in message


def test_images_and_labels_that_do_not_fit(output, tmp_path):
    write_idx(tmp_path / "mnist", 100, 90)
    message = refused(f"-output={output}", *DIGITS, "-dataset=mnist", f"-data_path={tmp_path / 'mnist'}")
    assert "100 images" in message and "90 labels" in message


def damage(file) -> None:
    file.write_bytes(file.read_bytes()[:200])


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("split", ["train", "val"])
def test_an_unreadable_image_is_named_before_training_starts(split, processes, images, output):
    damaged = images / split / "bee" / "03.jpg"
    damage(damaged)
    message = refused(f"-output={output}", *IMAGES, f"-data_path={images}", f"-ngpus={processes}")
    assert f"{damaged} cannot be read as an image" in message
    assert not (output / "log.txt").exists() and not (output / "checkpoints").exists()


def test_an_unreadable_image_that_was_not_opened_beforehand_is_named_where_it_is_met(images, output):
    """Of more than 5,000 images a sample is opened."""
    for number in range(5_001):
        os.link(images / "val" / "ant" / "00.jpg", images / "val" / "ant" / f"x{number:04d}.jpg")
    dataset = ClassFolders(str(images), "val", images)
    opened = {look.index for look in open_split(dataset, "val").results}
    damaged = Path(dataset.describe(next(index for index in range(len(dataset)) if index not in opened)))
    damaged.unlink()
    damaged.write_bytes(b"words")
    arguments = ["-ngpus=2", "-num_workers=1", "-batch_size_eval=64"]
    message = refused(f"-output={output}", *IMAGES, f"-data_path={images}", *arguments)
    assert f"{damaged} cannot be read as an image" in message
    said = (output / "log.txt").read_text()
    assert "opened 2,000 of 5,009 images of val" in said and "epoch 1/1 training" in said
    assert (output / "checkpoints" / "epoch_0001").is_dir()  # saved before its evaluation


def test_a_listed_image_that_is_missing_or_is_none_is_named(images, output):
    arguments = [f"-output={output}", *IMAGES, "-dataset=imagenet2012", f"-data_path={images}", "-batch_size=2"]
    (images / "val_list.txt").write_text("val/ant/00.jpg 0\n")
    (images / "train_list.txt").write_text("train/ant/00.jpg 0\ntrain/bee/none.jpg 1\n")
    message = refused(*arguments)
    assert f"{images / 'train' / 'bee' / 'none.jpg'} cannot be read as an image: No such file" in message
    (images / "train" / "bee" / "none.jpg").write_text("words")
    message = refused(*arguments)
    assert f"{images / 'train' / 'bee' / 'none.jpg'} cannot be read as an image: not an image" in message


def test_an_unreadable_image_in_an_evaluation_of_a_checkpoint(images, output, tmp_path):
    import paddle

    from paddlevit_dist import create_model

    paddle.seed(0)
    model = create_model("vit", 3, 16, patch_size=8, embed_dim=16, depth=1, num_heads=2)
    paddle.save(model.state_dict(), str(tmp_path / "weights.pdparams"))
    Image.new("RGB", (9, 9)).save(images / "val" / "ant" / "tiny.png")
    damage(images / "val" / "ant" / "00.jpg")
    arguments = [
        PLAIN,
        *TINY,
        "-dataset=folder",
        f"-data_path={images}",
        "-eval",
        f"-pretrained={tmp_path / 'weights'}",
    ]
    message = refused(f"-output={output}", *arguments, "-batch_size=3")
    assert f"{images / 'val' / 'ant' / '00.jpg'} cannot be read as an image" in message
