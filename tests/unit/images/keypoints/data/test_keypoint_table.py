"""Tables of keypoints: a row for each image, or for each point."""

import functools
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from support.files.coco_writer import refused_by, write_image
from support.refusals import refusal_of

from paddlevit_dist.images.keypoints.data.keypoint_dataset import KeypointsPart
from paddlevit_dist.images.keypoints.data.keypoint_table import KeypointTable

refused = functools.partial(refused_by, KeypointTable)
WIDE = "image,x1,y1,x2,y2\na.png,1,2,3.5,4\nb.png,5,6,,\n"
LONG = "image,point,x,y\na.png,1,1,2\na.png,2,3.5,4\nb.png,1,5,6\n"
EXPECTED = [[[1, 2, 2], [3.5, 4, 2]], [[5, 6, 2], [0, 0, 0]]]


def write_table(root, text, name="points.csv", images=("a", "b")):
    for number, image in enumerate(images):
        if not (root / f"{image}.png").exists():
            write_image(root / f"{image}.png", 20, 30 + number, number)
    (root / name).write_text(text, encoding="utf-8")


FORMS = {
    "wide": (WIDE, ("point 1", "point 2")),
    "long": (LONG, ("point 1", "point 2")),
    "long in another order": (
        "\n".join([LONG.split("\n")[0], *reversed(LONG.split("\n")[1:-1])]),
        ("point 1", "point 2"),
    ),
    "names behind": ("file;nose_x;nose_y;tail_x;tail_y\na.png;1;2;3,5;4\nb.png;5;6;nan;nan\n", ("nose", "tail")),
    "names before": ("image,x_nose,y_nose,x_tail,y_tail\na.png,1,2,3.5,4\nb,5,6,NA,\n", ("nose", "tail")),
    "camel case": ("image,NoseX,NoseY,TailX,TailY\na.png,1,2,3.5,4\nb.png,5,6,,\n", ("Nose", "Tail")),
    "visibility": ("image,x1,y1,v1,x2,y2,v2\na.png,1,2,2,3.5,4,2\nb.png,5,6,2,9,9,0\n", ("point 1", "point 2")),
    "visibility as words": (
        "image,x1,y1,v1,x2,y2,v2\na.png,1,2,True,3.5,4,TRUE\nb.png,5,6,2,9,9,False\n",
        ("point 1", "point 2"),
    ),
    "numbers in another order": ("image,x2,y2,x1,y1\na.png,3.5,4,1,2\nb.png,,,5,6\n", ("point 1", "point 2")),
    "numbers from 0": ("image,x0,y0,x1,y1\na.png,1,2,3.5,4\nb.png,5,6,,\n", ("point 0", "point 1")),
    "visibility in other words": (
        "image,nose_x,nose_y,nose_visible,tail_x,tail_y,tail_vis\na.png,1,2,2,3.5,4,true\nb.png,5,6,2,9,9,\n",
        ("nose", "tail"),
    ),
    "long with visibility": (
        "image,point,x,y,visibility\na.png,1,1,2,2\na.png,2,3.5,4,2\nb.png,1,5,6,2\nb.png,2,9,9,0\n",
        ("point 1", "point 2"),
    ),
    "other signs": ("image,X nose,Y.nose,x_-_tail,y tail\na.png,1,2,3.5,4\nb.png,5,6,n/a,null\n", ("nose", "tail")),
    "a number and a name": ("image,x1,y1,x_tail,y_tail\na.png,1,2,3.5,4\nb.png,5,6,,\n", ("1", "tail")),
    "words that end in x or y": (
        "image,sex,INDEX,day,LNoseX,LNoseY,LTailX,LTailY\na.png,1,2,3,1,2,3.5,4\nb.png,4,5,6,5,6,,\n",
        ("LNose", "LTail"),
    ),
    "headings in another script": ("image,鼻X,鼻Y,хвост_x,хвост_y\na.png,1,2,3.5,4\nb.png,5,6,,\n", ("鼻", "хвост")),
    "a long heading": (
        f"image,{198 * 'n'}_x,{198 * 'n'}_y,t_x,t_y,{199 * 'o'}_x\na.png,1,2,3.5,4,3\nb.png,5,6,,,\n",
        (198 * "n", "t"),
    ),
    "long names of paths": ("name,path,x,y\nnose,a,1,2\ntail,a,3.5,4\nnose,b,5,6\n", ("nose", "tail")),
    "long names": ("name,image,x,y\nnose,a,1,2\ntail,a,3.5,4\nnose,b,5,6\n", ("nose", "tail")),
}


