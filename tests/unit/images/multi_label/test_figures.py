"""Figures of several labels, against loops over images and classes."""

import csv

import numpy as np
import paddle
import pytest
from support.samples.tagged_images import NAMES, make_task

from paddlevit_dist.core.tasks import get_aspect
from paddlevit_dist.core.tasks.protocols import Drawable, Reportable
from paddlevit_dist.core.tasks.step_types import EvaluationStep
from paddlevit_dist.images.multi_label.figures import EvaluatedLabels


@pytest.fixture
def evaluated(tmp_path):
    """Labels and probabilities of 11 images, with equal ones among them, and the figures by their titles."""
    task, splits = make_task(folder=tmp_path)
    labels = splits["val"].dataset.label_matrix
    # Thirds off zero: a right and a wrong answer are never equally far from their labels but for rounding.
    logits = (np.random.default_rng(4).normal(0.3, 1.5, labels.shape).round() + 1 / 3).astype(np.float32)
    step = EvaluationStep(task.build_metrics(), keeps_records=True)
    batch = {"images": paddle.zeros([11, 3, 16, 16]), "labels": paddle.to_tensor(labels)}
    records = task.eval_step(lambda images: paddle.to_tensor(logits), batch, step)()
    figures = get_aspect(task, Reportable).figures(splits["val"], list(enumerate(records)), None)
    assert get_aspect(task, Reportable).figures(splits["val"], [], None) == []
    shares = 1 / (1 + np.exp(-logits.astype(np.float64)))
    return splits["val"], labels, shares, {figure.title: figure for figure in figures}


def list_precision_and_recall(truth, scores):
    """Recall and precision at each distinct score, from the highest."""
    points = []
    for level in sorted(set(scores), reverse=True):
        right = sum(t for t, s in zip(truth, scores) if s >= level)
        points.append((right / sum(truth), right / sum(s >= level for s in scores)))
    return points


def test_scores_and_curves_of_classes_are_of_the_known_labels(evaluated):
    _, labels, shares, figures = evaluated
    rows, lines = figures["Classes"].rows, figures["Precision and recall"].lines
    numbers = (labels == 1).sum(axis=0)
    assert list(lines) == [NAMES[label] for label in np.argsort(-numbers, kind="stable")]
    assert figures["Precision and recall"].note == ""
    for label, name in enumerate(NAMES):
        known = labels[:, label] >= 0
        truth, scores = labels[known, label] == 1, shares[known, label]
        points = list_precision_and_recall(truth, scores)
        np.testing.assert_allclose(np.transpose(lines[name]), points)
        ap = sum((r - before) * p for (r, p), before in zip(points, [0, *(r for r, _ in points)]))
        chosen = scores > 0.5
        hits, right, found = (chosen & truth).sum(), truth.sum(), chosen.sum()
        expected = [ap, hits / right, 2 * hits / (found + right), hits / found]
        assert rows[label][0] == name and rows[label][1:5] == pytest.approx(expected, abs=0.00006)
        assert rows[label][5:] == (0.5, right, found, known.sum())


def test_contradicted_labels_are_listed_from_the_farthest_and_written(evaluated, tmp_path):
    dataset, labels, shares, figures = evaluated
    wrong = [(image, label) for image, label in np.ndindex(labels.shape)
             if labels[image, label] >= 0 and (shares[image, label] > 0.5) != labels[image, label]]  # fmt: skip
    wrong.sort(key=lambda place: -abs(labels[place] - shares[place]))
    expected = [(dataset.name(place[0]), NAMES[place[1]], labels[place], round(shares[place], 6)) for place in wrong]
    figure = figures["Contradicted labels"]
    assert [(*row[:2], *row[3:]) for row in figure.rows] == expected and len(expected) > 5
    assert [row[2] for row in figure.rows] == [round(abs(row[3] - row[4]), 4) for row in figure.rows]
    assert figure.note.endswith("the label is. Also in contradicted_labels.csv.")
    (file,) = tmp_path.rglob("contradicted_labels.csv")
    with open(file, newline="") as stream:
        assert list(csv.reader(stream)) == [
            ["image", "class", "label", "probability"],
            *([str(cell) for cell in row] for row in expected),
        ]


