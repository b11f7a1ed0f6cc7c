"""Every layout of maps of segments is found and read exactly; what does not fit is named."""

import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image
from support.files import segment_layouts as layouts
from support.networks.golden import arrays, description
from support.refusals import refusal_of

from paddlevit_dist.images.panoptic.data.panoptic_dataset import summarize_segments
from paddlevit_dist.images.panoptic.data.segment_maps import SegmentChoices, SegmentMaps
from paddlevit_dist.images.panoptic.guessing import guess_segments


def opened(root, split="val", **choices):
    cache = root / "cache"
    cache.mkdir(exist_ok=True)
    return SegmentMaps(str(root), split, cache, SegmentChoices(**choices))


def assert_read(dataset, truth, split):
    """The dataset has the split's images with the segments that were written, in any order of the segments."""
    expected = {name: own for (of_split, name), own in truth.items() if of_split == split}
    assert len(dataset) == len(expected)
    for index in range(len(dataset)):
        name = os.path.basename(dataset.describe(index)).removesuffix("_leftImg8bit.png").removesuffix(".jpg")
        class_map, ids, labels, crowds = expected[name]
        image, segments = dataset.read(index)
        assert image.size == (layouts.WIDTH, layouts.HEIGHT)
        np.testing.assert_array_equal(segments.class_map, class_map)
        found = sorted(zip(segments.ids.tolist(), segments.labels.tolist(), segments.is_crowd.tolist()))
        assert found == sorted(zip(ids, labels, crowds))
        assert segments.areas.tolist() == np.bincount(segments.places[segments.places >= 0]).tolist()
        assert dataset.read_segments(index).ids.tolist() == segments.ids.tolist()


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_every_layout_is_found_and_read_exactly(tmp_path, layout):
    truth = layouts.LAYOUTS[layout](tmp_path)
    assert guess_segments(str(tmp_path)).dataset == "panoptic"
    for split in ("train", "val"):
        assert_read(opened(tmp_path, split), truth, split)
    dataset = opened(tmp_path)
    things = {name for name, flag in zip(dataset.class_names, dataset.is_thing) if flag}
    if dataset.num_classes == 150:
        assert len(things) == 100 and {"bed", "flag"} <= things and "wall" not in things
    else:
        known = {"car", "person", "rider", "truck", "bus", "train", "motorcycle", "bicycle"}
        assert things == known & {*dataset.class_names}
    assert len(dataset.palette) == dataset.num_classes == len(dataset.category_ids)


def test_json_files_anywhere(tmp_path):
    truth = layouts.elsewhere(tmp_path)
    for split in ("train", "val"):
        names = {"annotations": f"truth_{split}.json", "images": f"photos_{split}"}
        assert_read(opened(tmp_path, split, **names), truth, split)
    content = json.loads((tmp_path / "truth_val.json").read_text())
    del content["images"]  # then by the names of the maps
    orders = []
    for _ in range(2):  # images are in the order of folders, whatever the file's is, so that a seed draws the same ones
        content["annotations"].reverse()
        (tmp_path / "truth_val.json").write_text(json.dumps(content))
        dataset = opened(tmp_path, annotations="truth_val.json", images="photos_val")
        assert_read(dataset, truth, "val")
        orders.append([dataset.describe(index) for index in range(len(dataset))])
    assert orders[0] == orders[1] == sorted(orders[0])
    message = refusal_of(opened, tmp_path, annotations="truth_val.json", images="photos_train/nothing")
    assert "which does not exist" in message and "DATA.TRAIN_IMAGES and VAL_IMAGES" in message
    content["annotations"][0]["file_name"] = "../x.png"
    (tmp_path / "truth_val.json").write_text(json.dumps(content))
    assert "outside of the folders" in refusal_of(opened, tmp_path, annotations="truth_val.json", images="photos_val")


def test_golden_eomt_maps_are_what_the_authors_reader_makes_of_them(tmp_path):
    stored, maps = description("eomt")["panoptic"], arrays("eomt")
    by_id = {category["id"]: category for category in stored["categories"]}
    names = [
        by_id.get(of, {"id": of, "name": str(of), "isthing": int(place < 80)})
        for place, of in enumerate(stored["coco_ids"])
    ]
    (tmp_path / "annotations").mkdir()
    content = {"images": stored["images"], "annotations": stored["annotations"], "categories": names}
    (tmp_path / "annotations" / "panoptic_val2017.json").write_text(json.dumps(content))
    for number, (image, entry) in enumerate(zip(stored["images"], stored["annotations"])):
        layouts.photo(tmp_path / "val2017" / image["file_name"], (image["height"], image["width"]))
        layouts.save(
            tmp_path / "annotations" / "panoptic_val2017" / entry["file_name"], maps[f"panoptic/truth{number}"]
        )
    with Image.open(tmp_path / "annotations" / "panoptic_val2017" / stored["annotations"][0]["file_name"]) as first:
        np.testing.assert_array_equal(np.asarray(first)[:8, :8], maps["panoptic/rgb0"])
    dataset = opened(tmp_path)
    for index, expected in enumerate(stored["dataset"]):
        segments = dataset.read_segments(index)
        order = np.argsort(segments.ids)
        order = order[np.isin(order, segments.places)]  # the authors' reader takes what has pixels
        assert segments.labels[order].tolist() == expected["labels"]
        assert segments.is_crowd[order].tolist() == expected["is_crowd"]
        assert [int((segments.places == row).sum()) for row in order] == expected["areas"]


