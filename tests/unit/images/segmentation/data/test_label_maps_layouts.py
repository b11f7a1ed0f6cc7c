"""Images with label maps in each original layout: found by their path alone, with the classes of their authors."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.files.label_map_layouts import (
    LAYOUTS,
    SIZE,
    cityscapes,
    coco_panoptic,
    coco_stuff_10k,
    numbers,
    photo,
    save,
    voc,
)

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.lookup import guess_dataset
from paddlevit_dist.core.registry.manifest import MASK_LABELS
from paddlevit_dist.images.segmentation.data.label_maps import LabelChoices, LabelMaps


@pytest.fixture
def root(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def opened(root):
    def open_split(split="train", name=None, **choices):
        return LabelMaps(str(root), split, root.parent / "cache", name, LabelChoices(**choices))

    return open_split


def require_truth(open_split, truth):
    for split in {split for split, _ in truth}:
        dataset = pickle.loads(pickle.dumps(open_split(split)))
        names = [Path(dataset.describe(index)).stem for index in range(len(dataset))]
        assert sorted(names) == sorted(name for of, name in truth if of == split)
        for index, name in enumerate(names):
            image, labels = dataset.read(index)
            assert image.mode == "RGB" and image.size == SIZE[::-1]
            assert labels.dtype == np.uint8 and np.array_equal(labels, truth[split, name])
            np.testing.assert_array_equal(dataset.read_labels(index), labels, strict=True)


@pytest.mark.parametrize("dataset", LAYOUTS)
def test_every_layout_is_found_by_its_path_and_read_exactly(dataset, root, opened):
    write, number, ends = LAYOUTS[dataset]
    truth = write(root)
    assert guess_dataset(str(root), "image_segmentation").dataset == dataset
    require_truth(opened, truth)
    for found in (opened("train"), opened("train", dataset)):
        assert (found.num_classes, len(found.class_names)) == (number, number)
        assert (found.class_names[0], found.class_names[-1]) == ends
        assert found.palette is None or found.palette.shape == (number, 3)


def test_other_forms_of_published_sets(root, opened):
    require_truth(opened, cityscapes(root, "labelTrainIds"))
    assert opened().palette[0].tolist() == [128, 64, 128]


@pytest.mark.parametrize("is_10k", [False, True])
def test_coco_stuff_as_mmsegmentation_writes_it(is_10k, root, opened):
    known = [0, 1, 171] if is_10k else [0, 170, 255]  # 171 classes from 1 on, or from 0 on
    values, year = numbers(0, known), "2014" if is_10k else "2017"
    photo(root / f"images/train{year}/a.jpg")
    save(root / f"annotations/train{year}/a_labelTrainIds.png", values)
    if is_10k:
        (root / "imageLists").mkdir()
        (root / "imageLists" / "train.txt").write_text("a\n")
    expected = np.where(values == 0, 255, values - 1) if is_10k else values
    for name in (None, "coco_stuff"):
        assert opened("train", name).num_classes == 171
        assert np.array_equal(opened("train", name).read_labels(0), expected)


def test_coco_stuff_10k_as_published(root, opened):
    require_truth(opened, coco_stuff_10k(root))


def test_pascal_context_with_its_background(root, opened):
    voc(root, "SegmentationClassContext", "SegmentationContext", (0, 1, 59))
    dataset = opened(reduce_zero_label=False)
    assert dataset.num_classes == 60 and dataset.class_names[0] == "background"
    assert set(np.unique(dataset.read_labels(0))) == {0, 1, 59}


def own(root, name, values, **options):
    photo(root / name.format("images", "jpg"))
    save(root / name.format("masks", "png"), values, **options)


@pytest.mark.parametrize(
    "name",
    ["{0}/train/a b.{1}", "train/{0}/ä.{1}", "{0}/a.{1}", "{0}/Train/x/y.{1}"],
)
def test_own_folders_in_many_orders(name, root, opened):
    values = numbers(0, [0, 1, 2])
    own(root, name, values)
    dataset = opened()
    assert guess_dataset(str(root), "image_segmentation").dataset == "label_maps"
    assert dataset.class_names == ["0", "1", "2"] and np.array_equal(dataset.read(0)[1], values)


@pytest.mark.parametrize(
    "beside", ["train/a_mask.png", "train_labels/a_L.png", "masks/train/a.PNG", "train_mask/a.gif"]
)
def test_label_maps_beside_images_or_with_an_end_of_their_name(beside, root, opened):
    values = numbers(0, [0, 1])
    photo(root / "train" / "a.JPG", format="JPEG")
    save(root / beside, values)
    assert len(opened()) == 1 and np.array_equal(opened().read_labels(0), values)


@pytest.mark.parametrize("name, between", [("{}.txt", " "), ("{}_list.txt", "\t")])
def test_lists_of_pairs(name, between, root, opened):
    values = {split: numbers(len(split), [0, 1, 2]) for split in ("train", "val")}
    for split, labels in values.items():
        photo(root / "JPEGImages" / f"{split} 1.jpg")
        save(root / "Annotations" / f"{split}.png", labels)
        line = between.join((f"JPEGImages/{split} 1.jpg", f"Annotations/{split}.png"))
        (root / name.format(split)).write_text(f"{line}\n")
    (root / "labels.txt").write_text("a\nb\nc\n")
    assert guess_dataset(str(root), "image_segmentation").dataset == "label_maps"
    require_truth(opened, {(split, f"{split} 1"): labels for split, labels in values.items()})
    (root / "Annotations" / "val.png").unlink()
    with pytest.raises(UserError, match="names .*Annotations/val.png, which does not exist"):
        opened("val")
    for split in ("train", "val"):  # of another machine; one in the other spelling of paths
        elsewhere = [f"D:\\data\\{k}.jpg{between}D:\\data\\{k}.png" for k in range(3)]
        (root / name.format(split)).write_text("\n".join(elsewhere))
    with pytest.raises(UserError, match=r"train\S* names .*data/0.jpg, .*data/0.png, .*data/1.jpg, which do not exist"):
        opened()
    (root / name.format("train")).write_text(line.replace("val", "train").replace("/", "\\"))
    assert len(opened()) == 1


def test_own_classes_in_folders_of_pascal_voc(root, opened):
    voc(root, known=(0, 1, 2, 255))
    (root / "VOCdevkit" / "VOC2012" / "classes.txt").write_text("none\ncrack\nrust\n")
    assert opened().class_names == ["none", "crack", "rust"]


FORMS = {
    "gray": {},
    "palette": {"palette": np.random.default_rng(0).integers(0, 255, (256, 3))},
    "three equal channels": {"mode": "RGB"},
    "opaque": {"mode": "RGBA"},
    "gray and opaque": {"mode": "LA"},
    "16 bits": {"mode": "I;16"},
}


@pytest.mark.parametrize("form", FORMS)
def test_numbers_in_every_form(form, root, opened):
    values = numbers(1, [0, 1, 2, 255])
    (root / "classes.txt").write_text("wall\nfloor\ntraffic light\n")
    own(root, "{0}/train/a.{1}", values, **FORMS[form])
    assert opened().class_names == ["wall", "floor", "traffic light"]
    assert np.array_equal(opened().read_labels(0), values)


def test_one_bit_and_0_with_255_are_two_classes(root, opened):
    values = numbers(1, [0, 255])
    own(root, "{0}/train/a.{1}", values, mode="1")
    assert np.array_equal(opened().read_labels(0), values // 255)
    save(root / "masks/train/a.png", values)
    (root / "classes.txt").write_text("sky\nbird\n")
    assert np.array_equal(opened().read_labels(0), values // 255)
    assert any("255 is the second class, bird" in notice for notice in opened().notices)
    save(root / "masks/train/a.png", np.full_like(values, 255))  # nothing is labeled yet
    assert set(np.unique(opened().read_labels(0))) == {255}


def test_classes_without_a_list_are_the_numbers_of_all_splits(root, opened):
    for split, values in (("train", [0, 7]), ("val", [0, 1, 4]), ("test", [2])):
        own(root, f"{{0}}/{split}/a.{{1}}", numbers(0, values))
    assert opened("val").class_names == ["0", "1", "2", "4", "7"]
    assert opened().notices == [
        f"train: 1 image in {root}: images and label maps",
        "no list of classes: 5, from the numbers in all 3 label maps (0, 1, 2, 4, 7); name them in classes.txt in "
        f"{root}",
    ]


def test_masks_that_were_saved_with_smoothing_are_refused(root, opened):
    own(root, "{0}/train/a.{1}", np.arange(256, dtype=np.uint8).reshape(16, 16).repeat(4, 0).repeat(4, 1))
    with pytest.raises(UserError, match="with 255 numbers and no list of classes: masks that were resized"):
        opened()


COLORS = np.array([(0, 0, 0), (128, 0, 0), (0, 128, 0)], np.uint8)
LISTS = {
    "classes.csv": "name,r,g,b\nVoid,0,0,0\ncar,128,0,0\ntree,0,128,0\n",
    "label_colors.txt": "0 0 0\tVoid\n128 0 0\tcar\n0 128 0\ttree\n",
    "labelmap.txt": "# label:color_rgb:parts:actions\nVoid:0,0,0::\ncar:128,0,0::\ntree:0,128,0::\n",
    "classes.json": '{"Void": [0, 0, 0], "car": "#800000", "tree": [0, 128, 0]}',
    "meta.json": '{"classes": [{"title": "Void", "color": "#000000"}, {"title": "car", "color": "#800000"}, '
    '{"title": "tree", "color": "#008000"}]}',
}


@pytest.mark.parametrize("file", LISTS)
@pytest.mark.parametrize("palette", [False, True])
def test_colors_by_a_list_and_palettes_by_their_colors(file, palette, root, opened):
    values = numbers(2, [0, 1, 2])
    (root / file).write_text(LISTS[file])
    order = np.array([2, 0, 1])  # places in the palette are not the list's
    own(root, "{0}/train/a.{1}", *((order[values],) if palette else (COLORS[values],)),
        **({"palette": COLORS[np.argsort(order)]} if palette else {}))  # fmt: skip
    dataset = opened()
    assert dataset.class_names == ["car", "tree"] and dataset.palette.tolist() == COLORS[1:].tolist()
    assert np.array_equal(dataset.read_labels(0), np.array([255, 0, 1])[values])


@pytest.mark.parametrize(
    "file, content",
    [
        ("_classes.csv", "Pixel Value, Class\n3, wall\n7, big door\n"),
        ("id2label.json", '{"3": "wall", "7": "big door"}'),
        ("classes.txt", "3: wall\n7: big door\n"),
        ("classes.csv", "name;value\nwall;3\nbig door;7\n"),
    ],
)
def test_a_list_with_numbers(file, content, root, opened):
    own(root, "{0}/train/a.{1}", numbers(3, [3, 7]))
    (root / file).write_text(content)
    assert opened().class_names == ["wall", "big door"] and set(np.unique(opened().read_labels(0))) == {0, 1}


def test_numbers_from_1_with_0_for_nothing(root, opened):
    values = numbers(3, [0, 1, 2])
    own(root, "{0}/train/a.{1}", values)
    (root / "classes.txt").write_text("wall\nfloor\n")
    with pytest.raises(UserError, match=r"a.png has the label 2 at row 0, column 2, .*REDUCE_ZERO_LABEL true"):
        opened().read_labels(0)
    assert np.array_equal(opened(reduce_zero_label=True).read_labels(0), np.array([255, 0, 1])[values])


def bad_map(root, **options):
    values = numbers(0, [0, 1])
    own(root, "{0}/train/a.{1}", values)
    save(root / "masks/train/a.png", **options)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"pixels": np.zeros((5, 9))}, r"a.jpg has 9 x 6 pixels \(width x height\), but .*a.png has 9 x 5"),
        ({"pixels": np.zeros((9, 6))}, "turned before or after it was labeled: try DATA.EXIF_ROTATE true"),
        (
            {"pixels": np.full(SIZE, 7)},
            "a.png has the label 7 at row 0, column 0, which is unknown: labels are 0, 1, 255",
        ),
        ({"pixels": np.full(SIZE, 7000), "mode": "I;16"}, "has the label 7000 at row 0, column 0"),
        ({"pixels": numbers(0, [0, 1]), "format": "JPEG"}, "is a JPEG file, which changes class numbers"),
        ({"pixels": np.dstack([np.zeros((*SIZE, 3)), np.eye(6, 9)])}, "transparent at row 0, column 0"),
        ({"pixels": np.arange(162).reshape(*SIZE, 3)}, "has colors, and no list defines their classes"),
        ({"pixels": np.zeros((*SIZE, 3)), "mode": "CMYK", "format": "TIFF"}, "mode CMYK, expected a class number"),
    ],
)
def test_label_maps_that_fit_nothing_are_refused_with_file_and_pixel(options, message, root, opened):
    (root / "classes.txt").write_text("wall\nfloor\n") if "names" else None
    bad_map(root, **options)
    with pytest.raises(UserError, match=message):
        opened(class_list="classes.txt").read(0)


def test_an_unknown_color_names_its_pixel(root, opened):
    pixels = np.zeros((*SIZE, 3))
    pixels[4, 7] = 1, 2, 3
    (root / "classes.csv").write_text(LISTS["classes.csv"])
    own(root, "{0}/train/a.{1}", pixels)
    with pytest.raises(UserError, match=r"the color \(1, 2, 3\) at row 4, column 7"):
        opened().read_labels(0)


def test_images_without_maps_and_maps_without_images_are_told(root, opened):
    own(root, "{0}/train/a.{1}", numbers(0, [0, 1]))
    photo(root / "images/train/alone.jpg")
    save(root / "masks/train/extra.png", numbers(0, [0, 1]))
    told = " ".join(opened().notices)
    assert len(opened()) == 1 and "1 images of train have no label map" in told and "alone.jpg" in told
    assert "1 label maps of train have no image" in told and "extra.png" in told
    (root / "masks/train/a.png").unlink()
    with pytest.raises(UserError, match="no image of .*images/train has a label map in .*masks/train"):
        opened()


def test_a_list_that_names_what_is_missing(root, opened):
    voc(root)
    next((root / "VOCdevkit/VOC2012/SegmentationClass").glob("*32.png")).unlink()
    message = r"train.txt names 2007_000032, but .*SegmentationClass has no label map of that name$"
    with pytest.raises(UserError, match=message):
        opened()
    next((root / "VOCdevkit/VOC2012/SegmentationClass").glob("*.png")).unlink()
    with pytest.raises(UserError, match=r"has no label map of that name \(2 of \d are missing\)$"):
        opened()


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda content: content.update(categories={}), "it is not a COCO panoptic file"),
        (lambda content: content["categories"][0].update(color=[0, 256, 0]), "a color outside of 0 to 255"),
        (lambda content: content["categories"].pop(), "no category for each segment of .*panoptic_train2017/.*139.png"),
        (lambda content: content["annotations"].clear(), "lists none of the label maps"),
        (lambda content: content["annotations"][0]["segments_info"][0].update(id=1 << 24), "no category for each"),
    ],
)
def test_a_list_of_segments_that_does_not_fit_is_refused(change, message, root, opened):
    coco_panoptic(root)
    file = root / "annotations" / "panoptic_train2017.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"panoptic_train2017.json .*{message}"):
        opened()
    coco_panoptic(root)
    with pytest.raises(UserError, match="panoptic JSON contains the class names; remove DATA.CLASS_LIST"):
        opened(class_list="classes.txt")
    file.unlink()
    with pytest.raises(UserError, match=f"^{file} "):  # next to the folder, where the published files are
        opened()


def test_images_that_a_list_of_segments_lacks_are_not_read(root, opened):
    coco_panoptic(root)
    for folder, suffix in (("train2017", "jpg"), ("annotations/panoptic_train2017", "png")):
        shutil.copy(root / folder / f"000000000139.{suffix}", root / folder / f"000000000140.{suffix}")
    dataset = opened()
    assert len(dataset) == 1 and "000000000139" in dataset.describe(0)
    assert any("lists 1 of 2 label maps" in line for line in dataset.notices)


def test_an_empty_folder_and_splits_that_are_not_there(root, opened):
    with pytest.raises(UserError, match="no label maps found; expected a folder with images and label maps"):
        opened()
    own(root, "{0}/a.{1}", numbers(0, [0, 1]))
    with pytest.raises(UserError, match="no ade20k found, but images and label maps: -dataset=label_maps"):
        opened("train", "ade20k")
    with pytest.raises(UserError, match="no split 'val'.*set DATA.VAL_FRACTION to split the training set"):
        opened("val")
    for name, said in (("ade20k", "ade20k"), (None, "label_maps")):
        with pytest.raises(UserError, match=f"^dataset {said} needs -data_path=<folder>, with images and label maps, "):
            LabelMaps(None, "train", root, name)


def test_outlines_of_unknown_classes_and_what_is_outside_of_them(root, opened):
    LAYOUTS["labelme"][0](root)
    (root / "labels.txt").write_text("__ignore__\n_background_\ncat\n")
    with pytest.raises(
        UserError, match="a.json: a.jpg: shape 0 is of class 'dog', which is unknown, at row 1, column 1"
    ):
        opened().read_labels(0)
    (root / "labels.txt").write_text("__ignore__\ncat\ndog\n")
    dataset = opened(is_unlabeled_ignored=True)
    assert dataset.class_names == ["cat", "dog"] and set(np.unique(dataset.read_labels(0))) == {0, 1, 255}


@pytest.mark.parametrize(
    "shape, message",
    [
        ({"points": [[1, 1], [1e12, 1]], "shape_type": "circle"}, "far outside of any image"),
        ({"points": [[1, 1, 0]] * 4}, "not in Labelme's format"),  # two numbers each would be other corners
    ],
)
def test_corners_that_no_image_has(shape, message, root, opened):
    photo(root / "a.jpg", SIZE)
    (root / "a.json").write_text(json.dumps({"shapes": [{"label": "cat", **shape}], "imagePath": "a.jpg"}))
    with pytest.raises(UserError, match=message):
        opened().read_labels(0)


def test_turned_images_of_outlines(root, opened):
    LAYOUTS["labelme"][0](root)
    exif = Image.Exif()
    exif[0x0112] = 6
    photo(root / "a.jpg", SIZE[::-1], exif=exif)
    assert opened().read(0)[0].size == SIZE[::-1]  # the file says the size of the turned image
    with pytest.raises(UserError, match="turned before or after it was labeled: try DATA.EXIF_ROTATE true"):
        opened(exif_rotate=False).read(0)
    assert opened().read_labels(0).shape == SIZE  # also without the image's pixels
    with pytest.raises(UserError, match="try DATA.EXIF_ROTATE true"):
        opened(exif_rotate=False).read_labels(0)


def test_boxes_and_label_maps_in_one_folder_are_decided_by_the_task(root):
    voc(root)
    annotation = root / "VOCdevkit/VOC2012/Annotations/2007_000032.xml"
    annotation.parent.mkdir()
    annotation.write_text("<annotation><object><name>cat</name></object></annotation>")
    assert guess_dataset(str(root)).dataset == guess_dataset(str(root), "detection").dataset == "voc"
    assert guess_dataset(str(root), "image_segmentation").dataset == "voc_segmentation"
    assert MASK_LABELS == LabelMaps.holds


def test_outlines_have_the_pixels_that_cocos_tools_give_them(root, opened):
    from pycocotools import mask as coco_masks

    generator = np.random.default_rng(5)
    height, width = 61, 83
    outlines = [generator.random((7, 2)) * (width, height) for _ in range(4)]
    shapes = [{"label": str(place), "points": outline.tolist()} for place, outline in enumerate(outlines)]
    shapes.append({"label": "4", "points": [[20.5, 9.5], [30, 14]], "shape_type": "rectangle"})
    shapes.append({"label": "5", "points": [[60, 40], [60, 52]], "shape_type": "circle"})
    photo(root / "a.jpg", (height, width))
    (root / "a.json").write_text(json.dumps({"shapes": shapes, "imagePath": "a.jpg"}))
    rectangle = np.array([(20.5, 9.5), (30, 9.5), (30, 14), (20.5, 14)])
    expected = np.zeros((height, width), np.uint8)
    for place, outline in enumerate([*outlines, rectangle]):
        runs = coco_masks.merge(coco_masks.frPyObjects([outline.ravel().tolist()], height, width))
        expected[coco_masks.decode(runs) == 1] = place + 1
    found = opened().read_labels(0)
    is_round = found == 6
    rows, columns = np.indices(found.shape)
    assert abs(is_round.sum() / (np.pi * 12**2) - 1) < 0.03
    assert np.hypot(columns + 0.5 - 60, rows + 0.5 - 40)[is_round].max() < 12.75
    np.testing.assert_array_equal(found[~is_round], expected[~is_round], strict=True)


@pytest.mark.parametrize("kind", ["circle", "rectangle"])
def test_a_shape_with_one_corner_is_refused_instead_of_left_out(root, opened, kind):
    LAYOUTS["labelme"][0](root)
    content = json.loads((root / "a.json").read_text())
    content["shapes"].append({"label": "dog", "points": [[7, 5]], "shape_type": kind})
    (root / "a.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"a\.json.*a {kind} of class 'dog' has 1 corners; expected 2"):
        opened().read_labels(0)


def test_labels_of_points_alone_are_no_classes(root, opened):
    LAYOUTS["labelme"][0](root)
    content = json.loads((root / "a.json").read_text())
    content["shapes"].append({"label": "nose", "points": [[7, 5]], "shape_type": "point"})
    (root / "a.json").write_text(json.dumps(content))
    assert opened().class_names == ["background", "cat", "dog"]
