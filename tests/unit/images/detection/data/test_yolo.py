"""YOLO's text files and what people make of them."""

import functools
import os
import pickle

import numpy as np
import pytest
from PIL import Image
from support.files.coco_writer import refused_by
from support.files.yolo_writer import LABELS, write_darknet, write_yolo
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.data.box_layouts import find_yolo_descriptions, find_yolo_outlines
from paddlevit_dist.images.data.data_warnings import DataWarnings
from paddlevit_dist.images.detection.data import yolo
from paddlevit_dist.images.detection.data.split_checks import check_files
from paddlevit_dist.images.detection.data.yolo import Yolo

refused = functools.partial(refused_by, Yolo)


def test_shares_become_pixels_and_outlines_become_masks(tmp_path, cache):
    write_yolo(tmp_path, train="images/train")
    dataset = pickle.loads(pickle.dumps(Yolo(str(tmp_path), "train", cache)))
    assert len(pickle.dumps(dataset)) <= 1200
    assert dataset.class_names == ["cat", "dog", "cow"] and dataset.category_ids == (0, 1, 2)
    assert dataset.image_ids.tolist() == [1, 7, 9] and dataset.sizes.tolist() == [[20, 40]] * 3
    image, found = dataset.read(0)
    assert image.size == (40, 20) and found.labels.tolist() == [0, 2]
    assert np.allclose(found.boxes, [[12, 4, 16, 12], [0, 2, 8, 4]]) and np.allclose(found.areas, [192, 32])
    assert np.allclose(found.masks[0], [[12, 4, 12, 16, 28, 16, 28, 4]])  # its box
    outlined = dataset.annotations(1)
    assert np.allclose(outlined.boxes, [[0, 0, 40, 20]]) and np.allclose(outlined.areas, [400])
    assert np.allclose(outlined.masks[0], [[0, 0, 40, 0, 20, 20]])
    assert len(dataset.annotations(2).ids) == 0 and dataset.has_masks
    notices = Yolo(str(tmp_path), "train", cache).notices
    assert notices[0] == f"train: 3 images of {tmp_path}/data.yaml"
    assert f"1 image without a label file, taken as without boxes, such as {tmp_path}/images/train/9.png" in notices


@pytest.mark.parametrize("images", ["images/train", "photos/train"])  # labels in their own folder, next to the images
def test_labels_may_have_suffixes_in_capitals(tmp_path, cache, images):
    write_yolo(tmp_path, images, train=images)
    expected = Yolo(str(tmp_path), "train", cache)
    for file in tmp_path.rglob("*.txt"):
        file.rename(file.with_suffix(".TXT"))
    dataset = Yolo(str(tmp_path), "train", cache)
    for index in range(3):
        boxes = dataset.annotations(index).boxes
        np.testing.assert_array_equal(boxes, expected.annotations(index).boxes)
        assert len(boxes) == (2, 1, 0)[index] and dataset.masks(index) == expected.masks(index)


def test_names_of_classes_are_the_words_in_the_file(tmp_path, cache):
    write_yolo(tmp_path, "1e3/images", names="names: {0: no, 1: 007, 2: null}\n", val="1e3/images")
    assert Yolo(str(tmp_path), "val", cache).class_names == ["no", "007", "null"]


@pytest.mark.parametrize(
    ("images", "names", "places", "split"),
    [
        ("images/val", "names: {0: cat, 1: dog, 2: cow}\n", {"val": "images/val"}, "val"),
        ("valid/images", "names: [a, b, c]\n", {"val": "../valid/images"}, "val"),
        ("sets/images/val", "path: sets\nnames: [a, b, c]\n", {"val": "images/val"}, "val"),
        ("images/train", "names: [a, b, c]\n", {"train": "list.txt"}, "train"),
        ("images/train/deep", "names: [a, b, c]\n", {"train": "[images/train]"}, "train"),
        ("images/train", None, {}, "train"),
        ("train/images", None, {}, "train"),
        ("images", None, {}, "train"),
        ("images/validation", "names: [a, b, c]\n", {}, "val"),
        ("val", None, {}, "val"),
    ],
)
def test_layouts(tmp_path, cache, images, names, places, split):
    root = tmp_path / "data"
    write_yolo(root, images, names=names, **places)
    (root / "list.txt").write_text("".join(f"./{images}/{stem}.png\n" for stem in LABELS))
    if names is None:
        (root / "classes.txt").write_text("a\nb\nc\n")
    dataset = Yolo(str(root), split, cache)
    assert len(dataset) == 3 and dataset.read(0)[1].labels.tolist() == [0, 2]
    assert dataset.describe(2) == str(root / images / "9.png")


