"""What is annotated in images, for the table."""

import json
from typing import Any

from paddlevit_dist import UserError
from paddlevit_dist.images.detection.data.box_table import BoxTable
from paddlevit_dist.images.detection.data.coco import Coco
from paddlevit_dist.images.detection.data.voc import Voc
from paddlevit_dist.images.detection.data.yolo import Yolo
from paddlevit_dist.images.detection.json_lists import elements
from paddlevit_dist.images.run_lengths import parse_segmentation
from support.files.coco_writer import BOX, annotation, write_coco, write_image
from support.files.voc_writer import write_voc
from support.files.yolo_writer import write_darknet, write_yolo

_TRIANGLE = [[2.0, 3.0, 12.0, 3.0, 2.0, 11.0]]
_RUNS = {"size": [20, 30], "counts": [5, 10, 585]}


def _read(kind, folder):
    cache = folder / "cache"
    cache.mkdir(exist_ok=True)
    dataset = kind(str(folder), "train", cache)
    assert dataset.summary() and dataset.object_counts().shape == (len(dataset), 2)
    for index in range(len(dataset)):
        found, (height, width) = dataset.annotations(index), dataset.size(index)
        assert len(found.boxes) == len(found.labels) == len(found.areas) == len(found.is_crowd)
        assert len(found.labels) == 0 or 0 <= found.labels.min() <= found.labels.max() < dataset.num_classes
        for mask in found.masks or ():
            _drawn(mask, height, width, index in dataset.find_broken_masks())


def _drawn(mask, height, width, is_known_as_broken):
    try:
        assert parse_segmentation(mask, height, width).area <= height * width
    except ValueError as error:  # whoever learns from it says which object it is
        assert is_known_as_broken, f"not found when the file was opened: its segmentation {error}"
        raise UserError(str(error)) from error


def make_coco(folder):
    first = annotation(1, 11, BOX, segmentation=_TRIANGLE)
    return [
        write_coco(folder, [first, annotation(2, 12, BOX, 3, iscrowd=1, segmentation=_RUNS), annotation(3, 13, BOX)])
    ]


def read_coco(folder):
    _read(Coco, folder)


def make_voc(folder):
    write_voc(folder, {"train": ["1", "2"]})
    lists = folder / "ImageSets" / "Main" / "train.txt"
    return [folder / "Annotations" / "1.xml", folder / "Annotations" / "2.xml", lists]


def read_voc(folder):
    _read(Voc, folder)


def make_yolo(folder):
    write_yolo(folder, train="images/train")
    return [folder / "labels" / "train" / "1.txt", folder / "labels" / "train" / "7.txt", folder / "data.yaml"]


def make_darknet(folder):
    write_darknet(folder)
    return [folder / name for name in ("obj.data", "obj.names", "train.txt", "obj_train_data/a.txt")]


def read_yolo(folder):
    _read(Yolo, folder)


def make_table(folder):
    for number, name in enumerate("abc"):
        write_image(folder / f"{name}.png", 20, 30, number)
    rows = [
        "image,split,label,bbox,is_crowd",
        'a,train,cat,"[1, 2, 9.5, 9]",0',
        "c,train,,,",
        'b,train,dog,"[3,4,5,6]",1',
    ]
    (folder / "boxes.csv").write_text("\n".join(rows))
    return [folder / "boxes.csv"]


def read_table(folder):
    _read(BoxTable, folder)


def make_json(folder):
    content = {"a": [{"b": [1.5, -2e-3], "ä": None}] * 3, "c": {"d": True}, "e": []}
    (folder / "x.json").write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    return [folder / "x.json"]


def read_json(folder):
    content = (folder / "x.json").read_bytes()
    for parts in elements(folder / "x.json", dict.fromkeys("ae", Any)).values():
        for element in parts:
            assert 0 <= element.start < element.end <= len(content)
