"""Images and categories found by names, where files number them differently."""

import pytest

from paddlevit_dist.images.detection.matched_ids import (
    match_categories,
    match_files,
    require_categories,
    require_images,
)
from paddlevit_dist.runtime.errors import UserError


@pytest.mark.parametrize(
    "names, known, expected",
    [
        (["b.png", "a.png"], ["a.png", "b.png"], [[1], [0]]),
        (["data/val/a.png"], ["a.png"], [[0]]),
        (["/home/me/../you/./a.png"], ["you/a.png"], [[0]]),
        (["../a.png"], ["images/a.png"], [[0]]),
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
