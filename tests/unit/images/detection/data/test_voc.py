"""Pascal VOC's layout and what people make of it."""

import functools
import pickle
import re
import shutil

import pytest
from support.files.coco_writer import refused_by, write_image
from support.files.voc_writer import an_object, write_voc, write_xml
from support.refusals import refusal_of

from paddlevit_dist.core.settings import load
from paddlevit_dist.images.data.inspection import SplitInspection
from paddlevit_dist.images.detection.data import voc
from paddlevit_dist.images.detection.data.samples import open_samples
from paddlevit_dist.images.detection.data.voc import Voc

refused = functools.partial(refused_by, Voc)


@pytest.mark.parametrize("where", ["VOCdevkit/VOC2007", "VOC2007", ""])
def test_the_published_layout_with_boxes_from_pixel_1_and_difficult_ones_as_crowds(tmp_path, cache, where):
    part = "<part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>"
    hard = an_object("cat", (1, 1, 30, 20), "<difficult>1</difficult>" + part)
    objects = {"000005": [an_object(), hard], "000009": [an_object("person")]}
    root = tmp_path / "data"
    write_voc(root / where, {"train": ["000009", "000005"], "val": ["000007"]}, objects=objects)
    dataset = pickle.loads(pickle.dumps(Voc(str(root), "train", cache)))
    assert len(pickle.dumps(dataset)) <= 1200
    assert dataset.class_names == ["cat", "dog", "person"] and dataset.category_ids == (1, 2, 3)
    assert dataset.image_ids.tolist() == [9, 5] and dataset.sizes.tolist() == [[20, 30]] * 2
    image, found = dataset.read(1)
    assert image.size == (30, 20) and dataset.describe(1).endswith("JPEGImages/000005.png")
    assert found.boxes.tolist() == [[2, 3, 10, 10], [0, 0, 30, 20]] and found.areas.tolist() == [100, 600]
    assert found.labels.tolist() == [1, 0] and found.is_crowd.tolist() == [False, True] and found.masks is None
    told = Voc(str(root), "train", cache).notices
    assert any(
        "1 object marked as difficult: skipped in training and ignored in the evaluation" in line for line in told
    )
    val = Voc(str(root), "val", cache)
    assert len(val) == 1 and val.class_names == dataset.class_names  # those of the whole set


def test_several_years_are_joined_and_other_lists_named(tmp_path, cache, monkeypatch):
    bars = []
    monkeypatch.setattr(voc, "tqdm", lambda items, **options: bars.append((len(items), options)) or items)
    write_voc(tmp_path / "VOCdevkit" / "VOC2007", {"trainval": ["000001", "000002"], "test": ["000003"]})
    write_voc(tmp_path / "VOCdevkit" / "VOC2012", {"trainval": ["2008_000001"], "train": ["2008_000001"]})
    both = Voc(str(tmp_path), "train", cache, "trainval")
    assert both.image_ids.tolist() == [1, 2, 2008000001]
    assert both.notices[0] == "train: 3 images of VOC2007, VOC2012"
    options = {"desc": "reading XML", "unit": "file", "delay": 1.0, "disable": None, "leave": False}
    assert bars == [(4, options)]  # of all splits, since classes are those of the whole set
    assert len(Voc(str(tmp_path), "test", cache)) == 1
    for name in ("dog_train.txt", "about.md"):  # the images with a class, and no list
        (tmp_path / "VOCdevkit" / "VOC2012" / "ImageSets" / "Main" / name).write_text("2008_000001 1\n")
    message = refused(tmp_path, cache, "val")
    assert "has no split 'val' (-split): it has test, train, trainval; set DATA.VAL_FRACTION to split" in message


