"""Masks as run lengths and polygons against pycocotools."""

import numpy as np
import pytest
from pycocotools import mask as peer

from paddlevit_dist.images.run_lengths import (
    ManyRuns,
    _decode_lengths,
    are_flat,
    compress_runs,
    compute_area,
    decode,
    encode,
    find_box,
    find_mask_runs,
    has_shape,
    parse_segmentation,
    require_segmentation,
)
from paddlevit_dist.images.run_lengths import (
    outline as outline_of_box,
)

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning:pycocotools")


def shapes(seed):
    rng = np.random.default_rng(seed)
    height, width = (int(v) for v in rng.integers(1, 90, 2))
    return rng, height, width


def outline(rng, height, width):
    """A polygon with corners on pixels, between them, outside the image, twice, or all on a line."""
    corners = rng.uniform(-0.4, 1.4, (int(rng.integers(3, 9)), 2)) * (width, height)
    style = rng.integers(0, 5)
    if style == 0:
        corners = np.round(corners)
    elif style == 1:
        corners = np.concatenate([corners, corners[:1], corners[:1]])
    elif style == 2:
        corners[:, rng.integers(0, 2)] = round(float(corners[0, 0]), 1)
    elif style == 3:
        corners = np.round(corners * 10) / 10
    return corners.reshape(-1).tolist()


@pytest.mark.parametrize("seed", range(30))
def test_polygons_become_the_pixels_of_pycocotools(seed):
    rng, height, width = shapes(seed)
    polygons = [outline(rng, height, width) for _ in range(int(rng.integers(1, 4)))]
    expected = peer.merge(peer.frPyObjects(polygons, height, width))
    ours = parse_segmentation(polygons, height, width)
    assert ours.compress() == {"size": [height, width], "counts": expected["counts"].decode()}
    assert np.array_equal(ours.mask(), peer.decode(expected))
    assert ours.area == peer.area(expected)


@pytest.mark.parametrize("seed", range(12))
def test_masks_are_encoded_and_read_as_by_pycocotools(seed):
    rng, height, width = shapes(seed)
    mask = (rng.random((height, width)) < rng.choice([0.0, 0.1, 0.5, 1.0])).astype(np.uint8)
    expected = peer.encode(np.asfortranarray(mask))
    assert encode(mask) == {"size": [height, width], "counts": expected["counts"].decode()}
    assert np.array_equal(decode(encode(mask)), mask)
    assert np.array_equal(decode({"size": [height, width], "counts": find_mask_runs(mask).counts().tolist()}), mask)
    assert np.array_equal(find_mask_runs(mask).box(), peer.toBbox(expected))


def test_many_masks_at_once_are_the_same_runs():
    rng = np.random.default_rng(2)
    masks = [rng.random((30, 40)) < share for share in (0.0, 0.02, 0.5, 1.0)]
    lengths = [0, 100, 0, 60, 40, 1000]  # with runs of no length, which others write
    one_by_one = [find_mask_runs(mask) for mask in masks] + [parse_segmentation({"size": [30, 40], "counts": lengths})]
    others = peer.frPyObjects({"size": [30, 40], "counts": lengths}, 30, 40)["counts"].decode()
    texts = [compress_runs(encode(mask), 30, 40) for mask in masks] + [
        compress_runs({"size": [30, 40], "counts": others}, 30, 40)
    ]
    assert texts[-1].decode() == others
    joined = ManyRuns.decode(texts, 30)
    np.testing.assert_array_equal(joined.areas, np.array([runs.area for runs in one_by_one]), strict=True)
    assert joined.areas.tolist() == [compute_area(text) for text in texts]
    for which, runs in enumerate(one_by_one):
        chosen = slice(joined.first[which], joined.first[which + 1])
        assert np.array_equal(joined.starts[chosen], runs.starts) and np.array_equal(joined.ends[chosen], runs.ends)
        _, top, _, height = runs.box()
        assert joined.rows[which].tolist() == ([top, top + height] if runs.area else [30, 0])
    assert ManyRuns.decode([], 30).first.tolist() == [0]


def test_boxes_are_drawn_as_by_pycocotools():
    rng = np.random.default_rng(5)
    for _ in range(40):
        box = np.round(rng.uniform(-10, 60, 4), 1)
        expected = peer.frPyObjects(box[None], 40, 50)[0]
        assert parse_segmentation(outline_of_box(box), 40, 50).compress()["counts"] == expected["counts"].decode()


