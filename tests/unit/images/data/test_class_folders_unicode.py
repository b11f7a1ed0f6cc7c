"""Data that were in part packed on macOS, whose names have decomposed letters, are the data that they were."""

import json
import tarfile
import unicodedata

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.class_lists import read_class_list
from paddlevit_dist.images.data.map_layouts import find_layout
from paddlevit_dist.images.data.map_pairs import find_pairs
from paddlevit_dist.images.data.tar import TarImages
from paddlevit_dist.images.detection.data.coco import Coco
from paddlevit_dist.images.detection.data.voc import Voc
from paddlevit_dist.images.detection.data.yolo import Yolo

FORMS = [("NFC", "NFD"), ("NFD", "NFC")]
CLASSES = "Épagneul", "Zèbre"


def spell(form: str, text: str) -> str:
    return unicodedata.normalize(form, text)


def save_image(path, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (40, 20), 1 if mode == "L" else (9, 200, 9)).save(path)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(("first", "second"), FORMS)
@pytest.mark.parametrize("listed", [False, True])
def test_classes_of_train_and_val(tmp_path, first, second, listed):
    for split, form in (("train", first), ("val", second)):
        for name in CLASSES:
            save_image(tmp_path / split / spell(form, name) / "a.png")
    if listed:
        write(tmp_path / "classes.txt", "".join(spell(second, f"{name}\n") for name in reversed(CLASSES)))
    for split in ("train", "val"):
        dataset = ClassFolders(str(tmp_path), split, tmp_path)
        names = [dataset.class_names[label] for label in dataset.labels]
        folders = [dataset.identity(index).split("/")[1] for index in range(2)]
        assert names == [spell("NFC", folder) for folder in folders] and sorted(names) == sorted(CLASSES)
        assert dataset.read(0)[0].size == (40, 20)


def test_two_folders_of_one_name_are_refused(tmp_path):
    for form in ("NFC", "NFD"):
        save_image(tmp_path / "train" / spell(form, CLASSES[0]) / "a.png")
    with pytest.raises(UserError, match="differ only in how Unicode spells them"):
        ClassFolders(str(tmp_path), "train", tmp_path)


@pytest.mark.parametrize(("first", "second"), FORMS)
def test_classes_in_tar_files(tmp_path, first, second):
    save_image(tmp_path / "a.png")
    for split, form in (("train", first), ("val", second)):
        with tarfile.open(tmp_path / f"{split}-0.tar", "w") as packed:
            for name in CLASSES:
                packed.add(tmp_path / "a.png", spell(form, f"{name}/a.png"))
    for split in ("train", "val"):
        dataset = TarImages(str(tmp_path), split, tmp_path)
        assert sorted(dataset.class_names) == sorted(CLASSES) and sorted(dataset.labels.tolist()) == [0, 1]


def test_names_in_lists(tmp_path):
    write(tmp_path / "classes.txt", spell("NFD", "sky\nÉtang\n"))
    assert read_class_list(str(tmp_path / "classes.txt")).names == ["sky", "Étang"]


@pytest.mark.parametrize(("first", "second"), FORMS)
def test_files_of_coco(tmp_path, first, second):
    save_image(tmp_path / "train" / spell(first, "é.png"))
    entry = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0}
    content = {
        "images": [{"id": 1, "file_name": spell(second, "é.png"), "height": 20, "width": 40}],
        "annotations": [entry],
        "categories": [{"id": 1, "name": spell(second, CLASSES[0])}],
    }
    write(tmp_path / "annotations" / "instances_train.json", json.dumps(content))
    dataset = Coco(str(tmp_path), "train", tmp_path)
    assert dataset.class_names == [CLASSES[0]] and not dataset.missing() and not dataset.list_unannotated()
    assert dataset.read(0)[0].size == (40, 20) and dataset.num_bytes(0) > 0


@pytest.mark.parametrize(("first", "second"), FORMS)
def test_files_of_voc(tmp_path, first, second):
    save_image(tmp_path / "JPEGImages" / spell(first, "é.png"))
    box = "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    text = f"<annotation><object><name>{spell(first, CLASSES[0])}</name>{box}</object></annotation>"
    write(tmp_path / "Annotations" / spell(second, "é.xml"), text)
    write(tmp_path / "ImageSets" / "Main" / "train.txt", spell(first, "é\n"))
    write(tmp_path / "classes.txt", spell(second, f"{CLASSES[0]}\n"))
    dataset = Voc(str(tmp_path), "train", tmp_path)
    assert dataset.class_names == [CLASSES[0]] and not dataset.missing() and not dataset.list_unannotated()
    assert dataset.read(0)[0].size == (40, 20) and len(dataset.annotations(0).ids) == 1


@pytest.mark.parametrize(("first", "second"), FORMS)
def test_files_of_yolo(tmp_path, first, second):
    folder = tmp_path / spell(first, "Bäume")
    save_image(folder / "images" / "train" / spell(first, "é.png"))
    write(folder / "labels" / "train" / spell(second, "é.txt"), "0 0.5 0.5 0.5 0.5\n")
    write(tmp_path / "data.yaml", spell(second, f"train: Bäume/images/train\nnames: [{CLASSES[0]}]\n"))
    dataset = Yolo(str(tmp_path), "train", tmp_path)
    assert dataset.class_names == [CLASSES[0]] and len(dataset.annotations(0).ids) == 1


@pytest.mark.parametrize(("first", "second"), FORMS)
def test_images_and_label_maps(tmp_path, first, second):
    save_image(tmp_path / "images" / "train" / spell(first, "é.png"))
    save_image(tmp_path / "masks" / "train" / spell(second, "é.png"), "L")
    match = find_layout(str(tmp_path))
    pairs = find_pairs(match, "train")
    assert len(pairs.images) == 1 and np.asarray(Image.open(pairs.labels[0])).max() == 1
