"""Cells and colors of the figures of images, pixel by pixel."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.figures import class_colors
from paddlevit_dist.images import drawing


@pytest.mark.parametrize("size, expected", [((80, 40), (320, 160)), ((3, 640), (2, 320)), ((1, 900), (1, 320))])
def test_an_image_fits_the_longer_side_of_a_cell(size, expected):
    image = np.random.default_rng(0).integers(0, 200, (*size, 3), dtype=np.uint8)
    fitted = drawing.fit_image(image)
    assert fitted.shape == (*expected, 3)
    if size[0] == 80:  # enlarged without smoothing
        np.testing.assert_array_equal(fitted, image.repeat(4, axis=0).repeat(4, axis=1))
    if size[0] == 3:  # reduced with it
        smooth = Image.fromarray(image).resize((320, 2), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(fitted, smooth)
    cell = drawing.fit_in_cell(image)
    assert cell.shape == (320, 320, 3) and np.array_equal(cell[: expected[0], : expected[1]], fitted)
    assert (cell[expected[0] :] == 255).all() and (cell[:, expected[1] :] == 255).all()


def test_cells_are_joined_with_gaps():
    cells = [np.full((320, width, 3), value, np.uint8) for width, value in ((320, 1), (10, 2))]
    joined = drawing.join_cells(cells)
    assert joined.shape == (320, 336, 3) and joined[7, :, 1].tolist() == [1] * 320 + [255] * 6 + [2] * 10
    assert drawing.join_cells(cells[:1]) is not None and drawing.join_cells(cells[:1]).shape == (320, 320, 3)


def test_a_gallery_has_the_images_that_can_still_be_read():
    def read(index):
        if index in (2, 3):
            raise UserError("torn") if index == 2 else OSError("gone")
        return Image.new("RGB", (index, 4)), f"truth {index}"

    seen = []

    def draw_cells(index, pixels, truth):
        seen.append((index, pixels.shape, truth))
        return [np.full((320, 5, 3), index, np.uint8)] * 2

    samples = SimpleNamespace(dataset=SimpleNamespace(read=read), describe=lambda index: f"file {index}")
    chosen = [(9, "worst"), (2, "b"), (3, "c"), (7, "last")]
    (gallery,) = drawing.build_gallery(samples, chosen, draw_cells, "a note")
    assert seen == [(9, (4, 9, 3), "truth 9"), (7, (4, 7, 3), "truth 7")]
    assert (gallery.title, gallery.note) == ("Hardest images", "a note")
    assert [caption for _, caption in gallery.images] == ["worst\nfile 9", "last\nfile 7"]
    assert [image.shape for image, _ in gallery.images] == [(320, 16, 3)] * 2 and gallery.images[1][0][0, 0, 0] == 7
    assert drawing.build_gallery(samples, chosen[1:3], draw_cells, "") == []


def test_published_colors_come_first():
    published = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.uint8)
    own = class_colors(5)
    assert drawing.get_palette(object(), 5).tolist() == own.tolist()
    dataset = SimpleNamespace(palette=published)
    assert drawing.get_palette(dataset, 5).tolist() == [*published.tolist(), *own[3:].tolist()]
    assert drawing.get_palette(dataset, 2).tolist() == published[:2].tolist()


def test_labels_are_blended_and_pixels_without_a_class_stay():
    pixels = np.arange(12, dtype=np.uint8).reshape(1, 4, 3) * 20
    palette = np.array([[255, 0, 100], [0, 50, 30]], np.uint8)
    labels = np.array([[1, 0, 2, 255]], np.uint8)
    found = drawing.overlay_labels(pixels, labels, palette)
    expected = pixels.astype(float)
    expected[0, :2] = np.rint(0.4 * expected[0, :2] + 0.6 * palette[[1, 0]])
    assert found.tolist() == expected.tolist() and found.dtype == np.uint8


@pytest.mark.parametrize("number, shown, more", [(90, 90, None), (91, 90, "and 1 more"), (0, 0, None)])
def test_a_legend_names_ninety_classes(number, shown, more):
    names, colors = [f"class {label}" for label in range(number)], class_colors(number).tolist()
    entries = drawing.build_legend(names, colors)
    assert entries[:shown] == list(zip(names, colors))[:shown]
    assert entries[shown:] == ([] if more is None else [(more, (255, 255, 255))])


@pytest.mark.parametrize("height", [10, 200])
def test_a_legend_stands_beside_the_image(monkeypatch, height):
    asked = []

    def legend(entries, most):
        asked.append((entries, most))
        return Image.new("RGB", (15, 60), (9, 8, 7))

    monkeypatch.setattr(drawing, "legend", legend)
    joined = np.asarray(drawing.add_legend(np.full((height, 30, 3), 5, np.uint8), ["entry"]))
    assert joined.shape == (max(height, 60), 45, 3) and asked == [(["entry"], max(height, drawing.LINE_PX))]
    assert (joined[:height, :30] == 5).all() and (joined[:60, 30:] == [9, 8, 7]).all()
    assert (joined[height:, :30] == 255).all() and (joined[60:, 30:] == 255).all()
