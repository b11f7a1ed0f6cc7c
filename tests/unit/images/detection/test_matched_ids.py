"""Images and categories found by names, where files number them differently."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.detection.matched_ids import (
    match_categories,
    match_files,
    require_categories,
    require_images,
)


@pytest.mark.parametrize(
    "names, known, expected",
    [
        (["b.png", "a.png"], ["a.png", "b.png"], [[1], [0]]),
        (["data/val/a.png"], ["a.png"], [[0]]),
        (["/home/me/../you/./a.png"], ["you/a.png"], [[0]]),
        (["../a.png"], ["images/a.png"], [[0]]),
        (["x/y/../a.png"], ["a.png", "x/a.png"], [[1]]),
        (["images\\a.png"], ["images/a.png"], [[0]]),
        (["x/1.png", "y/1.png"], ["y/1.png", "x/1.png"], [[1], [0]]),  # one base name in two folders
        (["d/x/1.png", "d/y/1.png"], ["y/1.png", "x/1.png"], [[1], [0]]),
        (["d/1.png", "d/x/1.png"], ["x/1.png", "1.png"], [[1], [0]]),  # "d/x/1.png" could be "1.png", by itself
        (["val/1.png", "val/val/1.png"], ["val/1.png", "1.png"], [[1], [0]]),  # one folder in front of all
        (["val/1.png"], ["val/1.png", "1.png"], [[0]]),  # an equal path
        (["x/1.png"], ["y/1.png"], [[]]),  # other folders
        (["1.png"], ["x/1.png", "y/1.png"], [[0, 1]]),
        (["d/1.png", "d/2.png"], ["1.png", "1.png", "2.png"], [[0, 1], [2]]),  # listed twice
        (["x/1.png", "y/2.png"], ["1.png", "2.png"], [[0], [1]]),
        (["1.png"], ["1.jpg"], [[]]),
        (["1.png"], ["", "1.png"], [[1]]),
        (["", "1.png"], ["1.png"], [[], [0]]),
        ([], ["1.png"], []),
    ],
)
def test_paths_mean_one_image_where_one_is_the_end_of_the_other(names, known, expected):
    assert match_files(names, known) == expected


@pytest.mark.parametrize(
    "layout", ["train", "train2017", "images/train", "train/images", "VOC7/JPEGImages", "obj_train_data"]
)
@pytest.mark.parametrize(
    "names, known, expected",
    [
        (["photos/a.jpeg", "b.bmp", "/x/c.png"], ["a.jpg", "b.png", "c.png"], [[0], [1], [2]]),
        (["photos/s/a.png", "photos/t/a.png"], ["s/a.png", "t/a.png"], [[0], [1]]),
        (["photos/a.png"], ["s/a.png", "t/a.png"], [[]]),
        (["a.png"], ["s/a.png", "t/a.png"], [[0, 1]]),
        (["photos/a.png", "photos/a.jpg"], ["a.jpg", "a.png"], [[1], [0]]),  # the suffix decides
        (["photos/a.bmp"], ["a.jpg", "a.png"], [[0, 1]]),
        (["x/a.png", "y/a.png"], ["a.png", "a_2.png"], [[0, 1], [0, 1]]),
        (["y/a.png"], ["a.png", "A_2.png"], [[0, 1]]),  # it may be the second image of this name
        (["y/a.png", "y/a_2.png"], ["a.png", "a_2.png"], [[0], [1]]),
        (["y/a.png", "y/A_2.png"], ["a.png", "A_2.png"], [[0], [1]]),  # which has a name of its own
        (["y/B.png"], ["B.png", "b_2.png"], [[0, 1]]),
        (["val/a.png", "photos/b.png"], ["a.png", "b.png"], [[], [1]]),  # another image of the data set
        (["train/train/a.png"], ["train/a.png", "b.png"], [[0]]),
    ],
)
def test_images_of_a_data_set_may_be_in_the_folders_of_its_layout(tmp_path, layout, names, known, expected):
    (tmp_path / "val").mkdir()
    (tmp_path / "val" / "a.png").touch()
    (tmp_path / "a.png").touch()  # has the name alone
    assert match_files(names, [f"{layout}/{name}" for name in known], str(tmp_path)) == expected


@pytest.mark.parametrize(
    "names, known, expected",
    [
        (["nut", "bolt"], ["bolt", "nut"], [[1], [0]]),
        (["Nut "], ["bolt", "nut"], [[1]]),
        (["Cat", "cat"], ["cat", "CAT"], [[1], [0]]),
        (["Cat", "cat"], ["cat"], [[], [0]]),
        (["CAT"], ["cat", "Cat"], [[0, 1]]),
        (["part"], ["part", "part"], [[0, 1]]),
        (["tv"], ["tvmonitor", ""], [[]]),
    ],
)
def test_capitals_decide_where_several_categories_differ_in_nothing_else(names, known, expected):
    assert match_categories(names, known) == expected


def test_a_name_with_its_id_is_of_one_of_the_categories_that_share_it():
    known, unique = ["thing", "dog", "thing"], ["thing (id 3)", "dog", "thing (id 9)"]
    assert match_categories(["thing (id 9)", "dog", "thing"], known, unique) == [[2], [1], [0, 2]]


@pytest.mark.parametrize(
    "names, known, expected",
    [
        (["x/1.png", "2.png"], ["1.png"], "1 of 2 images are not listed in f.json, such as 2.png"),
        (["1.png"], ["x/1.png", "y/1.png"], "1.png matches several images of f.json, with ids 10 and 11"),
        (["x/1.png", "y/1.png"], ["1.png"], "x/1.png and y/1.png both match the image with id 10 of f.json"),
    ],
)
def test_images_that_cannot_be_matched_are_refused(names, known, expected):
    with pytest.raises(UserError, match=expected):
        require_images(names, match_files(names, known), [10, 11], "f.json", "r.json: ")


@pytest.mark.parametrize(
    "names, known, expected",
    [
        (["tv"], ["dog", ""], "no category name is in f.json: got tv, but it has dog"),
        (["CAT"], ["cat", "Cat"], "CAT matches several categories of f.json"),
        (["CAT", "Cat"], ["cat"], "CAT and Cat both match cat of f.json"),
    ],
)
def test_categories_that_cannot_be_matched_are_refused(names, known, expected):
    with pytest.raises(UserError, match=expected):
        require_categories(names, match_categories(names, known), known, "f.json", "r.json: ")