@pytest.mark.parametrize("name", FORMS)
def test_both_forms_say_the_same(tmp_path, cache, name):
    text, names = FORMS[name]
    write_table(tmp_path, text)
    opened = KeypointTable(str(tmp_path), "train", cache)
    unused = {
        "words that end in x or y": "; not used: sex, INDEX, day",
        "a long heading": f"; not used: {117 * 'o'}...",
    }
    shown = f"2 images, 2 points each, 3 labeled{unused.get(name, '')}"
    assert opened.notices[0] == f"train: {tmp_path / 'points.csv'}: {shown}"
    dataset = pickle.loads(pickle.dumps(opened))
    order = np.argsort([dataset.describe(index) for index in range(2)])
    found = np.array([dataset.annotations(index).points[0] for index in order])
    assert found.tolist() == EXPECTED and dataset.keypoint_sets[0].names == names
    first = dataset.annotations(int(order[1]))
    assert first.boxes.tolist() == [[0, 0, 31, 20]] and first.areas.tolist() == [620]
    assert dataset.class_names == ["object"] and dataset.has_whole_objects and dataset.spacing_mm(0) is None


def test_a_column_divides_images_and_test_replaces_val(tmp_path, cache):
    rows = "a.png,train,1,2,0.5\nb.png,test,3,4,0.25\nc.png,,5,6,1\nd.png,trian,7,8,1\n"
    write_table(tmp_path, f"image,split,x1,y1,spacing_mm\n{rows}", images="abcd")
    train = KeypointTable(str(tmp_path), "train", cache)
    assert len(train) == 1 and any(line.endswith("1 image without a split, not used: c.png") for line in train.notices)
    assert any(line.endswith("unless -split names theirs: 1 of trian") for line in train.notices)
    assert KeypointTable.has_validation(str(tmp_path))
    dataset = KeypointTable(str(tmp_path), "val", cache)
    assert len(dataset) == 1 and dataset.annotations(0).points.tolist() == [[[3, 4, 2]]]
    assert dataset.spacing_mm(0) == (0.25, 0.25)
    assert any("the val images are the test images" in line for line in dataset.notices)


def test_tables_of_splits_need_the_same_points(tmp_path, cache):
    write_table(tmp_path, "image,a_x,a_y\na.png,1,2\n", "train.csv")
    write_table(tmp_path, "image,b_x,b_y\nb.png,1,2\n", "val.csv")
    assert "val.csv has the points b, but" in refused(tmp_path, cache)
    write_table(tmp_path, "image,a_x,a_y\nb.png,1,2\n", "val.csv")
    assert KeypointTable(str(tmp_path), "val", cache).describe(0).endswith("b.png")


@pytest.mark.parametrize("text", ["image,x2,y2,x1,y1\nb.png,2,2,1,1\n", "image,point,x,y\nb.png,2,2,2\nb.png,1,1,1\n"])
def test_points_of_splits_are_matched_by_name(tmp_path, cache, text):
    write_table(tmp_path, "image,x1,y1,x2,y2\na.png,1,1,2,2\n", "train.csv")
    write_table(tmp_path, text, "val.csv")
    assert KeypointTable(str(tmp_path), "val", cache).annotations(0).points[0, :, 0].tolist() == [1, 2]
    write_table(tmp_path, "image,a_x,a_y,b_x,b_y\na.png,1,1,2,2\n", "train.csv")
    write_table(tmp_path, "image,b_x,b_y,a_x,a_y\nb.png,2,2,1,1\n", "val.csv")
    named = KeypointTable(str(tmp_path), "val", cache)
    assert named.annotations(0).points[0, :, 0].tolist() == [1, 2] and named.keypoint_sets[0].names == ("a", "b")
    write_table(tmp_path, "image,x1,y1,x2,y2\na.png,1,1,2,2\n", "train.csv")
    write_table(tmp_path, text.replace("x1", "x3").replace("y1", "y3").replace("png,1", "png,3"), "val.csv")
    assert "val.csv has the points point 2, point 3, but" in refused(tmp_path, cache, "val")


