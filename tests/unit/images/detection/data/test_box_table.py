"""Boxes in tables: the forms of competitions are the same boxes; splits, classes, images without, and what is wrong."""

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.images.data.label_layouts import TableChoices
from paddlevit_dist.images.detection.data.box_table import BoxTable

BOXES = {"a": [(1, 2, 9, 9, "cat"), (4, 5, 10, 6, "dog")], "b": [(0, 0, 32, 24, "dog")]}  # x, y, width, height


@pytest.fixture(autouse=True)
def images(tmp_path):
    for name in "abc":
        Image.fromarray(np.full((24, 32, 3), 100, np.uint8)).save(tmp_path / f"{name}.png")


def opened(folder, text, split="train", choices=None, form=None):
    (folder / "boxes.csv").write_text(text)
    (folder / "cache").mkdir(exist_ok=True)
    return BoxTable(str(folder), split, folder / "cache", choices or TableChoices(), form)


def shown(dataset):
    """Return the boxes of each image, as BOXES has them."""
    found = {}
    for index in range(len(dataset)):
        truth = dataset.annotations(index)
        names = [dataset.class_names[label] for label in truth.labels]
        name = dataset.describe(index)[-5]
        found[name] = [(*map(round, box), label) for box, label in zip(truth.boxes.tolist(), names)]
    return found


def lines(heading, form, empty):
    """Write a table: ``form`` of each box, and ``empty`` for image c, which has none."""
    rows = [form(name, *box) for name, boxes in BOXES.items() for box in boxes]
    return "\n".join([heading, *rows, f"c,{empty}", ""])


FORMS = {
    "corners": (
        "filename,class,xmin,ymin,xmax,ymax",
        lambda n, x, y, w, h, c: f"{n}.png,{c},{x},{y},{x + w},{y + h}",
        ",,,,",
    ),
    "sides": (
        "image_id,x,y,width,height,Target",
        lambda n, x, y, w, h, c: f"{n},{x},{y},{w},{h},{c}",
        ",,,,No finding",
    ),
    "text": (
        "image_id,width,height,bbox,label",
        lambda n, x, y, w, h, c: f'{n},32,24,"[{x}.0, {y}.0, {w}.0, {h}.0]",{c}',
        "32,24,,",
    ),
    "corners as text": (
        "image,boxes_xyxy,label",
        lambda n, x, y, w, h, c: f'{n},"[{x}, {y}, {x + w}, {y + h}]",{c}',
        "[],",
    ),
    "fractions": (
        "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsGroupOf",
        lambda n, x, y, w, h, c: f"{n},xclick,{c},1,{x / 32},{(x + w) / 32},{y / 24},{(y + h) / 24},0",
        "verification,,0,,,,,0",
    ),
    "centers": (
        "image,label,x_center,y_center,width,height",
        lambda n, x, y, w, h, c: f"{n},{c},{(x + w / 2) / 32},{(y + h / 2) / 24},{w / 32},{h / 24}",
        ",,,,",
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_competitions_are_the_same_boxes(tmp_path, name):
    dataset = opened(tmp_path, lines(*FORMS[name]))
    assert shown(dataset) == {**BOXES, "c": []} and dataset.class_names == ["cat", "dog"]


def test_words_of_competitions(tmp_path):
    rows = ["a,cat 1.0 1 2 10 11 dog 0.5 4 5 14 11", "b,dog 1 0 0 32 24", "c,"]
    assert shown(opened(tmp_path, "\n".join(["image_id,PredictionString", *rows]))) == {**BOXES, "c": []}
    rows = ["a,1.0 1 2 9 9 0.5 4 5 10 6", "b,1 0 0 32 24", "c,"]
    found = opened(tmp_path, "\n".join(["image_id,PredictionString", *rows]))
    assert found.class_names == ["object"] and [len(each) for each in shown(found).values()] == [2, 1, 0]


def test_a_key_names_the_form(tmp_path):
    text = 'image,bbox\na,"[20, 10, 30, 20]"\nb,"[10, 5, 30, 20]"\n'
    with pytest.raises(UserError, match=r"look like corners .* set DATA.TABLE.BOXES xyxy"):
        opened(tmp_path, text)
    assert shown(opened(tmp_path, text, form="xyxy"))["a"] == [(20, 10, 10, 10, "object")]


def test_splits_folds_and_groups_of_objects(tmp_path):
    text = (
        "image,split,class_name,is_crowd,x1,y1,x2,y2\na,train,7,1,1,1,9,9\nb,train,10,0,1,1,9,9\nc,valid,7,0,2,2,9,9\n"
    )
    train, val = (opened(tmp_path, text, split) for split in ("train", "val"))
    assert train.class_names == ["7", "10"] and train.category_ids == (7, 10)
    assert train.count_crowds() == 1 and len(val) == 1 and BoxTable.has_validation(str(tmp_path))
    text = "image,fold,x1,y1,x2,y2\na,0,1,1,9,9\nb,1,1,1,9,9\nc,1,,,,\n"
    assert len(opened(tmp_path, text, "val", TableChoices(fold="1"))) == 2
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert opened(tmp_path, lines(*FORMS["corners"])).class_names == ["cat", "dog"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,x1,y1,x2,y2\na,1,2,,4\n", "boxes.csv, line 2, column x2: '': expected a number"),
        ("image,x1,y1,x2,y2\na,1,2,many,4\n", "line 2, column x2: 'many'"),
        ("image,bbox\na,\"{'x': 1, 'y': 2}\"\n", "line 2, column bbox: .* expected .x, y, width, height."),
        ('image,bbox\na,"[1, 2, 3]"\n', "line 2, column bbox"),
        ("image,PredictionString\na,1 2 3 4\n", "confidence x y width height"),
        ("image,x1,y1,x2,y2\nz,1,2,3,4\n", "1 of 1 image missing .* DATA.TABLE.IMAGES"),
        ("image,x1,y1,x2,y2\na,,,,\n", "no row has a box"),
        ("patient,x1,y1,x2,y2\na,1,2,3,4\n", "no column of images .* DATA.TABLE.IMAGE"),
        ("image,split,class,x1,y1,x2,y2\na,train,cat,1,2,3,4\nb,val,dog,1,2,3,4\n", "label that no training image has"),
        ("image,fold,x1,y1,x2,y2\na,0,1,2,3,4\na,1,1,2,3,4\nb,1,1,2,3,4\n", "one image several splits: a"),
        ("image,x,y,w,h\na,0.5,0.5,0.2,0.2\n", "DATA.TABLE.BOXES xywh, or cxcywh as in YOLO"),
        ("image,label\na,cat\n", "no boxes among its columns"),
    ],
)
def test_wrong_tables_are_refused(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        for split in ("train", "val"):
            opened(tmp_path, text, split)


def test_images_that_no_row_names_are_counted(tmp_path):
    text = "image,xmin,ymin,xmax,ymax,split\na.png,1,2,5,6,train\n"
    (line,) = [line for line in opened(tmp_path, text).notices if "next to these" in line]
    assert "not in" in line and "and not used" in line and "b.png" in line and "a.png" not in line.partition("used:")[2]
