"""Words in tables of keypoints, each alone: headings of points, of images, of visibilities, and empty cells."""

import itertools

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.keypoints.data.point_tables import read_points

POINTS = "point landmark keypoint joint bodypart part point_name landmark_name label name".split()
VISIBILITIES = "v vis visible visibility".split()


@pytest.fixture
def read(tmp_path):
    numbers = itertools.count()

    def write_and_read(text):
        path = tmp_path / f"{next(numbers)}.csv"
        path.write_text(text, encoding="utf-8")
        rows = read_points(str(path))
        return rows.names, rows.point_names, rows.points.tolist()

    return write_and_read


def test_headings_of_rows_of_points(read):
    expected = (["a.png", "b.png"], ["nose"], [[[1, 2, 2]], [[3, 4, 2]]])
    for word in (word for own in POINTS for word in (own, own.upper(), own.replace("_", " "))):
        assert read(f"image,{word},x,y\na.png,nose,1,2\nb.png,nose,3,4\n") == expected, word
    for word in ("image", "filename", "file", "path", "File", "PATH"):  # where a name is that of a point
        assert read(f"name,{word},x,y\nnose,a.png,1,2\nnose,b.png,3,4\n") == expected, word
    for word in VISIBILITIES:
        text = f"image,point,x,y,{word}\na.png,nose,1,2,1\nb.png,nose,3,4,0\n"
        assert read(text) == (["a.png", "b.png"], ["nose"], [[[1, 2, 1]], [[0, 0, 0]]]), word


@pytest.mark.parametrize("form", ["{0}_nose", "nose_{0}", "Nose {0}", "{0}1", "{0}-Left eye", "nose.{0}"])
def test_headings_of_visibilities(read, form):
    for word in (word for own in VISIBILITIES for word in (own, own.upper())):
        text = f"image,{form.format('x')},{form.format('y')},{form.format(word)}\na.png,1,2,1\nb.png,3,4,false\n"
        assert read(text)[2] == [[[1, 2, 1]], [[0, 0, 0]]], word


def test_words_of_empty_cells_and_of_truth(read):
    for word in ("", "nan", "na", "n/a", "null", "none", "<na>", "NaN", "None", " "):
        assert read(f"image,x1,y1\na.png,{word},{word}\nb.png,3,4\n")[2] == [[[0, 0, 0]], [[3, 4, 2]]], word
    for word, seen in (("true", 2), ("TRUE", 2), ("2", 2), ("1.0", 1)):
        assert read(f"image,x1,y1,v1\na.png,1,2,{word}\nb.png,3,4,False\n")[2] == [[[1, 2, seen]], [[0, 0, 0]]], word
    for word in ("3", "-1", "0.5", "yes", "1e9"):
        with pytest.raises(UserError, match="row 1|line 2"):
            read(f"image,x1,y1,v1\na.png,1,2,{word}\nb.png,3,4,1\n")
    assert read('image;x1;y1\na.png;"1,5";-999999999\n')[2] == [[[1.5, -999999999, 2]]]
    with pytest.raises(UserError, match="expected a number"):
        read("image,x1,y1\na.png,1,1000000000\n")


def test_points_are_in_the_order_of_numbers_that_are_numbers(read):
    assert read("image,x10,y10,x9,y9\na.png,1,2,3,4\n")[1:] == (["point 9", "point 10"], [[[3, 4, 2], [1, 2, 2]]])
    long = "7" * 5000  # more digits than Python makes a number of
    assert read(f"image,point,x,y\na.png,{long},1,2\na.png,9,3,4\n")[1] == [long, "9"]