def test_sizes_of_pixels_are_of_the_table_or_a_key(tmp_path, cache):
    write_table(tmp_path, "image,x1,y1,spacing_mm\nb.png,1,2,0.5\na.png,3,4,0.25\n")
    dataset = KeypointTable(str(tmp_path), "train", cache)
    assert [dataset.spacing_mm(index) for index in range(2)] == [(0.5, 0.5), (0.25, 0.25)]
    np.save(tmp_path / "rows.npy", np.array([1]))
    assert KeypointsPart(dataset, tmp_path / "rows.npy").spacing_mm(0) == (0.25, 0.25)
    keys = SimpleNamespace(NAMES=["tip"], PAIRS=None, SIGMAS=None, SKELETON=None, SPACING_MM=0.1)
    chosen = KeypointTable(str(tmp_path), "train", cache, keys=keys)
    assert chosen.spacing_mm(1) == (0.1, 0.1) and chosen.keypoint_sets[0].names == ("tip",)
    write_table(tmp_path, "image,spacing_x,spacing_y,tip_x,tip_y\nb.png,0.5,1,1,2\n")
    both = KeypointTable(str(tmp_path), "train", cache)
    assert both.spacing_mm(0) == (0.5, 1) and both.keypoint_sets[0].names == ("tip",)


@pytest.mark.parametrize(
    "headings",
    [
        *("spacing_mm", "spacing", "Pixel spacing", "pixel_size_mm", "mm_per_pixel"),
        *("spacing_x_mm,spacing_y_mm", "spacing_y,spacing_x"),
    ],
)
def test_columns_of_sizes_of_pixels(tmp_path, cache, headings):
    number = headings.count(",") + 1
    cells = [",".join(row[:number]) for row in (("0.5", "0.25"), ("2", "4"))]
    write_table(tmp_path, f"image,{headings},tip_x,tip_y\na.png,{cells[0]},1,2\nb.png,{cells[1]},3,4\n")
    dataset = KeypointTable(str(tmp_path), "train", cache)
    found = [dataset.spacing_mm(index) for index in range(2)]
    both = [(0.5, 0.25), (2.0, 4.0)] if number == 2 else [(0.5, 0.5), (2.0, 2.0)]
    assert found == ([pair[::-1] for pair in both] if headings.startswith("spacing_y") else both)
    assert dataset.keypoint_sets[0].names == ("tip",)
    assert dataset.notices[0].endswith(": 2 images, 1 point each, 2 labeled; sizes of pixels in millimeters")


def test_table_and_images_may_be_named(tmp_path, cache):
    write_table(tmp_path / "pictures", "", "unused.txt")
    (tmp_path / "one.csv").write_text(WIDE)
    (tmp_path / "two.csv").write_text(WIDE)
    write_image(tmp_path / "a.png", 5, 6, 0)  # beside the table is not in the named folder
    dataset = KeypointTable(str(tmp_path), "train", cache, "one.csv", "pictures")
    assert sorted(dataset.size(index) for index in range(len(dataset))) == [(20, 30), (20, 31)]
    assert refused(tmp_path, cache, "val", table="three.csv", images="pictures") == (
        f"DATA.VAL_ANNOTATIONS three.csv: there is no file {tmp_path / 'three.csv'}"
    )