@pytest.mark.parametrize(
    ("annotations", "images", "split"),
    [
        *(("annotations", "images", "train"), ("train", "train", "train"), ("valid", "valid", "val")),
        *(("", "", "train"), ("Annotations", "JPEGImages", "train"), ("xmls", "img", "train")),
    ],
)
@pytest.mark.parametrize("suffix", [".xml", ".XML"])
def test_folders_without_lists(tmp_path, cache, annotations, images, split, suffix):
    root = tmp_path / "data"
    write_voc(root, {"": ["b", "a"]}, ".jpg", images, annotations)
    for file in [*root.rglob("*.xml")]:
        file.rename(file.with_suffix(suffix))
    (root / "ImageSets" / "Main" / ".txt").unlink()
    if images != "images":  # which stay: some programs make folders for lists, and none
        shutil.rmtree(root / "ImageSets")
    dataset = Voc(str(root), split, cache)
    assert dataset.image_ids.tolist() == [1, 2] and dataset.describe(0).endswith("a.jpg")
    assert dataset.read(0)[0].size == (30, 20)


def test_folders_are_the_splits_of_their_names_and_a_single_one_is_for_training(tmp_path, cache):
    folders = {"named": {"training2017": "ab", "valid": "c", "Holdout": "d"}, "years": {"2019": "a", "2020": "b"}}
    for root, parts in {**folders, "one": {"": "a"}}.items():
        for part, stems in parts.items():
            write_voc(tmp_path / root / part, {"": [*stems]})
            shutil.rmtree(tmp_path / root / part / "ImageSets")
    for split, stems in (("train", "ab"), ("val", "c"), ("holdout", "d")):
        dataset = Voc(str(tmp_path / "named"), split, cache)
        assert [dataset.describe(index)[-5] for index in range(len(dataset))] == [*stems]
    assert Voc.has_validation(str(tmp_path / "named")) and not Voc.has_validation(str(tmp_path / "one"))
    assert len(Voc(str(tmp_path / "one"), "train", cache)) == 1
    write_voc(tmp_path / "listed" / "val", {"some": ["a"]})
    for root, split in (("years", "train"), ("one", "val"), ("listed", "val"), ("listed", "train")):
        assert f"has no split '{split}'" in refused(tmp_path / root, cache, split)


def test_paths_of_windows(tmp_path, cache):
    write_voc(tmp_path, {"train": ["1"]})
    write_xml(tmp_path / "Annotations" / "2.xml", an_object(), name="C:\\images\\1.png")
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("JPEGImages\\2.jpg\n")
    assert Voc(str(tmp_path), "train", cache).describe(0).endswith("JPEGImages/1.png")
    (tmp_path / "JPEGImages" / "1.png").unlink()  # a missing image has the name that its annotation gives, if any
    write_image(tmp_path / "JPEGImages" / "3.png", 20, 30)
    for name, expected in (("C:\\images\\1.png", "JPEGImages/1.png"), ("", "JPEGImages/2.jpg")):
        write_xml(tmp_path / "Annotations" / "2.xml", an_object(), name=name)
        assert Voc(str(tmp_path), "train", cache).describe(0).endswith(expected)


def test_categories_follow_classes_txt_where_there_is_one(tmp_path, cache):
    write_voc(tmp_path, {"train": ["1"]})
    (tmp_path / "classes.txt").write_text("person\ndog\n")
    dataset = Voc(str(tmp_path), "train", cache)
    assert dataset.class_names == ["person", "dog"] and dataset.annotations(0).labels.tolist() == [1]
    (tmp_path / "classes.txt").write_text("person\n")
    assert "category 'dog' is not in classes.txt" in refused(tmp_path, cache)


def test_what_hand_made_files_have_is_taken_and_told(tmp_path, cache):
    objects = {"1": [an_object(box=box) for box in ((9, 3, 5, 9), (3, 9, 9, 5), (12, 3, 20, 9), (0, 0, 12.5, 40))]}
    write_voc(tmp_path, {"train": ["1", "2"]}, objects=objects)
    write_xml(tmp_path / "Annotations" / "2.xml", size=("?", 30))
    dataset = Voc(str(tmp_path), "train", cache)
    assert any(
        "2 objects whose last corner is before the first, skipped in training" in line for line in dataset.notices
    )
    assert any("1 image without a size in the XML file, measured" in line for line in dataset.notices)
    assert dataset.annotations(0).is_learnable.tolist() == [False, False, True, True]
    assert dataset.annotations(0).boxes.tolist() == [[8, 2, 0, 7], [2, 8, 7, 0], [11, 2, 9, 7], [-1, -1, 13.5, 41]]
    assert dataset.size(1) == (20, 30) and len(dataset.annotations(1).ids) == 0
    assert dataset.summary() == "2 images, 2 boxes: dog 2; 1 image without boxes"