def test_images_with_the_largest_mean_loss_come_first_with_what_was_found(evaluated):
    dataset, labels, shares, figures = evaluated
    losses, captions = [], []
    for image in range(11):
        known = labels[image] >= 0
        of_true = np.where(labels[image] == 1, shares[image], 1 - shares[image])
        losses.append(-np.log(of_true[known]).mean() if known.any() else -1)
        words = {"right": [], "missed": [], "wrong": []}
        for label, name in enumerate(NAMES):
            is_chosen = shares[image, label] > 0.5
            kind = {(1, True): "right", (1, False): "missed", (0, True): "wrong"}.get((labels[image, label], is_chosen))
            if kind:
                words[kind].append(f"{name} ({shares[image, label]:.0%})")
        lines = [f"{kind}: {', '.join(listed)}" for kind, listed in words.items() if listed]
        captions.append("\n".join([*(lines or ["no label"]), dataset.describe(image)]))
    order = np.argsort(-np.round(losses, 5), kind="stable")
    gallery = figures["Hardest images"].images
    assert [caption for _, caption in gallery] == [captions[image] for image in order]
    for (pixels, _), image in zip(gallery, order):
        expected = dataset.sample(int(image), np.random.default_rng(0))[0].transpose(1, 2, 0)
        np.testing.assert_array_equal(pixels, expected)


def test_images_that_cannot_be_read_are_left_out_and_labels_that_agree_not_listed(tmp_path):
    task, splits = make_task(folder=tmp_path)
    splits["val"].dataset.lost = 3
    labels = splits["val"].dataset.label_matrix
    step = EvaluationStep(task.build_metrics(), keeps_records=True)
    batch = {"images": paddle.zeros([11, 3, 16, 16]), "labels": paddle.to_tensor(labels)}
    records = task.eval_step(lambda images: paddle.to_tensor(labels.astype(np.float32) - 0.5), batch, step)()
    figures = get_aspect(task, Reportable).figures(splits["val"], list(enumerate(records)), None)
    titles = ["Classes", "Hardest images", "Precision and recall", "Labels together"]  # without contradicted labels
    assert [figure.title for figure in figures] == titles
    shown = {caption.split("\n")[-1] for _, caption in figures[1].images}
    assert shown == {f"image {index} of 2" for index in range(11) if index != 3}


def test_pairs_count_images_with_both_labels(evaluated):
    _, labels, _, figures = evaluated
    expected = [
        [int(((labels[:, one] == 1) & (labels[:, other] == 1)).sum()) for other in range(3)] for one in range(3)
    ]
    figure = figures["Labels together"]
    assert figure.values.tolist() == expected and list(figure.names) == NAMES
    assert figure.note.endswith("images that have the label.")


