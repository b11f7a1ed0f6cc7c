"""Images with boxes in data files."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from support.files.hub_files import IMAGE, classes, images, picture, write_parquet

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.manifest import BOX_LABELS
from paddlevit_dist.images.data.hub.columns import HubChoices
from paddlevit_dist.images.data.hub.opening import HubOptions
from paddlevit_dist.images.detection.data.hub_boxes import HubBoxes
from paddlevit_dist.images.detection.data.samples import DetectionSamples

BOX = {"_type": "List", "length": 4, "feature": {"_type": "Value", "dtype": "float32"}}


@pytest.fixture(autouse=True)
def unpacked(tmp_path, monkeypatch):
    monkeypatch.setenv("PADDLEVIT_DIST_CACHE", str(tmp_path / "shared"))


def write(root, objects, label=None, **columns):
    number = len(objects if isinstance(objects, list) else next(iter(objects.values())))
    label = label or classes()
    fields = {"bbox": BOX, "category": label}
    features = {"image": IMAGE, "objects": [fields]}
    table = {"image": images(range(number)), "objects": pa.array(objects), **columns}
    write_parquet(root / "train.parquet", table, features if label != "none" else None)
    return str(root)


ROWS = [
    [
        {"bbox": [1.0, 2.0, 3.5, 4.0], "category": 2, "iscrowd": 1},
        {"bbox": [0.0, 0.0, 5.0, 5.0], "category": 0, "iscrowd": 0},
    ],
    [],
    None,
    [
        {"bbox": [2.0, 1.0, 2.0, 2.0], "category": -1, "iscrowd": 0},
        {"bbox": [2.0, 1.0, 4.0, 2.0], "category": 1, "iscrowd": 0},
    ],
]


def test_objects_of_both_forms_are_the_same_boxes_in_another_process(tmp_path, cache):
    listed = write(tmp_path / "listed", ROWS)
    lists = [{field: [each[field] for each in row or ()] for field in ("bbox", "category", "iscrowd")} for row in ROWS]
    as_lists = {
        name: {"_type": "List", "feature": feature} for name, feature in (("bbox", BOX), ("category", classes()))
    }
    columns = {"image": images(range(4)), "objects": pa.array(lists)}
    as_lists["iscrowd"] = {"_type": "List", "feature": {"_type": "Value", "dtype": "int64"}}
    write_parquet(tmp_path / "lists" / "train.parquet", columns, {"image": IMAGE, "objects": as_lists})
    for root, crowds in ((listed, [False, False]), (str(tmp_path / "lists"), [True, False])):
        opened = HubBoxes(root, "train", cache)
        dataset = pickle.loads(pickle.dumps(opened))
        found = [dataset.annotations(index) for index in range(4)]
        assert [each.boxes.tolist() for each in found] == [[[1, 2, 3.5, 4], [0, 0, 5, 5]], [], [], [[2, 1, 4, 2]]]
        assert [each.labels.tolist() for each in found] == [[2, 0], [], [], [1]] and found[0].areas.tolist() == [14, 25]
        assert found[0].is_crowd.tolist() == crowds or root == listed
        assert dataset.class_names == ["ant", "bee", "cow"] and dataset.sizes.tolist() == [
            [7, 10 + k] for k in range(4)
        ]
        image, truth = dataset.read(3)
        assert image.size == (13, 7) and truth.boxes.tolist() == [[2, 1, 4, 2]] and dataset.missing() == []
        assert any("1 object without a class, not used" in line for line in opened.notices)


@pytest.mark.parametrize(
    ("name", "boxes", "wanted"),
    [
        ("bbox", [[1, 2, 3, 4]], [1, 2, 3, 4]),
        ("bbox_xyxy", [[1, 2, 4, 6]], [1, 2, 3, 4]),
        ("cxcywh", [[2.5, 4, 3, 4]], [1, 2, 3, 4]),
    ],
)
def test_the_name_of_the_column_tells_how_boxes_are_written(tmp_path, cache, name, boxes, wanted):
    columns = {"image": images([5]), name: [boxes], "label": [["cow"]]}
    write_parquet(tmp_path / "d" / "train.parquet", columns)
    dataset = HubBoxes(str(tmp_path / "d"), "train", cache)
    assert dataset.annotations(0).boxes.tolist() == [wanted] and dataset.class_names == ["cow"]


def test_numbers_without_names_are_ids_of_categories(tmp_path, cache):
    objects = [[{"bbox": [0.0, 0.0, 2.0, 2.0], "category": 7}], [{"bbox": [0.0, 0.0, 2.0, 2.0], "category": 3}]]
    write_parquet(tmp_path / "d" / "train.parquet", {"image": images([1, 2]), "objects": pa.array(objects)})
    dataset = HubBoxes(str(tmp_path / "d"), "train", cache)
    assert dataset.category_ids == (3, 7) and [dataset.annotations(k).labels.tolist() for k in (0, 1)] == [[1], [0]]
    rows = [[{"bbox": [0.0, 0.0, 2.0, 2.0]}], []]
    write_parquet(tmp_path / "e" / "train.parquet", {"image": images([1, 2]), "objects": pa.array(rows)})
    assert HubBoxes(str(tmp_path / "e"), "train", cache).class_names == ["object"]


def test_boxes_of_class_minus_one_have_none(tmp_path, cache):
    objects = [{"bbox": [[0, 0, 5, 5], [1, 1, 4, 4]], "category": [-1, 3]}, {"bbox": [[2, 2, 3, 3]], "category": [0]}]
    write_parquet(tmp_path / "d" / "train.parquet", {"image": images([1, 2]), "objects": objects})
    dataset = HubBoxes(str(tmp_path / "d"), "train", cache)
    assert dataset.class_names == ["0", "3"] and [dataset.annotations(k).labels.tolist() for k in (0, 1)] == [[1], [0]]
    assert any("1 object without a class, not used" in notice for notice in dataset.notices)


@pytest.mark.parametrize(
    ("name", "box"), [("bbox", [1, 2, -3, 4]), ("bbox_xyxy", [5, 5, 2, 2]), ("bbox", [1, 2, 0, 0])]
)
def test_boxes_without_an_area_are_told(tmp_path, cache, name, box):
    objects = [{name: [box, [1, 1, 3, 3]], "category": [0, 1]}]
    write_parquet(tmp_path / "d" / "train.parquet", {"image": images([1]), "objects": objects})
    dataset = HubBoxes(str(tmp_path / "d"), "train", cache)
    assert dataset.annotations(0).is_learnable.tolist() == [False, True]
    told = [notice for notice in dataset.notices if "1 object" in notice]
    assert len(told) == 1 and "without an area, skipped in training" in told[0]


def test_sizes_tell_whether_boxes_are_of_turned_images(tmp_path, cache):
    exif = Image.Exif()
    exif[0x0112] = 6
    rows = [{"bytes": picture(3, "JPEG", exif=exif), "path": None}]
    objects = [[{"bbox": [0.0, 0.0, 2.0, 2.0], "category": 0}]]
    for width, height, is_turned in ((13, 7, False), (7, 13, True), (None, None, True)):
        columns = {"image": pa.array(rows), "objects": pa.array(objects)}
        columns |= {} if width is None else {"width": [width], "height": [height]}
        root = tmp_path / str(width)
        write_parquet(root / "train.parquet", columns)
        dataset = HubBoxes(str(root), "train", cache)
        assert dataset.reading.exif_rotate is is_turned and dataset.read(0)[0].size == (
            (7, 13) if is_turned else (13, 7)
        )


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([[{"bbox": [0.0, 0.0, 2.0], "category": 0}]], "a list of 3 numbers, expected 4"),
        ([[{"bbox": [0.0, 0.0, float("nan"), 1.0], "category": 0}]], "row 0 of its split has a box that is not four"),
        ([[{"bbox": [0.0, 0.0, 2.0, 1.0], "category": 5}]], "class 5, expected 0 to 2"),
        (
            [{"bbox": [[0.0, 0.0, 2.0, 1.0]], "category": [0, 1]}],
            "row 0 of its split has 1 box, but 2 in objects.category",
        ),
        ([[{"bbox": ["a", "b", "c", "d"], "category": 0}]], "expected numbers, found string"),
        ([[{"bbox": [5.0, 3.0, 9.0, 7.0], "category": 0}] * 4], "look like corners x0, y0, x1, y1"),
    ],
)
def test_wrong_objects_end_in_one_line(tmp_path, cache, objects, message):
    features = {"bbox": {"_type": "List", "feature": BOX}, "category": {"_type": "List", "feature": classes()}}
    stored = features if isinstance(objects[0], dict) else [{"bbox": BOX, "category": classes()}]
    columns = {"image": images(range(len(objects))), "objects": pa.array(objects)}
    write_parquet(tmp_path / "d" / "train.parquet", columns, {"image": IMAGE, "objects": stored})
    with pytest.raises(UserError, match=message) as raised:
        HubBoxes(str(tmp_path / "d"), "train", cache, HubOptions(HubChoices(), BOX_LABELS))
    assert "\n" not in str(raised.value)


def test_counts_and_listed_content_are_of_the_objects(tmp_path, cache):
    dataset = HubBoxes(write(tmp_path / "d", ROWS), "train", cache)
    assert dataset.class_counts().tolist() == [[1, 1], [1, 1], [1, 1]] and len(
        dataset.listed()["boxes"].__class__.__name__
    )
    assert np.array_equal(dataset.image_ids, [1, 2, 3, 4]) and dataset.identity(1) == "train.parquet/1"


def test_masks_that_are_not_read_are_told_and_asked_for_in_another_form(tmp_path, cache):
    objects = pa.array(
        [[{"bbox": [1.0, 2.0, 3.0, 4.0], "category": 1, "segmentation": [[1.0, 2.0, 4.0, 2.0, 4.0, 6.0]]}]]
    )
    write_parquet(tmp_path / "d" / "train.parquet", {"image": images([0]), "objects": objects})
    dataset = HubBoxes(str(tmp_path / "d"), "train", cache)
    assert any("; masks in objects.segmentation are not read" in line for line in dataset.notices)
    with pytest.raises(
        UserError, match="boxes but no masks, as objects.segmentation is not read .write a file in COCO"
    ):
        DetectionSamples(dataset, lambda view, generator: view, is_training=True, with_masks=True)