def test_a_box_that_reaches_far_outside_is_drawn_as_one_to_the_edge():
    far, near = [2.0, 3.0, 10.0, 1e30], [2.0, 3.0, 10.0, 37.0]
    expected = parse_segmentation(outline_of_box(near), 40, 50)
    assert expected.area == 370 and parse_segmentation(outline_of_box(far), 40, 50).compress() == expected.compress()


def test_polygons_of_two_corners_have_no_pixels():
    triangle, line = [3, 3, 30, 5, 12, 37], [2.5, 7, 31, 22]
    expected = peer.merge(peer.frPyObjects([triangle, line], 40, 50))
    assert parse_segmentation([triangle, line], 40, 50).compress()["counts"] == expected["counts"].decode()
    assert parse_segmentation([line], 40, 50).area == parse_segmentation([line[:2]], 40, 50).area == 0
    with_half_a_corner = parse_segmentation([[*triangle, 99]], 40, 50)
    assert with_half_a_corner.compress() == parse_segmentation([triangle], 40, 50).compress()


@pytest.mark.parametrize("segmentation, message", [
    (None, "is neither"),
    ([], "has no polygon"),
    ([[]], "has no polygon with points"),
    ([[5]], "not a list of numbers x0, y0, x1, y1"),
    ([[1, 2, 3, 4, 5, float("nan")]], "not a number, or far outside"),
    ([[1, 2, 3, 4, 5, 1e12]], "far outside"),
    ([[1, 2, 3, 4, 5, "6 px"]], "not a list of numbers"),
    ([["a"] * 6], "not a list of numbers"),
    ([[1, 2, 3, 4, 5, 10**400]], "not a list of numbers"),
    ([1, 2, 3, 4, 5], "not a list of numbers"),
    ([1, 2, 3, 4, 5, "6"], "not a list of numbers"),
    ({"counts": [100]}, 'no "size"'),
    ({"size": [10, 10, 1], "counts": [100]}, 'no "size"'),
    ({"size": [True, 100], "counts": [100]}, "an image of True x 100 pixels"),
    ({"size": [10, 10]}, 'no "counts"'),
    ({"size": [20, 5], "counts": "T3"}, "is of 20 x 5 pixels, the image of 10 x 10"),
    ({"size": [10, 10], "counts": [1 << 31, 0]}, "outside the image"),
    ({"size": [10, 10], "counts": [[100]]}, "whole numbers"),
    ({"size": [10, -10], "counts": [100]}, "10 x -10 pixels"),
    ({"size": [10, 20], "counts": [200]}, "is of 10 x 20 pixels, the image of 10 x 10"),
    ({"size": [10, 10], "counts": [99]}, "99 pixels for an image of 10 x 10"),
    ({"size": [10, 10], "counts": [-1, 101]}, "outside the image"),
    ({"size": [10, 10], "counts": [1.5, 98.5]}, "whole numbers"),
    ({"size": [10, 10], "counts": []}, "whole numbers"),
    ({"size": [10, 10], "counts": ""}, "0 pixels"),
    ({"size": [10, 10], "counts": "!!"}, "compressed"),
    ({"size": [10, 10], "counts": "T"}, "compressed"),
    ({"size": [10, 10], "counts": "o" * 30}, "compressed"),
    ({"size": [10, 10], "counts": "é"}, "compressed|pixels"),
])  # fmt: skip
def test_what_is_no_mask_is_refused(segmentation, message):
    for read in (parse_segmentation, compress_runs, require_segmentation):
        with pytest.raises(ValueError, match=message):
            read(segmentation, 10, 10)


@pytest.mark.parametrize("seed", range(6))
def test_run_lengths_in_a_list_cover_a_pixel_together_as_with_pycocotools(seed):
    rng, height, width = shapes(seed)
    masks = rng.random((3, height, width)) < 0.3
    parts = [find_mask_runs(mask).listed() for mask in masks]
    expected = peer.merge(peer.frPyObjects(parts, height, width))
    assert parse_segmentation(parts, height, width).compress()["counts"] == expected["counts"].decode()
    assert require_segmentation(parts, None, None) == (height, width)
    assert parse_segmentation(parts[:1]).compress() == find_mask_runs(masks[0]).compress()