def test_of_many_classes_the_most_frequent_are_shown():
    random, names = np.random.default_rng(0), [f"n{label}" for label in range(43)]
    probabilities = random.random((60, 43))
    labels = (random.random((60, 43)) < random.permutation(np.linspace(0, 0.8, 43))).astype(np.int8)
    levels = random.uniform(0.3, 0.9, 43)
    evaluated = EvaluatedLabels(range(60), labels, probabilities, levels, names)
    order = np.argsort(-labels.sum(axis=0), kind="stable")
    (chart,), (matrix,) = evaluated.curves(), evaluated.pairs()
    assert list(chart.lines) == [names[label] for label in order[:8]]
    assert (chart.x_label, chart.y_label, chart.note) == ("recall", "precision", "The 8 most frequent classes.")
    kept = sorted(order[:40])
    assert list(matrix.names) == [names[label] for label in kept]
    np.testing.assert_array_equal(matrix.values, labels[:, kept].T.astype(int) @ labels[:, kept])
    assert matrix.note.endswith(" have the label. The 40 most frequent classes.")
    assert [row[5] for row in evaluated.classes().rows] == [round(level, 4) for level in levels]
    chosen = probabilities[7] > levels
    words = {
        "right": (labels[7] == 1) & chosen,
        "missed": (labels[7] == 1) & ~chosen,
        "wrong": (labels[7] == 0) & chosen,
    }
    expected = []
    for word, which in words.items():
        listed = [f"{names[label]} ({probabilities[7, label]:.0%})" for label in np.flatnonzero(which)]
        assert len(listed) > 4
        expected.append(f"{word}: {', '.join(listed[:4])}, …")
    assert evaluated.caption(7, "a.png").split("\n") == [*expected, "a.png"]
    few = EvaluatedLabels(range(60), labels[:, kept[:8]], probabilities[:, :8], levels[:8], names[:8])
    assert (few.curves()[0].note, few.pairs()[0].note[-6:]) == ("", "label.")
    most = EvaluatedLabels(range(60), labels[:, :40], probabilities[:, :40], levels[:40], names[:40])
    assert most.pairs()[0].note.endswith("have the label.") and len(most.pairs()[0].names) == 40
    four = EvaluatedLabels([0], np.ones((1, 4), np.int8), np.full((1, 4), 0.9), levels[:4] * 0 + 0.5, names[:4])
    assert four.caption(0, "a.png") == "right: n0 (90%), n1 (90%), n2 (90%), n3 (90%)\na.png"
    none = EvaluatedLabels(range(60), labels * 0, probabilities, levels, names)
    assert none.curves() == []