def test_images_that_a_json_file_lacks_are_not_read(tmp_path):
    truth = layouts.coco(tmp_path)
    for suffix in ("jpg", "png"):
        for file in [file for file in tmp_path.rglob(f"*.{suffix}") if "val2017" in str(file)]:
            shutil.copy(file, file.with_stem(f"{file.stem}_more"))
    dataset = opened(tmp_path)
    assert_read(dataset, truth, "val")
    assert any(line.endswith("label maps; the others are not used") for line in dataset.notices)


def changed(root, change, split="val"):
    file = root / "panoptic" / f"{split}.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda content: content["annotations"].clear(), "lists none of the label maps"),
        (lambda content: content["annotations"].append(content["annotations"][0]), "twice"),
        (lambda content: content["categories"].pop(), "has no category for each segment of"),
        (lambda content: content["categories"][1].update(id=3), "two categories with the id 3"),
        (lambda content: content["categories"][1].pop("isthing"), "categories without isthing"),
        (lambda content: content["categories"][1].update(isthing=2), "isthing 2"),
        (lambda content: content["annotations"][0]["segments_info"][0].update(iscrowd=2), "iscrowd 2"),
        (lambda content: content["annotations"][0]["segments_info"][0].update(id=-1), "has no category for each"),
        (lambda content: content.pop("annotations"), "it is not a COCO panoptic file"),
    ],
)
def test_json_that_does_not_fit_is_refused(tmp_path, change, words):
    layouts.own_coco(tmp_path)
    changed(tmp_path, change)
    assert words in refusal_of(opened, tmp_path)


def test_maps_that_do_not_fit_name_file_and_pixel(tmp_path):
    layouts.own_coco(tmp_path)
    changed(tmp_path, lambda content: content["annotations"][0]["segments_info"].pop())
    message = refusal_of(opened(tmp_path).read, 0)
    assert "000000000139.png: pixel (" in message and "has the number 3000000, which no segment has" in message
    layouts.photo(tmp_path / "images" / "train" / "000000000139.jpg", (12, 17))
    assert "17 x 12 pixels" in refusal_of(opened(tmp_path, "train").read, 0)


def test_ade20k_maps_that_do_not_fit_are_refused(tmp_path):
    layouts.ade20k_instances(tmp_path)
    file = tmp_path / "annotations_instance" / "validation" / "ADE_val_00000001.png"
    layouts.save(file, layouts.bands([0, 101 + 256]))
    message = refusal_of(opened(tmp_path).read, 0)
    assert "is of class 101: expected 1 to 100" in message and str(file) in message
    layouts.save(file, layouts.bands([0]).repeat(2, axis=0))
    assert "annotations/validation/ADE_val_00000001.png has 18 x 12" in refusal_of(opened(tmp_path).read, 0)
    layouts.save(file, layouts.bands([0, 1]), as_colors=False)
    assert "expected colors here" in refusal_of(opened(tmp_path).read, 0)
    assert "remove PANOPTIC.CATEGORIES" in refusal_of(opened, tmp_path, categories="categories.json")


def test_numbers_of_unknown_categories_are_refused(tmp_path):
    layouts.own_ids(tmp_path)
    message = refusal_of(opened(tmp_path, divisor=100).read, 0)
    assert "of category 30, which is unknown" in message and "PANOPTIC.ID_DIVISOR" in message
    (tmp_path / "categories.json").unlink()
    assert 'categories.json, a list such as [{"id": 1, "name": "car", "isthing": 1}]' in refusal_of(opened, tmp_path)
    (tmp_path / "other.json").write_text(json.dumps({"categories": layouts.CATEGORIES}))
    assert opened(tmp_path, categories="other.json").class_names == ["car", "person", "road"]
    (tmp_path / "other.json").write_text("[1]")
    assert "it is not a list of categories" in refusal_of(opened, tmp_path, categories="other.json")


def test_a_folder_without_maps_is_refused(tmp_path):
    (tmp_path / "images" / "val").mkdir(parents=True)
    assert "no maps of segments found" in refusal_of(opened, tmp_path)
    assert guess_segments(str(tmp_path)) is None
    assert "does not exist" in refusal_of(guess_segments, str(tmp_path / "nothing"))


def test_cityscapes_images_have_the_ids_of_its_own_tools(tmp_path):
    for layout in ("cityscapes", "cityscapes_instance_ids"):
        layouts.LAYOUTS[layout](tmp_path / layout)
        dataset = opened(tmp_path / layout)
        assert [dataset.image_id(index) for index in range(len(dataset))] == ["lindau_000000_000019"]


def test_areas_that_are_not_the_pixels_are_told(tmp_path):
    layouts.own_coco(tmp_path)
    assert not [line for line in summarize_segments(opened(tmp_path), "val") if "the pixels count" in line]
    changed(tmp_path, lambda content: content["annotations"][0]["segments_info"][0].update(area=1))
    line = summarize_segments(opened(tmp_path), "val")[-1]
    assert line.startswith("warning: val: 1 segment with an area in the file that is not the number of pixels")