def test_a_folder_is_needed(tmp_path, cache):
    layout = "(columns image,x1,y1,x2,y2 or image,point,x,y), or the table itself"
    place = tmp_path / "missing"
    assert not KeypointTable.has_validation(str(place)) and not KeypointTable.has_validation(None)
    assert refused(place, cache) == (
        f"data path {place} does not exist; dataset keypoint_table expects a folder with a table such as points.csv "
        + layout
    )
    assert refusal_of(KeypointTable, None, "train", cache) == (
        f"dataset keypoint_table needs -data_path=<folder>, with a table such as points.csv {layout}"
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ("image,x1,y1\na.png,1,2\na.png,1,2\n", "line 3: a.png again: expected one row for each image"),
        (
            "image,point,x,y\na.png,1,1,2\na.png,1,1,2\n",
            "line 3: a.png, 1 again: expected one row for each point of an",
        ),
        ("image,x1,y1\na.png,left,2\n", "line 2, column x1: 'left': expected a number, or an empty cell"),
        ("image,x1,y1\na.png,1,\n", "line 2, column y1: '': expected a number, as in column x1, or both cells empty"),
        ("image,point,x,y\na.png,eye,,4\n", "line 2, column x: '': expected a number, as in column y, or both"),
        ("image,x1,y1\na.png,inf,2\n", "line 2, column x1: 'inf': expected a number"),
        ("image,x1,y1\na.png,1,-1e9\n", "line 2, column y1: '-1e9': expected a number"),
        ("image,x1,y1,v1\na.png,1,2,5\n", "column v1: '5': expected 0 (not labeled), 1 (hidden) or 2 (visible)"),
        ("image,x1,y1\na.png,true,2\n", "line 2, column x1: 'true': expected a number"),
        ("image,x1,y1,x2\na.png,1,2,3\n", "points.csv: column x2 is one coordinate of a point whose other has no"),
        ("image,nose_x,nose_y,tail_x\na.png,1,2,3\n", "column tail_x is one coordinate of a point"),
        ("image,point,x,y\nb.png,1,1,2\na.png,,1,2\n", "line 3: no point is named"),
        ("image,point,x,y\na.png,²,1,2\na.png,²,1,2\n", "line 3: a.png, ² again"),
        ("image,x1,y1\na.png,1,2\na,1,2\n", "'a.png' and 'a' are the same image: expected one name for each image"),
        ("image,x1,y1,spacing_x,spacing_y\na.png,1,2,1,0\n", "column spacing_y: '0': expected millimeters of a pixel"),
        ("image,x1,y1,spacing\na.png,1,2,0\n", "column spacing: '0': expected millimeters of a pixel, above 0"),
        ("image,x,y\na.png,1,2\n", "no points among its columns image, x, y: expected columns image, x1, y1"),
        ("image,label\na.png,cat\n", "no points among its columns image, label: expected columns image, x1, y1"),
        ("image,x1,y1\nc.png,1,2\n", "1 of 1 image missing below"),
        ("image,x1,y1\na.png,,\n", "no point of its images has coordinates"),
        ("image,x1,y1\na.png,0.5,0.25\n", "all coordinates are fractions of the images from 0 to 1"),
        ("image,x1,y1\na.png,1,0\nb.png,,\n", "all coordinates are fractions of the images from 0 to 1"),
        ("image,x1,y1\n", "has headings, but no rows"),
        ("image,x1,y1\na.png,1,2\n,3,4\n", "points.csv, line 3: no image is named; correct or remove the row"),
    ],
)
def test_wrong_tables_are_refused(tmp_path, cache, text, message):
    write_table(tmp_path, text)
    assert message in refused(tmp_path, cache)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (8, 9), (9, 8)])
def test_small_coordinates_are_pixels_of_small_images(tmp_path, cache, height, width):
    write_image(tmp_path / "a.png", height, width, 0)
    write_table(tmp_path, "image,x1,y1\na.png,0.5,1\n", images="a")
    if max(height, width) == 9:
        assert "all coordinates are fractions of the images from 0 to 1" in refused(tmp_path, cache)
    else:
        assert KeypointTable(str(tmp_path), "train", cache).annotations(0).points.tolist() == [[[0.5, 1, 2]]]


def test_points_outside_and_images_without_points_are_told(tmp_path, cache):
    (tmp_path / "c.png").write_bytes(b"no image")
    write_table(tmp_path, "image,x1,y1\na.png,50,2\nb.png,,\nc.png,1,2\n")
    told = [
        ("a", "with a point outside, scored but not learned"),
        ("b", "without a labeled point, not learned"),
        ("c", "that cannot be read: its points are lost"),
    ]
    notices = KeypointTable(str(tmp_path), "train", cache).notices
    for name, what in told:
        (line,) = (line for line in notices if what in line)
        assert f"1 image {what}" in line and f"{name}.png" in line
    write_table(tmp_path, "image,x1,y1\na.png,-7,-2\n")  # not fractions
    notices = KeypointTable(str(tmp_path), "train", cache).notices
    assert any("1 image with a point outside, scored but not learned" in line for line in notices)
