"""Slices of a volume with landmarks, classes, names and sides, pixel for pixel."""

import numpy as np
import pytest
from PIL import Image, ImageDraw

from paddlevit_dist.core.runtime.text_rendering import LINE_PX, legend, render_text
from paddlevit_dist.volumes import images

RED, GREEN, GRAY, NAN = (255, 70, 70), (80, 230, 80), (130, 130, 130), (np.nan,) * 3
PREDICTED = np.array([(2, 3, 5), NAN, (5, 8, 13), NAN], float)  # with the median 3.5, 5.5, 9
TRUE = np.array([(2, 4, 6), (1, 1, 1), NAN, NAN], float)
# Row, column, and whether the slice is at most 2 voxels away, of the first and third predicted and two true landmarks.
PANELS = {
    "axial 4": ((36, 28), [(22, 11, 1), (2, 27, 1), (18, 13, 1), (30, 3, 0)], "APLR"),
    "coronal 6": ((36, 28), [(21, 11, 0), (3, 27, 1), (21, 13, 1), (27, 3, 0)], "SILR"),
    "sagittal 9": ((36, 36), [(21, 14, 0), (3, 34, 0), (21, 18, 0), (27, 6, 0)], "SIPA"),
}


def draw_panel(image, title, marks, sides, has_numbers):
    pen = ImageDraw.Draw(image)
    for (row, column, is_near), color, number in zip(marks, (RED, RED, GREEN, GREEN), ("1", "3", None, "2")):
        if is_near:
            pen.line([(column - 4, row), (column + 4, row)], fill=color)
            pen.line([(column, row - 4), (column, row + 4)], fill=color)
        else:
            pen.rectangle([column, row, column + 1, row + 1], fill=color)
        if has_numbers and number:
            image.paste(color, (column + 5, row - 12), render_text(number, 12))
    pen.text((4, 4), title, fill=(255, 255, 255))
    (width, height), places = image.size, []
    if sides:
        places = [(width // 2, 16), (width // 2, height - 14), (4, height // 2), (width - 10, height // 2)]
    for place, letter in zip(places, sides):
        pen.text(place, letter, fill=(255, 220, 90))
    return np.asarray(image)


@pytest.mark.parametrize("is_full", [True, False])
def test_every_pixel(is_full):
    """With 6, 4 and 2 pixels for a voxel along depth, height and width."""
    generator, names = np.random.default_rng(0), ["a", "bc", "d", "e"] if is_full else None
    volume, labels = generator.uniform(-0.3, 1.3, (6, 9, 14)), generator.integers(0, 3, (6, 9, 14), np.uint8)
    table = np.zeros((256, 4), np.float32)
    table[1:3] = (250, 10, 90, 0.25), (0, 200, 100, 1.0)
    found = images.orthogonal_slices(
        volume, (3.0, 2.0, 1.0), PREDICTED, TRUE, shows_sides=is_full, names=names,
        classes=(labels, table) if is_full else None, shortest_side=28,
    )  # fmt: skip
    expected = []
    for axis, (title, (size, marks, sides)) in enumerate(PANELS.items()):
        cut = (slice(None),) * axis + ((4, 6, 9)[axis],)
        gray = Image.fromarray(np.rint(255 * np.clip(volume[cut], 0, 1)).astype(np.uint8)[::-1])
        image = gray.resize(size[::-1], Image.Resampling.BILINEAR).convert("RGB")
        if is_full:
            repeats = [each // length for each, length in zip(size, labels[cut].shape)]
            shown = table[labels[cut][::-1].repeat(repeats[0], 0).repeat(repeats[1], 1)]
            mixed = np.asarray(image) * (1 - shown[..., 3:]) + shown[..., 3:] * shown[..., :3]
            image = Image.fromarray(np.rint(mixed).astype(np.uint8))
        expected += [draw_panel(image, title, marks, sides if is_full else "", is_full), np.zeros((36, 6, 3), np.uint8)]
    if is_full:
        entries = [("1 a", RED), ("2 bc", GREEN), ("3 d", RED), ("4 e", GRAY)]
        listed = np.asarray(legend(entries, 36, ink="white", paper="black"))
        expected.append(np.pad(listed, [(0, 36 - len(listed)), (0, 0), (0, 0)]))
    else:
        expected.pop()
    np.testing.assert_array_equal(found, np.concatenate(expected, axis=1), strict=True)


def test_sizes_and_middles():
    def size(shape, **options):
        return images.orthogonal_slices(np.zeros(shape), (1.0, 1.0, 1.0), None, **options).shape

    assert size((3, 4, 5)) == (round(4 * 256 / 3), 2 * round(5 * 256 / 3) + round(4 * 256 / 3) + 12, 3)
    assert size((2, 90, 90)) == (768, 3 * 768 + 12, 3)
    assert size((2, 2, 2), shortest_side=1) == (1, 15, 3)
    assert size((2, 2, 2), names=["a"], shortest_side=1)[0] == LINE_PX > 1
    assert (
        images.find_middle((3, 4, 8), None).tolist()
        == images.find_middle((3, 4, 8), np.array([NAN])).tolist()
        == [1, 1.5, 3.5]
    )
    assert images.find_middle((9, 9, 9), np.array([NAN, (1, 2, 8), (2, 5, 1)])).tolist() == [1.5, 3.5, 4.5]


def test_a_center_outside_is_moved_to_the_border():
    volume = np.random.default_rng(0).uniform(0, 1, (3, 4, 5))
    for center, shown in (((9, -3, 2.6), (2, 0, 3)), ((2.4, 3.6, 9), (2, 3, 4))):
        one, other = (
            images.orthogonal_slices(volume, (1, 1, 1), None, TRUE, center=np.array(each)) for each in (center, shown)
        )
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("predicted", [None, PREDICTED])
@pytest.mark.parametrize("true", [None, TRUE])
def test_axial_slices_have_the_marks_that_are_given(predicted, true):
    pictures = images.axial_slices(np.zeros((6, 9, 14)), (3.0, 2.0, 1.0), [2, 5], predicted, true)
    for color, points in ((RED, predicted), (GREEN, true)):
        assert (pictures[0] == color).all(axis=2).any() == (points is not None)
    assert len(pictures) == 2 and len({picture.shape for picture in pictures}) == 1
    for shape, size in (((2, 10, 20), (192, 384, 3)), ((2, 100, 10), (768, 77, 3)), ((2, 10, 40), (192, 768, 3))):
        assert images.axial_slices(np.zeros(shape), (9.0, 1.0, 1.0), [0])[0].shape == size
