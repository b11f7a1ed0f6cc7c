"""Figures of several labels, against loops over images and classes."""

import csv

import numpy as np
import paddle
import pytest
from support.samples.tagged_images import NAMES, make_task

from paddlevit_dist.tasks import get_aspect
from paddlevit_dist.tasks.protocols import Reportable
from paddlevit_dist.tasks.step_types import EvaluationStep


@pytest.fixture
def evaluated(tmp_path):
    """Labels and probabilities of 11 images, with equal ones among them, and the figures by their titles."""
    task, splits = make_task(folder=tmp_path)
    labels = splits["val"].dataset.label_matrix
    logits = np.random.default_rng(4).normal(0.3, 1.5, labels.shape).round().astype(np.float32)
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
        expected = [100 * share for share in (ap, hits / found, hits / right, 2 * hits / (found + right))]
        assert rows[label][0] == name and rows[label][1:5] == pytest.approx(expected, abs=0.006)
        assert rows[label][5:] == (right, found, known.sum(), 0.5)


def test_contradicted_labels_are_listed_from_the_farthest_and_written(evaluated, tmp_path):
    dataset, labels, shares, figures = evaluated
    wrong = [(image, label) for image, label in np.ndindex(labels.shape)
             if labels[image, label] >= 0 and (shares[image, label] > 0.5) != labels[image, label]]  # fmt: skip
    wrong.sort(key=lambda place: -abs(labels[place] - shares[place]))
    expected = [(dataset.name(place[0]), NAMES[place[1]], labels[place], round(shares[place], 6)) for place in wrong]
    figure = figures["Contradicted labels"]
    assert figure.rows == expected and len(expected) > 5
    assert figure.note.endswith("wrong. Also in contradicted_labels.csv.")
    (file,) = tmp_path.rglob("contradicted_labels.csv")
    with open(file, newline="") as stream:
        assert list(csv.reader(stream)) == [[*figure.columns], *([str(cell) for cell in row] for row in expected)]


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


def test_pairs_count_images_with_both_labels(evaluated):
    _, labels, _, figures = evaluated
    expected = [
        [int(((labels[:, one] == 1) & (labels[:, other] == 1)).sum()) for other in range(3)] for one in range(3)
    ]
    figure = figures["Labels together"]
    assert figure.values.tolist() == expected and list(figure.names) == NAMES
    assert figure.note.endswith("images that have the label.")