def test_a_curve_of_many_images_has_two_hundred_points_with_both_ends():
    random = np.random.default_rng(1)
    labels, scores = random.integers(0, 2, (500, 1), np.int8), random.random((500, 1))
    ((recall, precision),) = EvaluatedLabels(range(500), labels, scores, np.ones(1), ["a"]).curves()[0].lines.values()
    points = list_precision_and_recall(labels[:, 0].tolist(), scores[:, 0].tolist())
    places = [499 * number // 199 for number in range(200)]
    np.testing.assert_allclose(np.transpose([recall, precision]), [points[place] for place in places])


def test_only_the_twelve_hardest_images_are_shown_and_one_hundred_labels(tmp_path):
    task, splits = make_task(folder=tmp_path)
    samples, random = splits["train"], np.random.default_rng(0)
    labels = random.integers(0, 2, (120, 3), np.int8)
    logits = paddle.to_tensor(random.normal(0, 2, (120, 3)).astype(np.float32))
    step = EvaluationStep(task.build_metrics(), keeps_records=True)
    batch = {"images": paddle.zeros([120, 3, 16, 16]), "labels": paddle.to_tensor(labels)}
    records = task.eval_step(lambda images: logits, batch, step)()
    places = [(number % 23, record) for number, record in enumerate(records)]
    figures = {figure.title: figure for figure in get_aspect(task, Reportable).figures(samples, places, None)}
    wrong = ((logits.numpy() > 0) != labels).sum()
    table, gallery = figures["Contradicted labels"], figures["Hardest images"]
    assert len(gallery.images) == 12 and len(table.rows) == 100 < wrong
    assert table.note.endswith(f" the label is. The first 100 of {wrong}; all: contradicted_labels.csv.")
    losses = np.logaddexp(0, np.where(labels == 1, -1, 1) * logits.numpy()).mean(axis=1)
    hardest = [samples.describe(places[row][0]) for row in np.argsort(-losses)[:12]]
    assert [caption.split("\n")[-1] for _, caption in gallery.images] == hardest


@pytest.mark.parametrize("wrong", [100, 101])
def test_a_table_that_has_all_contradicted_labels_does_not_say_that_it_has_the_first(wrong, tmp_path):
    task, splits = make_task(folder=tmp_path)
    labels = np.arange(360).reshape(120, 3) % 2
    answers = np.where(np.arange(360).reshape(120, 3) < wrong, 1 - labels, labels)
    step = EvaluationStep(task.build_metrics(), keeps_records=True)
    batch = {"images": paddle.zeros([120, 3, 16, 16]), "labels": paddle.to_tensor(labels.astype(np.int8))}
    records = task.eval_step(lambda images: paddle.to_tensor(4.0 * answers - 2, "float32"), batch, step)()
    places = [(number % 23, record) for number, record in enumerate(records)]
    figures = {figure.title: figure for figure in get_aspect(task, Reportable).figures(splits["train"], places, None)}
    said = "Also in" if wrong == 100 else "The first 100 of 101; all:"
    table = figures["Contradicted labels"]
    assert table.note.endswith(f" {said} contradicted_labels.csv.") and len(table.rows) == 100


@pytest.mark.parametrize("mode", ["const", "rand"])
def test_a_drawn_training_batch_is_erased(mode, tmp_path):
    words = {"PROB": "0.7", "MODE": mode, "COUNT": "2"}
    task, splits = make_task(*(w for k, v in words.items() for w in (f"TRAIN.RANDOM_ERASE_{k}", v)), folder=tmp_path)
    samples = splits["train"]
    batch = task.collate([samples.sample(row, np.random.default_rng(row)) for row in range(6)])
    mean, deviation = (np.array(values) for values in (task.config.DATA.IMAGENET_MEAN, task.config.DATA.IMAGENET_STD))
    expected = batch["images"].transpose(0, 2, 3, 1).astype(float)
    for number, (row, boxes) in enumerate(zip(batch["erase_rows"], batch["erase_boxes"])):
        for place, (top, left, bottom, right) in enumerate(boxes):
            color = batch["erase_colors"][number, place] if mode == "rand" else np.zeros(3)
            expected[row, top:bottom, left:right] = np.clip(255 * (mean + deviation * color), 0, 255)
    drawn = get_aspect(task, Drawable).visualize_batch(samples, batch, 1)
    assert 0 < len(batch["erase_rows"]) < 6
    for (pixels, caption), image, labels in zip(drawn, expected, batch["labels"]):
        assert np.abs(pixels - image).max() < 0.51
        listed = ", ".join(name for name, label in zip(NAMES, labels) if label == 1) or "no label"
        unknown = (labels < 0).sum()
        assert caption == listed + (f"; {unknown} not known" if unknown else "")


def test_labels_without_names_are_numbers_in_captions(tmp_path):
    task, _ = make_task(folder=tmp_path)
    images, shares = paddle.zeros([1, 3, 16, 16]), np.array([[1.0, -1.0, 0.3]])
    ((_, caption),) = get_aspect(task, Drawable).caption_images(images, shares, None)
    assert caption == "0, 2 30%; 1 not known"


def test_of_several_views_the_first_is_shown(tmp_path):
    task, splits = make_task("DATA.TEST_VIEWS", "[mirrored,five_crops]", folder=tmp_path)
    samples, logits = splits["val"], paddle.to_tensor(np.float32([[1, -2, 3]] * 2))
    batch = {"images": paddle.zeros([2, 3, 16, 16]), "labels": paddle.to_tensor(samples.label_matrix[:2])}
    evaluated = make_task(folder=tmp_path)[0]
    step = EvaluationStep(evaluated.build_metrics(), keeps_records=True)
    records = evaluated.eval_step(lambda images: logits, batch, step)()
    figures = {
        figure.title: figure for figure in get_aspect(task, Reportable).figures(samples, [(4, records[0])], None)
    }
    ((pixels, _),) = figures["Hardest images"].images
    views = samples.sample(4, np.random.default_rng(0))[0]
    assert views.shape == (10, 3, 16, 16) and (views[0] != views[1]).any()
    np.testing.assert_array_equal(pixels, views[0].transpose(1, 2, 0))