def test_images_without_xml_are_told(tmp_path):
    write_voc(tmp_path, {"train": ["1", "2"]}, images="images", annotations="annotations")
    shutil.rmtree(tmp_path / "ImageSets")
    for stem in ("3", "4", "5"):
        write_image(tmp_path / "images" / f"{stem}.png", 20, 30)
    named = ["TASK", "detection", "MODEL.NAME", "detr_resnet50", "-dataset=voc", f"-data_path={tmp_path}"]
    for words, split in (([], "train"), (["DATA.VAL_FRACTION", "0.5"], "val")):
        config = load([*named, *words]).values
        samples = open_samples(config, split, tmp_path, split == "train", inspection=SplitInspection(False, False))
        line = f"3 images without annotations in the folder of {split} skipped, such as images/3.png"
        assert line in samples.notices


@pytest.mark.parametrize("zero", [(0, 3, 10, 13), (4, 0, 14, 10), (-1, -1, 5, 5)])
def test_boxes_that_are_written_from_0_are_told_and_read_so_where_asked(tmp_path, cache, zero):
    write_voc(tmp_path, {"train": ["1"]}, objects={"1": [an_object(box=zero), an_object(box=(3, 4, 12, 13))]})
    told = "1 object with corners at 0 or -1, although VOC counts pixels from 1: .* DATA.VOC_CORNERS edges"
    assert any(re.search(told, line) for line in Voc(str(tmp_path), "train", cache).notices)
    named = ["TASK", "detection", "MODEL.NAME", "detr_resnet50", "-dataset=voc", f"-data_path={tmp_path}"]
    config = load([*named, "DATA.VOC_CORNERS", "edges"]).values
    edges = Voc.open(config, "train", cache)
    x0, y0, x1, y1 = zero
    assert edges.annotations(0).boxes.tolist() == [[x0, y0, x1 - x0, y1 - y0], [3, 4, 9, 9]]
    assert not any("corners" in line for line in edges.notices)
    write_voc(tmp_path, {"train": ["1"]}, objects={"1": [an_object(box=(1, 1, 30, 20))]})
    assert not any("corners" in line for line in Voc(str(tmp_path), "train", cache).notices)


_GROWS = "".join(f'<!ENTITY a{step} "{f"&a{step - 1};" * 10}">' for step in range(1, 9))
HOSTILE = [
    f'<!DOCTYPE a [<!ENTITY a0 "ten bytes ">{_GROWS}]><annotation>&a8;</annotation>'.encode(),
    b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><annotation>&b;</annotation>',
    b"<a>" * 200_000,
    b"<annotation><object>",
    b"",
    b'<?xml version="1.0" encoding="nothing"?><annotation/>',
    b"\x00\xff" * 50,
    b" " * (1 << 24) + b"<annotation/>",
]


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_and_damaged_xml_is_refused_in_one_line(tmp_path, cache, content):
    write_voc(tmp_path, {"train": ["1"]})
    (tmp_path / "Annotations" / "1.xml").write_bytes(content)
    message = refused(tmp_path, cache)
    assert "Annotations/1.xml is not an annotation: it " in message and len(message) < 400


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_xml_is_read_in_any_encoding(tmp_path, cache, encoding):
    write_voc(tmp_path, {"train": ["1"]}, objects={"1": [an_object("B\xe4r")]})
    path = tmp_path / "Annotations" / "1.xml"
    path.write_bytes(f'<?xml version="1.0" encoding="{encoding}"?>{path.read_text("utf-8")}'.encode(encoding))
    assert Voc(str(tmp_path), "train", cache).class_names == ["B\xe4r"]