WRONG = {
    "6 columns": ("0 0.5 0.5 0.1 0.1 0.93", "6 numbers as in results; remove the last one, the score"),
    "3 columns": ("0 0.5 0.5", "3 numbers; expected class x y width height"),
    "words": ("cat 0.5 0.5 0.1 0.1", "expected numbers"),
    "pixels": ("0 120 80 30 40", "expected fractions of the image from 0 to 1, not pixels"),
    "class 3 of 3": ("3 0.5 0.5 0.1 0.1", "there is no such class: data.yaml or classes.txt names 3, from 0 on"),
    "half a class": ("0.5 0.5 0.5 0.1 0.1", "there is no such class"),
    "not a number": ("0 nan 0.5 0.1 0.1", "expected fractions"),
    "no number at all": ("nan 0.5 0.5 0.1 0.1", "there is no such class"),
    "below all numbers": ("-inf 0.5 0.5 0.1 0.1", "there is no such class"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_line_is_named(tmp_path, cache, case):
    line, message = WRONG[case]
    write_yolo(tmp_path, labels={"1": f"0 0.5 0.5 0.1 0.1\n{line}\n"})
    said = refused(tmp_path, cache)
    assert f"labels/train/1.txt line 2: '{line}': " in said and message in said


def test_what_is_odd_is_kept_and_told(tmp_path, cache, monkeypatch):
    bars = []
    monkeypatch.setattr(yolo, "tqdm", lambda items, **options: bars.append((len(items), options)) or items)
    text = "0 0.5 0.5 0.1 0.1\n" * 2 + "1 0.95 0.5 0.3 0.1\n2.0 0.5 0.5 0 0.1\n1 -0.3 0.5 0.2 0.1\n"
    write_yolo(tmp_path, labels={"1": text})
    dataset = Yolo(str(tmp_path), "train", cache)
    told = "; ".join(dataset.notices)
    assert "1 line repeated in the same file, kept" in told and "1 box without an area, skipped in training" in told
    assert "1 line with a fraction outside 0 to 1, clipped for training" in told
    assert dataset.annotations(0).is_learnable.tolist() == [True, True, True, False, True]
    options = {"desc": "reading labels", "unit": "file", "delay": 1.0, "disable": None, "leave": False}
    assert bars == [(len(dataset), options)]


def test_what_is_missing_is_named(tmp_path, cache):
    write_yolo(tmp_path, names=None)
    assert "has no class names; expected data.yaml" in refused(tmp_path, cache)
    write_yolo(tmp_path, names="nc: 3\n")
    assert "data.yaml has no class names" in refused(tmp_path, cache)
    for names in ("{0: cat, one: dog}", "{0: cat, -1: dog}", "{0: cat, 1.0: dog}", "{}", "cat"):
        write_yolo(tmp_path, names=f"names: {names}\n")
        assert "data.yaml has no class names; expected names: [cat, dog], or a line 0: cat" in refused(tmp_path, cache)
    write_yolo(tmp_path, train="images/elsewhere")
    assert "data.yaml names images/elsewhere, which does not exist" in refused(tmp_path, cache)
    assert "has no split 'val' (-split): it has train; set DATA.VAL_FRACTION" in refused(tmp_path, cache, "val")
    (tmp_path / "data.yaml").write_text("names: [a, b")
    assert "data.yaml cannot be read: line" in refused(tmp_path, cache)
    (tmp_path / "images" / "train" / "1.jpg").write_bytes(b"")
    write_yolo(tmp_path)
    assert "has 1.jpg and 1.png: an annotation file would be for both" in refused(tmp_path, cache)


@pytest.mark.parametrize("place", ["/another/machine/images/train/", "C:\\\\data\\\\images\\\\train\\\\"])
def test_folders_of_another_machine_are_removed_from_a_list(tmp_path, cache, place):
    write_yolo(tmp_path, names="path: /another/machine\nnames: [a, b, c]\n", train="list.txt")
    (tmp_path / "list.txt").write_text(f"{place}1.png\n{place}11.png\n")
    dataset = Yolo(str(tmp_path), "train", cache)
    assert dataset.describe(0) == f"{tmp_path}/images/train/1.png"
    assert [os.path.basename(dataset.describe(index)) for index in dataset.missing()] == ["11.png"]


@pytest.mark.parametrize("place", ["/another/machine/pictures/", "photos/", "../train/"])
def test_a_list_whose_images_are_missing_is_named_with_three_of_them(tmp_path, cache, place):
    write_yolo(tmp_path, names="path: /another/machine\nnames: [a, b, c]\n", train="list.txt")
    lines = [f"{place}{name}.png" for name in ("1", "7", "9", "11")]
    (tmp_path / "list.txt").write_text("\n".join(lines))
    message = refused(tmp_path, cache)
    folder = place.replace("\\\\", "\\").replace("\\", "/").lstrip("./")
    assert f"{tmp_path}/list.txt: 4 of its 4 images are missing, such as " in message and message.count(folder) == 3
    assert message.index("1.png") < message.index("7.png") < message.index("9.png") and "11.png" not in message


def test_a_run_may_skip_the_images_of_a_list_that_are_missing(tmp_path, cache):
    write_yolo(tmp_path, names="names: [a, b, c]\n", train="list.txt")
    (tmp_path / "list.txt").write_text("images/train/1.png\nimages/train/11.png\nimages/train/12.png\n")
    dataset = Yolo(str(tmp_path), "train", cache)
    assert [os.path.basename(dataset.describe(index)) for index in dataset.missing()] == ["11.png", "12.png"]
    message = "2 of 3 images of train are missing, such as .*/11.png, .*/12.png: restore them, remove them"
    with pytest.raises(UserError, match=message):
        check_files(dataset, "train", is_replaced=False)
    assert "the next images replace them" in check_files(dataset, "train", is_replaced=True)[-1]


@pytest.mark.parametrize(
    "lines", ["{root}/images/train/{name}", "./images/train/{name}", "images\\train\\{name}", "../images/train/{name}"]
)
def test_lists_of_absolute_and_relative_paths(tmp_path, cache, lines):
    write_yolo(tmp_path, names="names: [a, b, c]\n", train="list.txt")
    names = ["1.png", "7.png", "9.png"]
    (tmp_path / "list.txt").write_text("\r\n".join(lines.format(root=tmp_path, name=name) for name in names))
    assert Yolo(str(tmp_path), "train", cache).class_counts()[:, 0].sum() == 3


@pytest.mark.parametrize("prefix", ["data/", "", "./", "/data/"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("keys", [("train", "valid"), ("Train", "Validation")])
def test_obj_data_of_darknet(tmp_path, cache, prefix, end, keys):
    train, valid = keys
    data = ["classes = 2", f"{train} = {prefix}train.txt", f"{valid}={prefix}valid.txt", f"names = {prefix}obj.names"]
    write_darknet(tmp_path, [*data, "backup = backup/"], prefix, end, "front/")
    dataset = Yolo(str(tmp_path), "train", cache)
    assert dataset.class_names == ["no", "big dog"] and len(dataset) == 2 and Yolo.has_validation(str(tmp_path))
    np.testing.assert_allclose(dataset.annotations(1).boxes, [[40, 10, 20, 20]])
    assert dataset.annotations(1).labels.tolist() == [1] and len(Yolo(str(tmp_path), "val", cache)) == 1
    assert "has no split 'test' (-split): it has train, val" in refused(tmp_path, cache, "test")


def test_subsets_of_one_split_are_read_together(tmp_path, cache):
    write_darknet(tmp_path, ["train = data/train.txt", "Train = data/valid.txt", "names = data/obj.names"])
    assert len(Yolo(str(tmp_path), "train", cache)) == 3


def test_a_line_of_obj_data_without_a_value_names_no_images(tmp_path, cache):
    write_darknet(tmp_path, ["train = data/train.txt", "train =", "val = ", "names = data/obj.names", "classes ="])
    assert len(Yolo(str(tmp_path), "train", cache)) == 2 and not Yolo.has_validation(str(tmp_path))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["train = data/train.txt", "names = data/x.names"], "x.names cannot be read: No such file"),
        (["train = data/train.txt", "names ="], "cannot be read"),
        (["train = data/there.txt", "names = obj.names"], "obj.data names data/there.txt, which does not exist"),
        (["classes = two", "train = train.txt", "names = obj.names"], "obj.data cannot be read: invalid literal"),
    ],
)
def test_what_obj_data_lacks_is_named(tmp_path, cache, data, message):
    write_darknet(tmp_path, data)
    assert message in refused(tmp_path, cache)


def test_other_files_of_data_are_not_descriptions(tmp_path, cache):
    write_darknet(tmp_path, ["5.1,3.5,setosa", "names = what"])
    assert find_yolo_descriptions(str(tmp_path)) == []


def test_images_that_cannot_be_measured_are_told(tmp_path, cache):
    write_yolo(tmp_path, names="names: [a, b, c]\n", train="images/train")
    (tmp_path / "images" / "train" / "7.png").write_bytes(b"no image")
    message = f"1 image that cannot be read: its boxes are lost, such as {tmp_path}/images/train/7.png"
    assert message in Yolo(str(tmp_path), "train", cache).notices


def test_a_changed_file_of_labels_is_noticed(tmp_path, cache):
    write_yolo(tmp_path)
    assert len(Yolo(str(tmp_path), "train", cache).annotations(0).ids) == 2
    (tmp_path / "labels" / "train" / "1.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    assert len(Yolo(str(tmp_path), "train", cache).annotations(0).ids) == 1


def test_paths_of_windows_and_yaml_files_of_any_name(tmp_path, cache):
    write_yolo(tmp_path, names=None)
    (tmp_path / "list.txt").write_text("".join(f".\\images\\train\\{stem}.png\n" for stem in LABELS))
    for place in ("images\\train", ".\\images\\train", "list.txt"):
        (tmp_path / "mine.yml").write_text(f"names: [a, b, c]\ntrain: {place}\n")
        assert len(Yolo(str(tmp_path), "train", cache)) == 3
    (tmp_path / "other.yaml").write_text("names: [a]\nval: images\n")
    assert f"{tmp_path}/mine.yml, {tmp_path}/other.yaml all describe data" in refused(tmp_path, cache)
    (tmp_path / "data.yaml").write_text("names: [a, b, c]\ntrain: images/train\n")
    assert len(Yolo(str(tmp_path), "train", cache)) == 3


@pytest.mark.parametrize("folder", ["", "images", "train"])
def test_labels_beside_the_images(tmp_path, cache, folder):
    root = tmp_path / "data"
    write_yolo(root, folder or ".", names=None)
    for file in (root / "labels").rglob("*.txt") if folder == "images" else ():
        file.rename(root / "images" / file.name)
    (root / folder / "classes.txt").write_text("a\nb\nc\n")
    top = root / "images" if folder == "images" else root
    dataset = Yolo(str(top), "train", cache)
    assert len(dataset) == 3 and dataset.read(0)[1].labels.tolist() == [0, 2]


def test_a_number_of_classes_other_than_that_of_the_names_is_told(tmp_path, cache):
    for number, is_told in ((3, False), (80, True)):
        write_yolo(tmp_path, names=f"nc: {number}\nnames: [cat, dog, cow]\n", train="images/train")
        told = [line for line in Yolo(str(tmp_path), "train", cache).notices if "nc is" in line]
        expected = f"{tmp_path}/data.yaml: nc is 80, but names has 3 classes: names is used"
        assert told == ([expected] if is_told else [])


def write_keypoints(folder, shape, line):
    for name in ("images/train", "labels/train"):
        (folder / name).mkdir(parents=True)
    Image.new("RGB", (200, 100)).save(folder / "images/train/0.png")
    (folder / "labels/train/0.txt").write_text(f"0 0.5 0.5 0.1 0.1\n{line}\n", encoding="utf-8")
    text = f"train: images/train\nval: images/train\nkpt_shape: {shape}\nnames: [dog]\n"
    (folder / "data.yaml").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("shape", "points"),
    [("[2, 2]", "0.65 0.55 0.75 0.65"), ("[1, 3]", "0.65 0.55 2"), ("[2, 3]", "0.65 0.55 2 0.75 0.65 0")],
)
def test_labels_with_keypoints_are_boxes(tmp_path, cache, shape, points):
    write_keypoints(tmp_path, shape, f"0 0.7 0.6 0.2 0.3 {points}")
    dataset = Yolo(str(tmp_path), "train", cache)
    np.testing.assert_allclose(dataset.annotations(0).boxes, [[90, 45, 20, 10], [120, 45, 40, 30]])
    assert not dataset.has_masks and find_yolo_outlines(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("shape", "line", "message"),
    [
        ("[2, 2]", "0 0.7 0.6 0.2 0.3 0.65 0.55", "7 numbers; expected class x y width height and 4 numbers of keypoi"),
        ("17", "0 0.7 0.6 0.2 0.3", "kpt_shape 17: expected the number of keypoints"),
        ("[0, 4]", "0 0.7 0.6 0.2 0.3", "kpt_shape .0, 4.: expected the number of keypoints"),
    ],
)
def test_keypoints_that_do_not_fit_their_shape_are_refused(tmp_path, cache, shape, line, message):
    write_keypoints(tmp_path, shape, line)
    with pytest.raises(UserError, match=message):
        Yolo(str(tmp_path), "train", cache)


@pytest.mark.parametrize("names", [("Train", "Val"), ("train2017", "val2017"), ("train_set", "valid_set")])
def test_folders_of_splits_in_other_spellings_are_not_one_training_set(tmp_path, cache, names):
    for folder, number in zip(names, (2, 1)):
        for place in ("images", "labels"):
            (tmp_path / place / folder).mkdir(parents=True)
        for index in range(number):
            Image.new("RGB", (20, 10)).save(tmp_path / "images" / folder / f"{index}.png")
            (tmp_path / "labels" / folder / f"{index}.txt").write_text("0 0.5 0.5 0.5 0.5\n", encoding="utf-8")
    (tmp_path / "classes.txt").write_text("dog\n", encoding="utf-8")
    assert [len(Yolo(str(tmp_path), split, cache)) for split in ("train", "val")] == [2, 1]
    assert Yolo.has_validation(str(tmp_path))


def test_lines_of_outlines_keep_their_place_in_the_file(tmp_path):
    lines = [b"0 0.5 0.25 0.25 0.125\r\n", b"\n", b"3 0.25 0.5 0.75 0.5 0.75 1 0.25 1\n", b" 0 0.1 0.1 0.9 0.1 0.9 0.5"]
    (tmp_path / "a.txt").write_bytes(b"".join(lines))
    (box, square, triangle), _ = yolo.read_rows(str(tmp_path / "a.txt"), (80, 40), {0: 5, 3: 1}, None)
    assert box == ((15.0, 15.0, 10.0, 10.0), 100.0, 0, 5, False, 0, 0)
    start = len(lines[0]) + 1
    assert square == ((10.0, 40.0, 20.0, 40.0), 800.0, 0, 1, False, len(lines[2]), start)
    assert triangle[0] == pytest.approx((4, 8, 32, 32)) and triangle[1] == pytest.approx(512)
    assert triangle[2:] == (0, 5, False, len(lines[3]), start + len(lines[2]))


def test_lines_at_their_limits_are_taken_and_those_beyond_told_or_refused(tmp_path):
    file, odd = tmp_path / "a.txt", DataWarnings()
    inside = ["1 -0.01 1.01 0.5 0.25", "0 0.5 0.5 1.01 0.25", "0 1 1 0 1 0 0"]
    outside = ["0 -0.011 0.5 0.5 0.5", "0 0.5 1.011 0.5 0.5", "1 1.99 0.5 0.25 0.5", "1 0.5 0.5 -0.005 0.5"]
    file.write_text("\n".join([*inside, *outside, "1 0.5 0.5 0.5 0", inside[0], inside[2], "0 -0.01 1.01 0.5 0.25"]))
    rows, points = yolo.read_rows(str(file), (80, 40), {0: 5, 1: 4}, odd)
    assert [row[3] for row in rows] == [4, 5, 5, 5, 5, 4, 4, 4, 4, 5, 5] and points == [[]] * 11
    assert rows[1][:2] == ((pytest.approx(-0.2), 30, pytest.approx(40.4), 20), pytest.approx(808))
    assert rows[2][:2] == ((0, 0, 40, 80), 1600)
    assert sorted(odd.lines()) == [
        f"2 boxes without an area, skipped in training, such as {file}",
        f"2 lines repeated in the same file, kept, such as {file}",
        f"3 lines with a fraction outside 0 to 1, clipped for training, such as {file}",
    ]
    for line in ("0 2 0.5 0.5 0.5", "0 0.5 -2 0.5 0.5", "0 0 0 1 1 2 0.5"):
        file.write_text(line)
        said = refusal_of(yolo.read_rows, str(file), (80, 40), {0: 5, 1: 4}, odd)
        assert said == f"{file} line 1: '{line}': expected fractions of the image from 0 to 1, not pixels"
    file.write_text("\n0 1 1 0 1 0 0 1")
    message = refusal_of(yolo.read_rows, str(file), (80, 40), {0: 5}, odd)
    told = "8 numbers; expected class x y width height"
    assert message == f"{file} line 2: '0 1 1 0 1 0 0 1': {told}"


def test_a_class_alone_is_an_outline_without_points(tmp_path, cache):
    write_yolo(tmp_path, labels={"1": "1\n0 0.5 0.5 0.4 0.6\n2 0 0 0.5 0 0.5 0.5\n"})
    dataset = Yolo(str(tmp_path), "train", cache)
    assert dataset.annotations(0).labels.tolist() == [0, 2] and len(dataset.masks(0)[1][0]) == 6
    assert any("1 line with a class alone, an outline without points, skipped" in line for line in dataset.notices)