def test_polygons_without_points_add_nothing():
    triangle = [3, 3, 30, 5, 12, 37]
    assert (
        parse_segmentation([[], triangle, []], 40, 50).compress() == parse_segmentation([triangle], 40, 50).compress()
    )
    assert parse_segmentation(triangle, 40, 50).compress() == parse_segmentation([triangle], 40, 50).compress()
    assert find_box([[], triangle]) == find_box(triangle) == (3, 3, 27, 34)
    assert [has_shape(each) for each in (None, [], [[]], [[], []], "", {})] == [False] * 6
    assert [has_shape(each) for each in ([triangle], [[], triangle], [[5]], {"size": [4, 4]}, "mask.png")] == [True] * 5


@pytest.mark.parametrize(
    "text, lengths",
    [
        (b"0", [0]),
        (b"54", [5, 4]),
        (b"5412", [5, 4, 1, 6]),  # the fourth is the second last and 2
        (b"5c0", [5, 19]),
        (b"", []),
        (b"/", [-1]),  # below the first character
        (b"p", [-1]),  # above the last
        (b"O", [-1]),  # negative
        (b"P", [-1]),  # the text ends within a number
        (b"PPPPPPPPPP0", [-1]),  # more than 64 bits
    ],
)
def test_compressed_lengths_are_decoded_or_refused(text, lengths):
    found, first = _decode_lengths([text])
    assert found.tolist() == lengths and found.dtype == np.int64 and first[0] == 0
    if lengths != [-1]:
        assert first.tolist() == [0, len(lengths)]


def test_several_texts_are_decoded_one_after_the_other():
    found, first = _decode_lengths([b"54", b"", b"3", b"5412"])
    assert found.tolist() == [5, 4, 3, 5, 4, 1, 6] and first.tolist() == [0, 2, 2, 3, 7]


@pytest.mark.parametrize(
    ("segmentation", "size", "message"),
    [
        ([[0, 0, 2, 0, 2, 2]], (None, 5), "is a polygon, which needs the image's height and width"),
        ([[0, 0, 2, 0, 2, 2]], (4, None), "is a polygon, which needs the image's height and width"),
        ({"size": [1 << 15, 1 << 16], "counts": [0]}, (None, None), "32768 x 65536 pixels, which is too large"),
        ({"size": [4, 5], "counts": [[1], [2, 3]]}, (4, 5), 'has "counts" that are not a list of numbers'),
        ({"size": [4, 5], "counts": [20.0]}, (4, 5), 'has "counts" that are not a list of whole numbers'),
        ({"size": [4, 5], "counts": [19]}, (4, 5), "has run lengths of 19 pixels for an image of 4 x 5"),
        ({"size": [5, 4], "counts": [20]}, (4, 5), "is of 5 x 4 pixels, the image of 4 x 5"),
    ],
)
def test_sizes_and_counts_that_do_not_fit_are_refused(segmentation, size, message):
    with pytest.raises(ValueError, match=message):
        parse_segmentation(segmentation, *size)


def test_polygons_without_a_pixel_are_joined_to_nothing():
    thin = [0.1, 0.1, 0.2, 0.1, 0.2, 0.2]
    assert decode([thin, thin], 4, 5).sum() == 0
    assert decode([thin, [1, 1, 3, 1, 3, 3, 1, 3]], 4, 5).sum() == 4


def test_the_largest_image_is_taken():
    most = (1 << 31) - 1
    runs = parse_segmentation({"size": [1, most], "counts": [most - 3, 2, 1]})
    assert (runs.starts.tolist(), runs.ends.tolist()) == ([most - 3], [most - 1])


@pytest.mark.parametrize(
    ("outline", "is_empty"),
    [
        ([1, 2, 9, 2, 5, 2], True),
        ([3, 1, 3, 1, 3, 8, 3, 4], True),  # also with the first point twice
        ([0.1, 0.1, 0.7, 0.7, 0.3, 0.3, 9.1, 9.1], True),  # rounded
        ([1, 1, 4, 2, 7, 3, 10, 4, 1, 1], True),
        ([1, 1, 4, 2, 7, 3, 10, 4, 10, 12], False),  # the last point alone is beside the line
        ([2, 2, 2, 2, 9, 2, 5, 8], False),
    ],
)
def test_an_outline_whose_points_are_on_a_line_has_no_pixel_as_pycocotools_draws_it(outline, is_empty):
    assert are_flat([outline]) == is_empty
    theirs = peer.frPyObjects([list(map(float, outline))], 16, 16)
    assert (peer.area(theirs).sum() == 0) == is_empty == (compute_area(compress_runs([outline], 16, 16)) == 0)
    assert not are_flat([outline, [0, 0, 9, 0, 9, 9]])
