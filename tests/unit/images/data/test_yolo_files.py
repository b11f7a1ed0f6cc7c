"""Folders of YOLO without images of a split: what is said of them."""

import pytest
from support.files.odd_names import ODD_NAMES
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.data.box_layouts import find_yolo_descriptions
from paddlevit_dist.images.data.yolo_files import find_label_file, list_images, read_description


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


@pytest.mark.parametrize(
    ("files", "split", "message"),
    [
        (["images/1.jpg", "labels/1.txt"], "val", r"set DATA.VAL_FRACTION to split the training set"),
        (["1.jpg"], "val", r"set DATA.VAL_FRACTION to split the training set"),
        (["train/1.jpg"], "val", r"yolo at .* 'val'.*train.*set DATA.VAL_FRACTION to split the training set"),
        (["labels/1.txt"], "val", r"yolo at .* has no split 'val' .*: it has none$"),
        (["labels/1.txt"], "train", r"yolo at .* has no split 'train' .*: it has none$"),
        (["images/train/1.txt"], "train", r"^[^;]*: there are no train images$"),
    ],
)
def test_a_split_without_images_is_refused_with_what_there_is(tmp_path, files, split, message):
    touch(tmp_path, *files)
    with pytest.raises(UserError, match=message) as refused:
        list_images(str(tmp_path), split, None)
    assert str(tmp_path) in str(refused.value)


def test_folders_below_images_come_before_those_beside_it(tmp_path):
    touch(tmp_path, "images/train7/2.jpg", "images/train2/1.jpg", "train3/images/3.jpg", "Train/4.jpg", "images/0.jpg")
    assert list_images(str(tmp_path), "train", None) == [f"{tmp_path}/images/train{k}.jpg" for k in ("2/1", "7/2")]
    touch(tmp_path, "images/extra/5.jpg")
    assert list_images(str(tmp_path), "extra", None) == [f"{tmp_path}/images/extra/5.jpg"]
    (tmp_path / "images").rename(tmp_path / "other")
    assert list_images(str(tmp_path), "train", None) == [f"{tmp_path}/{k}.jpg" for k in ("Train/4", "train3/images/3")]


def test_the_description_is_named_where_its_places_have_no_images(tmp_path):
    touch(tmp_path, "photos/1.txt", "more/2.jpg")
    (tmp_path / "data.yaml").write_text("train: photos\nval: more\nnames: [cow, ant]\n")
    description = read_description(str(tmp_path))
    assert list_images(str(tmp_path), "val", description) == [f"{tmp_path}/more/2.jpg"]
    with pytest.raises(UserError, match=r"data\.yaml.*no train images|photos"):
        list_images(str(tmp_path), "train", description)


def test_one_file_of_a_usual_name_describes_the_data_or_all_others_that_name_classes_and_places(tmp_path):
    for name, content in (
        ("b.yaml", "names: [cow]\ntrain: photos\n"),
        ("a.YML", "path: .\nnames: [cow]\n"),
        ("classes.yaml", "names: [cow]\n"),
        ("places.yaml", "train: photos\n"),
        ("c.txt", "names: [cow]\ntrain: photos\n"),
        ("obj.data", "names = obj.names\ntrain = train.txt\n"),
    ):
        (tmp_path / name).write_text(content)
    expected = [str(tmp_path / name) for name in ("a.YML", "b.yaml", "obj.data")]
    assert find_yolo_descriptions(str(tmp_path)) == expected
    with pytest.raises(UserError, match=r"a\.YML, .*/b\.yaml, .*/obj\.data all describe data: keep one of them"):
        read_description(str(tmp_path))
    for name in ("dataset.yml", "data.yml", "dataset.yaml", "data.yaml"):  # the last is preferred
        (tmp_path / name).write_text("")
        assert find_yolo_descriptions(str(tmp_path)) == [str(tmp_path / name)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("names: [cow, 3]\nval: [a\\b, c]\n", ({0: "cow", 1: "3"}, {"val": ["a/b", "c"]}, "", 0, "")),
        (
            "names: {2: cow, 0: ant}\ntrain: x\npath: d\\e\nnc: 2\n",
            ({0: "ant", 2: "cow"}, {"train": ["x"]}, "d/e", 0, ""),
        ),
        (
            "names: [cow, ant]\ntest: 7\nnc: 3\nkpt_shape: [1, 2]\n",
            ({0: "cow", 1: "ant"}, {"test": ["7"]}, "", 2, ": nc is 3, but names has 2 classes: names is used"),
        ),
        ("names: [cow]\ntrain: x\nkpt_shape: [17, 3]\n", ({0: "cow"}, {"train": ["x"]}, "", 51, "")),
    ],
)
def test_a_description_has_names_places_and_keypoints(tmp_path, lines, expected):
    file = tmp_path / "data.yaml"
    file.write_text(lines)
    found = read_description(str(tmp_path))
    names, places, base, values, notice = expected
    assert (found.file, found.places, found.base) == (str(file), places, f"{tmp_path}/{base}")
    assert list(found.names.items()) == list(names.items()) and found.keypoint_values == values
    assert found.notices == ((f"{file}{notice}",) if notice else ())


