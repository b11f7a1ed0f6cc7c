"""Boxes, names and masks on images, pixel by pixel; what cells of figures are made of."""

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.core.tasks.figures import class_colors
from paddlevit_dist.images.detection import drawing
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth

RED, BLUE, GREEN = map(tuple, class_colors(3).tolist())
WHITE, BLACK = (255, 255, 255), (0, 0, 0)


@pytest.fixture(autouse=True)
def texts(monkeypatch):
    """In place of letters, a block of 20 x 10 pixels; what was written and how large."""
    written = []

    def render(text, size):
        written.append((text, size))
        return Image.new("L", (20, 10), 255)

    monkeypatch.setattr(drawing, "render_text", render)
    return written


def make_pen(height, width):
    return drawing.CanvasPen(Image.new("RGB", (width, height)))


@pytest.mark.parametrize(
    "longest, text_px, line_px", [(500, 12, 2), (539, 12, 2), (585, 13, 2), (900, 20, 3), (1800, 40, 5), (9000, 40, 26)]
)
def test_letters_and_lines_grow_with_the_longer_side_within_limits(longest, text_px, line_px):
    for pen in (make_pen(7, longest), make_pen(longest, 7)):
        assert (pen.text_px, pen.line_px) == (text_px, line_px)


def test_a_frame_has_a_rim_and_ends_at_the_image():
    pen = make_pen(50, 60)
    pen.frame(np.array([40.0, 30.9, 10.0, 20.0]), RED)  # corners in any order
    across = [pen.canvas.getpixel((x, 25)) for x in range(60)]
    side = [WHITE, RED, RED, WHITE]
    assert across == [BLACK] * 9 + side + [BLACK] * 25 + side + [BLACK] * 18
    down = [pen.canvas.getpixel((25, y)) for y in range(50)]
    assert down == [BLACK] * 19 + side + [BLACK] * 5 + side + [BLACK] * 18
    pen = make_pen(50, 60)
    pen.frame(np.array([-9.0, -7.0, 90.0, 80.0]), GREEN)
    corner = [GREEN, GREEN, BLACK]
    assert [pen.canvas.getpixel((x, 25)) for x in (0, 1, 3, 56, 58, 59)] == [*corner, *corner[::-1]]
    assert [pen.canvas.getpixel((25, y)) for y in (0, 1, 3, 46, 48, 49)] == [*corner, *corner[::-1]]
    before = np.asarray(pen.canvas).copy()
    plates: list = []
    for bad in (np.nan, np.inf):
        pen.frame(np.array([1.0, bad, 9, 9]), RED)
        pen.name(np.array([bad, 1.0, 9, 9]), "x", RED, plates)
    assert np.array_equal(pen.canvas, before) and plates == []


def test_names_are_above_in_below_or_over_the_lower_edge_and_stay_in_the_image():
    pen, plates = make_pen(200, 300), []
    for _ in range(5):
        pen.name(np.array([150.0, 100.5, 110.0, 60.0]), "x", RED, plates)
    tops = [50, 62, 100, 90, 50]  # no place is free for the last
    assert plates == [(110, top, 134, top + 10) for top in tops]
    for left, top, box in ((276, 0, [290, 4, 299, 40]), (0, 190, [-20, 300, -5, 400])):
        pen, plates = make_pen(200, 300), []
        pen.name(np.array(box, float), "x", RED, plates)
        assert plates == [(left, top, left + 24, top + 10)]
        shown = np.asarray(pen.canvas)[top : top + 10, left : left + 24]
        assert (shown[:, 2:22] == WHITE).all() and (shown[:, [0, 1, 22, 23]] == RED).all()
        assert np.count_nonzero(np.asarray(pen.canvas).any(axis=2)) == 240
    narrow, plates = make_pen(5, 10), []
    narrow.name(np.array([4.0, 3, 8, 4]), "x", GREEN, plates)
    assert plates == [(0, 0, 24, 10)] and narrow.canvas.getpixel((3, 3)) == BLACK


@pytest.mark.parametrize(
    "other, meets",
    [((10, 10, 20, 20), True), ((0, 0, 10, 10), False), ((29, 0, 40, 11), True), ((30, 10, 40, 20), False)]
    + [((12, 20, 14, 30), False), ((12, 19, 14, 30), True), ((12, 0, 14, 10), False)],
)
def test_rectangles_that_touch_do_not_overlap(other, meets):
    assert drawing.intersect((10, 10, 30, 20), other) is drawing.intersect(other, (10, 10, 30, 20)) is meets


def test_text_is_white_on_dark_colors():
    dark = [(139, 140, 140), (255, 0, 255), (0, 200, 0), (140, 139, 140), (140, 140, 139)]
    assert all(map(drawing.is_dark, dark))
    assert not any(map(drawing.is_dark, [(140, 140, 140), (255, 110, 0), (0, 220, 90)]))


def test_colors_and_names_also_of_labels_beyond_the_names():
    colors = [tuple(color) for color in class_colors(6).tolist()]
    assert drawing.get_label_colors(np.array([1, -1, 5, 0]), 2) == [colors[1], (150, 150, 150), colors[5], colors[0]]
    assert drawing.get_label_colors(np.zeros(0, int), 0) == []
    names = ["a" * 31, "\ue000" * 2]
    assert [drawing.short_name(names, label) for label in range(3)] == ["a" * 30, "class 1", "2"]
    assert [drawing.enlargement_factor(size) for size in ((320, 1), (1, 319), (160, 160), (107, 3), (9, 900))] == [
        *(1, 2, 2, 3, 1)
    ]


