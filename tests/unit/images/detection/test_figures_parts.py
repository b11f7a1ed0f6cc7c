"""Tables and charts of a detector's evaluation, from images whose matches are counted by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from support.filled_cells import to_dense

from paddlevit_dist.images.detection import figures
from paddlevit_dist.images.detection.data.image_annotations import ImageAnnotations
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.evaluation.curves import DetectionCurves
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth, match
from paddlevit_dist.images.detection.evaluation.operating_points import (
    NO_WISHES,
    WishedRates,
    find_thresholds,
    split_by_class,
)
from paddlevit_dist.images.detection.records import DetectionRecord
from paddlevit_dist.images.run_lengths import encode

NAMES = ["ant", "bee", "cat", "dog"]


def place(number: int, label: int, *more: float) -> tuple:
    """A box of 10 pixels, far from others, of a class."""
    return (30 * number, 0, 10, 10, label, *more)


def truth(*rows) -> BoxGroundTruth:
    table = np.array(rows, float).reshape(-1, 6)
    return BoxGroundTruth(table[:, :4], table[:, 4].astype(int), table[:, 2] * table[:, 3], table[:, 5] > 0)


def found(*rows) -> DetectedObjects:
    table = np.array(rows, np.float32).reshape(-1, 6)
    corners = np.concatenate([table[:, :2], table[:, :2] + table[:, 2:4]], axis=1)
    return DetectedObjects(corners, table[:, 5], table[:, 4].astype(int))


# Two ants of which one is called a bee, three bees of which one is missed, a dog that is found with a low score, two
# boxes of nothing; no cat. The crowd of bees counts as neither.
IMAGES = [
    (
        truth(place(0, 0, 0), place(1, 0, 0), place(2, 1, 0)),
        found(place(0, 0, 0.9), place(1, 1, 0.8), place(2, 1, 0.7), place(5, 3, 0.75)),
    ),
    (truth(), found(place(4, 3, 0.65))),
    (
        truth(place(0, 1, 0), place(1, 1, 0), place(2, 3, 0), place(7, 1, 1)),
        found(place(0, 1, 0.95), place(2, 3, 0.3), place(7, 1, 0.6)),
    ),
]


@pytest.fixture(scope="module")
def records() -> list[DetectionRecord]:
    return [
        DetectionRecord.from_table(match(number, image, boxes, 4), image, boxes, 0.5)
        for number, (image, boxes) in enumerate(IMAGES)
    ]


@pytest.fixture(scope="module")
def table(records):
    return figures.join_tables(records, 4)


@pytest.fixture(scope="module")
def cells(records):
    return figures.count_pairs([record.pairs for record in records], 4)


def test_the_table_of_all_images_counts_annotations_without_crowds(table):
    totals = table.to_arrays()["totals"]
    assert totals[:, 0].tolist() == [2, 3, 0, 1] and not totals[:, 1:].any()
    assert table.annotated[:, :3].tolist() == [[0, 0, 2], [0, 1, 1], [2, 1, 2], [2, 3, 1]]
    assert table.image_ids.tolist() == [0, 1, 2] and table.num_true.tolist() == [3, 0, 3]
    counts = np.bincount(table.image_positions(), minlength=3)
    assert counts.tolist() == [4, 1, 3] and len(table.labels) == len(table.scores) == 8


def test_each_category_has_its_scores_and_what_it_was_taken_for(table, cells):
    assert to_dense(cells, 5).tolist() == [[1, 1, 0, 0, 0], [0, 2, 0, 0, 1], [0] * 5, [0, 0, 0, 0, 1], [0, 0, 0, 2, 0]]
    _, class_ap = DetectionCurves.from_table(table).scores(np.ones((1, 3)))
    figure = figures.tabulate_categories(class_ap[0], split_by_class(table), cells, NAMES, 0.5)
    assert figure.title == "Categories" and figure.columns == (
        *("category", "AP", "AP50", "AP75", "annotated", "found", "correct", "most often taken for"),
    )
    # AP by its definition: an ant of two is right; bees: right at 0.95, wrong at 0.8, right at 0.7, of three.
    ant, bee = 51 / 101, (34 * 1 + 33 * 2 / 3) / 101
    dog = 1 / 3  # two wrong boxes come first
    assert figure.rows == [
        ("ant", *[round(ant, 4)] * 3, 2, 1, 1, "bee"),
        ("bee", *[round(bee, 4)] * 3, 3, 3, 2, "nothing"),
        ("cat", None, None, None, 0, 0, 0, None),
        ("dog", *[round(dog, 4)] * 3, 1, 2, 0, "nothing"),
    ]
    assert "with a score of at least 0.5; correct: at an IoU of 0.5" in figure.note
    assert all(len(row) == len(figure.columns) for row in figure.rows)


def test_a_confusion_has_a_class_of_nothing_unless_there_are_too_many(cells):
    (figure,) = figures.show_confusion(cells, NAMES, 0.5)
    assert figure.names == [*NAMES, "nothing"] and figure.values is cells and figure.title == "Confusion"
    assert [len(figures.show_confusion(cells, ["x"] * number, 0.5)) for number in (100, 99)] == [0, 1]


def test_curves_are_of_all_and_of_the_most_frequent(table, monkeypatch):
    classes = split_by_class(table)
    (chart,) = figures.chart_precision(classes, NAMES)
    assert list(chart.lines) == ["all categories", "bee", "ant", "dog"] and chart.note == "At an IoU of 0.5."
    assert (chart.title, chart.x_label, chart.y_label) == ("Precision and recall", "recall", "precision")
    for name, labels in (("all categories", [0, 1, 3]), ("bee", [1]), ("ant", [0]), ("dog", [3])):
        recalls, precisions = chart.lines[name]
        np.testing.assert_array_equal(
            precisions, np.mean([classes[k].sample_precision() for k in labels], axis=0), strict=True
        )
        assert len(recalls) == 101 and recalls[-1] == 1
    monkeypatch.setattr(figures, "_MOST_CURVES", 2)
    (chart,) = figures.chart_precision(classes, NAMES)
    assert list(chart.lines) == ["all categories", "bee", "ant"]
    assert chart.note == "At an IoU of 0.5; the 2 most frequent categories."
    monkeypatch.setattr(figures, "_MOST_CURVES", 3)
    assert figures.chart_precision(classes, NAMES)[0].note == "At an IoU of 0.5."  # these are all
    only_ants = table._replace(annotated=table.annotated[table.annotated[:, 1] == 0])
    (chart,) = figures.chart_precision(split_by_class(only_ants), NAMES)
    assert list(chart.lines) == ["all categories"]
    assert figures.chart_precision(split_by_class(table._replace(annotated=table.annotated[:0])), NAMES) == []


def test_a_threshold_is_chosen_by_f1(table):
    (chart,) = figures.chart_thresholds(table, 0.5)
    # (score, right at an IoU of 0.5 with its class): of six annotations; the box in the crowd does not count
    boxes = [(0.95, 1), (0.9, 1), (0.8, 0), (0.75, 0), (0.7, 1), (0.65, 0), (0.3, 1)]
    precision, recall, f1 = [], [], []
    thresholds = sorted({*(number / 100 for number in range(1, 100)), 0.7})
    for score in thresholds:
        hits = [is_right for value, is_right in boxes if np.float32(value) >= np.float32(score)]
        precision.append(sum(hits) / len(hits) if hits else np.nan)
        recall.append(sum(hits) / 6)
        f1.append(2 * sum(hits) / (len(hits) + 6))
    for name, values in (("precision", precision), ("recall", recall), ("F1", f1)):
        np.testing.assert_allclose(chart.lines[name][1], values, err_msg=name)
        assert chart.lines[name][0].tolist() == thresholds
    best = max((2 * sum(r for _, r in boxes[:k]) / (k + 6), boxes[k - 1][0]) for k in range(1, len(boxes) + 1))
    assert chart.note.startswith(f"F1 is highest, {best[0]:.3f}, with boxes from a score of {best[1]:g} on;")
    assert "boxes from 0.5 on are shown" in chart.note
    assert (chart.x_label, chart.y_label) == ("lowest score of a box", "fraction")
    (chart,) = figures.chart_thresholds(table._replace(true_positives=0 * table.true_positives), 0.5)
    assert chart.note.startswith("nothing is found: no detection matches an annotation; boxes from 0.5 on are shown")
    nothing = table._replace(num_true=0 * table.num_true, true_positives=0 * table.true_positives)
    assert figures.chart_thresholds(nothing, 0.5) == []


def test_thresholds_are_listed_for_what_is_wished(table):
    classes, wished = split_by_class(table), WishedRates(0.9, 0.5)
    found = find_thresholds(classes, NAMES, wished, np.ones((1, 3)))
    (figure,) = figures.chart_best_thresholds(classes, 3, NAMES, wished)
    assert figure.columns == ["category", "precision 0.9", "recall 0.5"]
    for name, row in zip(NAMES, figure.rows):
        values = [float(found[wished.name(kind, name)][0]) for kind in wished._fields]
        assert row == [name, *(None if math.isnan(value) else pytest.approx(value, abs=0.01) for value in values)]
    assert any(None not in row for row in figure.rows) and any(None in row for row in figure.rows)
    (figure,) = figures.chart_best_thresholds(classes, 3, NAMES, WishedRates(recall=0.75))
    assert figure.columns == ["category", "recall 0.75"]
    assert figures.chart_best_thresholds(classes, 3, NAMES, NO_WISHES) == []


def test_the_hardest_images_are_drawn_with_the_boxes_that_count(records, monkeypatch):
    drawn = []

    def gallery(dataset, chosen, draw, note, folded):
        image, boxes = IMAGES[chosen[0][0] - 10]
        drawn.append((dataset, list(chosen), note, draw(chosen[0][0], "pixels", image), boxes))
        return [SimpleNamespace(title="gallery")]

    def cell(pixels, boxes, labels, names, masks=None, scores=None):
        assert masks is None
        return (
            pixels,
            len(boxes),
            labels.tolist(),
            names,
            None if scores is None else [round(float(score), 2) for score in scores],
        )

    monkeypatch.setattr(figures, "build_gallery", gallery)
    monkeypatch.setattr(figures, "fit_in_cell", cell)
    all_figures = figures.detection_figures(
        SimpleNamespace(name="data"),
        [(10 + n, one) for n, one in enumerate(records)],
        NAMES,
        0.5,
        lambda n: IMAGES[n - 10][1],
    )
    assert [figure.title for figure in all_figures] == [
        *("gallery", "Precision and recall", "Categories", "Confusion", "Choice of the score threshold")
    ]
    ((dataset, chosen, note, cells, _),) = drawn
    assert dataset.name == "data" and chosen == [
        (11, "0 right, 1 wrong, 0 missed"),
        (12, "1 right, 0 wrong, 2 missed"),
        (10, "2 right, 2 wrong, 1 missed"),
    ]
    assert note.endswith("Left: annotations; right: detections with a score of at least 0.5.")
    assert cells == [("pixels", 0, [], NAMES, None), ("pixels", 1, [3], NAMES, [0.65])]
    crowd = []
    monkeypatch.setattr(
        figures, "build_gallery", lambda data, chosen, draw, *_: crowd.extend(draw(12, "p", IMAGES[2][0]))
    )
    figures.show_hardest(
        None,
        [(12, 2)],
        figures.compute_image_quality(figures.join_tables(records, 4), 0.5),
        NAMES,
        0.5,
        lambda n: IMAGES[2][1],
    )
    assert crowd == [("p", 4, [1, 1, 3, -1], NAMES, None), ("p", 2, [1, 1], NAMES, [0.95, 0.6])]


@pytest.mark.parametrize("has_masks", [True, False])
def test_masks_are_drawn_on_both_sides_if_the_network_has_some(records, monkeypatch, has_masks):
    half = np.zeros((40, 40), np.uint8)
    half[:20] = 1
    boxes, zero = np.array([[0, 0, 40, 40.0]]), np.zeros(1, np.int64)
    annotations = ImageAnnotations(boxes, zero, np.array([800.0]), zero > 0, zero, [encode(half)])
    found = DetectedObjects(boxes.astype(np.float32), np.array([0.9], np.float32), zero)
    found = found._replace(masks=[encode(half)]) if has_masks else found
    cells, black = [], np.zeros((40, 40, 3), np.uint8)
    monkeypatch.setattr(figures, "build_gallery", lambda *given: cells.extend(given[2](0, black, annotations)))
    quality = figures.compute_image_quality(figures.join_tables(records, 4), 0.5)
    figures.show_hardest(None, [(0, 0)], quality, NAMES, 0.5, lambda n: found)
    assert len(cells) == 2
    for cell in cells:
        side = len(cell)
        upper, lower = (cell[row : row + side // 8, side // 4 : -side // 4] for row in (side // 4, 5 * side // 8))
        assert upper.any() == has_masks and not lower.any()


def test_the_last_categories_may_be_absent_and_a_score_at_the_limit_counts(records, monkeypatch):
    ants = figures.join_tables([records[0]._replace(true_labels=np.array([0, 0], np.uint16))], 4)
    assert ants.to_arrays()["totals"][:, 0].tolist() == [2, 0, 0, 0]
    limit = float(np.float32(0.7))
    seen = []
    monkeypatch.setattr(
        figures, "build_gallery", lambda data, chosen, draw, *_: seen.extend(draw(0, "p", IMAGES[0][0]))
    )
    monkeypatch.setattr(figures, "fit_in_cell", lambda pixels, boxes, *_, **__: len(boxes))
    quality = figures.compute_image_quality(figures.join_tables(records, 4), limit)
    figures.show_hardest(None, [(0, 0)], quality, NAMES, limit, lambda n: IMAGES[0][1])
    assert seen == [3, 4]