KEYPOINTS = "expected the number of keypoints and 2 or 3 values: [17, 3]"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *(
            (f"names: {names}", " has no class names; expected names: [cat, dog], or a line 0: cat for each")
            for names in ("", "cow", "[]", "{}", "{-1: cow}", "{0: cow, b: ant}", "{0.0: cow}")
        ),
        *(
            (f"names: [cow]\nkpt_shape: {shape}", f": kpt_shape {shape}: {KEYPOINTS}")
            for shape in ("3", "[17]", "[17, 3, 1]", "[17.0, 3]", "[0, 3]", "[17, 1]", "[17, 4]")
        ),
    ],
)
def test_descriptions_without_names_or_with_other_keypoints_are_refused(tmp_path, line, message):
    (tmp_path / "data.yaml").write_text(f"train: x\n{line}\n")
    assert refusal_of(read_description, str(tmp_path)) == f"{tmp_path / 'data.yaml'}{message}"


def test_darknets_description_has_the_subsets_of_cvat(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "obj.names").write_text("cow\nant\n")
    lines = ["classes = 3", "train = a.txt", "Train = b\\c.txt", "valid =", "names = x\\obj.names", "backup = z/"]
    (tmp_path / "obj.data").write_text("\n".join(lines))
    found = read_description(str(tmp_path))
    notice = f"{tmp_path / 'obj.data'}: nc is 3, but names has 2 classes: names is used"
    assert (found.names, found.places, found.notices) == (
        {0: "cow", 1: "ant"},
        {"train": ["a.txt", "b/c.txt"]},
        (notice,),
    )
    (tmp_path / "obj.data").write_text("\n".join(lines[1:]))
    assert read_description(str(tmp_path)).notices == ()


def test_labels_are_in_the_last_folder_labels_else_beside(tmp_path):
    inner = tmp_path / "images" / "a"
    touch(tmp_path, "images/a/images/1.jpg", "images/a/images/2.jpg", "images/a/images/2.txt", "photos/3.jpg")
    for image, labels in (
        (inner / "images" / "1.jpg", inner / "labels" / "1.txt"),  # neither is there
        (inner / "images" / "2.jpg", inner / "images" / "2.txt"),
        (tmp_path / "photos" / "3.jpg", tmp_path / "photos" / "3.txt"),
    ):
        assert find_label_file(str(image)) == str(labels)
    touch(tmp_path, "images/a/labels/2.txt")
    assert find_label_file(str(inner / "images" / "2.jpg")) == f"{inner}/labels/2.txt"


def test_places_that_are_missing_are_named(tmp_path):
    (tmp_path / "data.yaml").write_text("train: list.txt\nval: nowhere\nnames: [cow]\n")
    (tmp_path / "list.txt").write_text("".join(f"b\\{number}.jpg\n\n" for number in range(4)))
    description = read_description(str(tmp_path))
    message = refusal_of(list_images, str(tmp_path), "train", description)
    named = ", ".join(f"{tmp_path}/b/{number}.jpg" for number in range(3))
    assert message == (
        f"{tmp_path}/list.txt: 4 of its 4 images are missing, such as {named}: copy them there, or write their paths "
        "relative to the folder of the list"
    )
    line = refusal_of(list_images, str(tmp_path), "val", description)
    assert line == (f"{tmp_path}/data.yaml names nowhere, which does not exist; tried {tmp_path}/nowhere")
    touch(tmp_path, "b/2.jpg")
    assert list_images(str(tmp_path), "train", description) == [f"{tmp_path}/b/{number}.jpg" for number in range(4)]


@pytest.mark.parametrize("place", ["images", "{root}/images"])
def test_a_listed_name_may_have_any_sign(tmp_path, place):
    names = [f"{name}.png" for name in ODD_NAMES]
    touch(tmp_path, *(f"images/{name}" for name in names))
    (tmp_path / "data.yaml").write_text("train: list.txt\nnames: [cow, ant]\n")
    lines = "".join(f"{place.format(root=tmp_path)}/{name}\n" for name in names)
    (tmp_path / "list.txt").write_text(lines, encoding="utf-8")
    found = list_images(str(tmp_path), "train", read_description(str(tmp_path)))
    assert found == sorted(f"{tmp_path}/images/{name}" for name in names)


def test_two_classes_of_one_name_are_refused_with_their_numbers(tmp_path):
    (tmp_path / "data.yaml").write_text("names: {0: cow, 4: ant, 7: cow}\n")
    message = refusal_of(read_description, str(tmp_path))
    assert message == f"{tmp_path}/data.yaml: names 0 and 7 are both 'cow'; each needs its own name"