def test_more_certain_masks_boxes_and_names_are_in_front(texts):
    image = np.full((160, 100, 3), 100, np.uint8)  # enlarged twice
    masks = np.zeros((3, 160, 100), np.uint8)
    masks[0, 80:100, 20:40] = masks[1, 90:110, 30:50] = 1
    run_lengths = {"counts": [0, 160 * 100], "size": [160, 100]}
    boxes = np.array([[20, 80, 40, 100], [20, 80, 40, 100], [60, 20, 90, 60]], np.float32)
    labels, scores = np.array([0, 1, -1]), np.array([0.5, 0.25, 0.125])
    shown = drawing.draw_boxes(image, boxes, labels, ["ant", "bee"], scores, [masks[0], masks[1], run_lengths])
    assert shown.shape == (320, 200, 3) and (image == 100).all()

    def tinted(*colors):
        value = np.full(3, 100.0)
        for color in colors:
            value = np.rint(0.55 * value + 0.45 * np.array(color))
        return value.tolist()

    gray = (150, 150, 150)
    assert shown[190, 70].tolist() == tinted(gray, BLUE, RED) and shown[210, 90].tolist() == tinted(gray, BLUE)
    assert shown[185, 50].tolist() == tinted(gray, RED) and shown[5, 5].tolist() == tinted(gray)
    assert shown[180, 40].tolist() == list(RED) and shown[80, 120].tolist() == list(gray)
    assert texts == [("ant 0.50", 12), ("bee 0.25", 12)]  # none of the third
    assert shown[151, 41].tolist() == list(RED) and shown[163, 41].tolist() == list(BLUE)
    texts.clear()
    plain = drawing.draw_boxes(image, boxes[:2], labels[:2], ["ant", "bee"])
    assert [text for text, _ in texts] == ["bee", "ant"] and plain[180, 40].tolist() == list(BLUE)


def test_cells_are_resized_with_their_boxes_and_masks(monkeypatch):
    given = []
    monkeypatch.setattr(drawing, "draw_boxes", lambda image, *others: given.append((image, *others)) or image)
    image = np.zeros((40, 80, 3), np.uint8)
    image[5:10, 20:30] = 200
    masks = image[None, :, :, 0] // 200
    names, scores = ["x"], np.array([0.5])
    cell = drawing.fit_in_cell(image, np.array([[20.0, 5, 30, 10]]), np.array([0]), names, masks, scores)
    ((resized, boxes, labels, *others, found),) = given
    assert resized.shape == (160, 320, 3) and boxes.tolist() == [[80, 20, 120, 40]] and labels.tolist() == [0]
    assert others == [names, scores] and np.array_equal(found[0], resized[:, :, 0] // 200) and found[0].sum() == 800
    assert cell.shape == (320, 320, 3) and np.array_equal(cell[:160], resized) and (cell[160:] == 255).all()
    drawing.fit_in_cell(image, np.zeros((0, 4)), np.zeros(0, int), names)
    assert given[1][4:] == (None, None)


def test_batches_and_annotations_are_drawn_without_padding(monkeypatch):
    given = []
    monkeypatch.setattr(drawing, "fit_in_cell", lambda *parts: given.append(parts) or "cell")
    generator = np.random.default_rng(0)
    batch = {
        "images": generator.integers(0, 256, (2, 3, 8, 9), dtype=np.uint8),
        "boxes": generator.normal(size=(2, 2, 4)),
        "labels": np.array([[1, -1], [0, 1]]),
        "masks": generator.integers(0, 2, (2, 2, 8, 9), dtype=np.uint8),
    }
    found = drawing.draw_batch(batch, np.array([[8, 5], [4, 9]]), np.array([1, 2]), ["x", "y"])
    assert found == [("cell", "5 x 8, 1 box"), ("cell", "9 x 4, 2 boxes")]
    for row, (height, width, number) in enumerate(((8, 5, 1), (4, 9, 2))):
        pixels, boxes, labels, names, masks = given[row]
        np.testing.assert_array_equal(pixels, np.moveaxis(batch["images"][row, :, :height, :width], 0, 2), strict=True)
        assert boxes.tolist() == batch["boxes"][row, :number].tolist() and names == ["x", "y"]
        assert labels.tolist() == batch["labels"][row, :number].tolist()
        np.testing.assert_array_equal(masks, batch["masks"][row, :number, :height, :width], strict=True)
        assert pixels.flags.c_contiguous
    del batch["masks"]
    drawing.draw_batch(batch, np.array([[8, 9]]), np.array([0]), [])
    assert given[2][4] is None
    truth = BoxGroundTruth(
        np.array([[2.0, 3, 4, 5], [0, 0, 20, 10]]), np.array([1, 0]), np.ones(2), np.array([False, True])
    )
    image = np.full((3, 30, 40), 7.6, np.float32)
    drawn = drawing.draw_annotations(image, (20, 10), truth, ["x", "y"])
    assert drawn == ("cell", "40 x 30, 2 annotated")
    pixels, boxes, labels, names = given[3]
    assert pixels.shape == (30, 40, 3) and pixels.dtype == np.uint8 and (pixels == 8).all()
    assert boxes.tolist() == [[4, 9, 12, 24], [0, 0, 40, 30]] and labels.tolist() == [1, -1] and names == ["x", "y"]