def test_missing_and_wrong_entries_name_their_file(tmp_path, cache):
    write_voc(tmp_path, {"train": ["1", "2"]})
    (tmp_path / "Annotations" / "2.xml").rename(tmp_path / "Annotations" / "3.xml")
    assert "Annotations/2.xml is missing, but a list of the split names it" in refused(tmp_path, cache)
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("".join(f"C:\\data\\{name}.jpg\n" for name in "15476"))
    message = refused(tmp_path, cache)
    assert "4.xml, " in message and "5.xml, " in message and "6.xml are missing" in message and "(4 of 5" in message
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("1\n2\n")
    write_xml(tmp_path / "Annotations" / "2.xml", an_object(box=(1, 2, "x", 4)))
    assert "2.xml: object 'dog' has bndbox/xmax 'x': expected a number of pixels" in refused(tmp_path, cache)
    write_xml(tmp_path / "Annotations" / "2.xml", an_object(name=" "))
    assert "2.xml: an object has no name" in refused(tmp_path, cache)
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("1\n1\n")
    assert "lists 1 twice" in refused(tmp_path, cache)
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("1\n2\n")
    file = tmp_path / "Annotations" / "2.xml"
    file.unlink()
    file.symlink_to(tmp_path / "moved" / "2.xml")
    assert refused(tmp_path, cache) == f"{file} cannot be read: No such file or directory"


def test_a_changed_file_is_noticed_and_an_empty_folder_told(tmp_path, cache):
    assert "has no XML annotations; expected a folder" in refused(tmp_path, cache)
    write_voc(tmp_path, {"train": ["1"]}, objects={"1": []})
    assert "has no XML file with an object; expected boxes in <object> elements" in refused(tmp_path, cache)
    write_voc(tmp_path, {"train": ["1"]})
    assert len(Voc(str(tmp_path), "train", cache).annotations(0).ids) == 1
    write_xml(tmp_path / "Annotations" / "1.xml", an_object(), an_object("bird"))
    changed = Voc(str(tmp_path), "train", cache)
    assert len(changed.annotations(0).ids) == 2 and changed.class_names == ["bird", "dog"]


def test_the_keys_name_other_lists(tmp_path, cache):
    write_voc(tmp_path, {"trainval": ["1", "2"], "test": ["3"]})
    words = ["TASK", "detection", "-dataset=voc", f"-data_path={tmp_path}", "DATA.TRAIN_ANNOTATIONS", "trainval"]
    loaded = load([*words, "DATA.VAL_ANNOTATIONS", "test", "DATA.TRAIN_IMAGES", "x"])
    assert [len(Voc.open(loaded.values, split, cache)) for split in ("train", "val")] == [2, 1]
    unread = [notice for notice in loaded.notices if "it is for coco" in notice]
    assert len(unread) == 1 and "TRAIN_IMAGES" in unread[0] and "ANNOTATIONS" not in unread[0]


def test_boxes_beyond_the_image_are_counted(tmp_path, cache):
    boxes = {"a": [(1, 1, 30, 20), (3, 4, 40, 13)], "b": [(3, 4, 12, 33), (0, 0, 31, 21), (-1, 4, 9, 9), (4, -1, 9, 9)]}
    objects = {stem: [an_object(box=box) for box in own] for stem, own in boxes.items()}
    write_voc(tmp_path, {"train": ["a", "b"]}, objects=objects)
    told = [line for line in Voc(str(tmp_path), "train", cache).notices if "exceeds the image" in line]
    assert len(told) == 1 and told[0].startswith("4 objects with a box that exceeds the image by more than")


@pytest.mark.parametrize("corners", ["pixels", "edges"])
def test_boxes_that_all_are_shares_of_their_images_are_refused(tmp_path, cache, corners):
    shares = {stem: [an_object(box=(0.1, 0.2, 0.5, 0.9)), an_object(box=(0, 0, 1, 1))] for stem in ("a", "b")}
    write_voc(tmp_path, {"train": ["a", "b"]}, objects=shares)
    message = refusal_of(Voc, str(tmp_path), "train", cache, corners=corners)
    assert message == (
        f"{tmp_path}: all of the 4 boxes are fractions of the images from 0 to 1: multiply by width and height"
    )
    shares["b"] = [an_object(box=(1, 1, 2, 2))]
    write_voc(tmp_path, {"train": ["a", "b"]}, objects=shares)
    assert len(Voc(str(tmp_path), "train", cache, corners=corners)) == 2
