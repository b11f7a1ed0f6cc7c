"""Kinds of scores on the page about extending: their formulas give what scikit-learn and loops compute."""

import importlib
import re
import sys

import numpy as np
import pytest
from support.processes import ROOT
from support.registrations import forgotten

from paddlevit_dist.core.intervals import bootstrap
from paddlevit_dist.core.tasks.score_kind import find_score_kind

PAGE = (ROOT / "docs" / "guides" / "extending.md").read_text(encoding="utf-8")
MOST_LINES = 40  # of a program with a score, its metrics and its task; empty lines do not count

# Golden values: scikit-learn 1.9.1, average_precision_score and f1_score (average="macro"), weighted by COUNTS too.
SCORES = np.array([[0, 3, 1, 3, 2, 2, 4, 1, 0, 1, 0, 4], [2, 0, 1, 0, 0, 2, 0, 4, 4, 2, 0, 1]]).T / 4  # many ties
LABELS = np.array([[0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 1]]).T
COUNTS = np.array([0, 3, 3, 1, 3, 1, 1, 1, 0, 3, 0, 1])
PRECISIONS = [[0.5, 0.6], [0.5107142857142857, 0.7015873015873015]]  # of both labels: plain, weighted
TRUE = np.array([int(digit) for digit in "3204440121043001440411400313112200431243"])
FOUND = np.array([int(digit) for digit in "3104440121043031441411103311112230031244"])
F1 = {"plain": 0.7740885877108787, "weighted": 0.8000653594771242}


def read_program(name):
    return re.search(rf"`{name}`:\n\n```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]


@pytest.fixture(scope="module", autouse=True)
def programs(tmp_path_factory):
    """The programs, imported as a run imports them."""
    folder = tmp_path_factory.mktemp("programs")
    names = ("counting", "several_labels", "macro_f1", "areas")
    with pytest.MonkeyPatch.context() as patch, forgotten():
        patch.syspath_prepend(str(folder))
        for name in names:
            (folder / f"{name}.py").write_text(read_program(f"{name}.py"), encoding="utf-8")
            importlib.import_module(name)
        yield
    for name in names:
        del sys.modules[name]


def compute_precisions(labels, scores, weights):
    arrays = {"labels": labels.astype(np.float32), "scores": scores.astype(np.float32)}
    return find_score_kind("several labels", ["a", "b"]).compute(arrays, weights)


def test_precisions_of_labels_are_those_of_scikit_learn():
    values = compute_precisions(LABELS, SCORES, np.stack([np.ones(12), COUNTS]))
    for name, expected in zip("ab", PRECISIONS):
        np.testing.assert_allclose(values[f"AP {name}"], expected, rtol=1e-12)
    np.testing.assert_allclose(values["mAP"], np.mean(PRECISIONS, axis=0), rtol=1e-12)


def precision_of_loops(labels, scores):
    """Average the precision at each hit: of all images with at least its score."""
    hits = [score for label, score in zip(labels, scores) if label]
    precisions = [labels[scores >= score].mean() for score in hits]
    return sum(precisions) / len(precisions) if hits else np.nan


@pytest.mark.parametrize("seed", range(4))
def test_precisions_of_draws_are_those_of_a_loop_over_repeated_images(seed):
    generator = np.random.default_rng(seed)
    labels, scores = generator.integers(0, 2, (30, 2)), generator.integers(0, 2 + 9 * seed, (30, 2)) / 8
    labels[:, 1] *= generator.random(30) < 0.1  # a draw may have none
    weights = np.stack([np.bincount(generator.integers(0, 30, 30), minlength=30) for _ in range(50)])
    values = compute_precisions(labels, scores, weights.astype(float))
    for draw, counts in enumerate(weights):
        rows = np.repeat(np.arange(30), counts)
        expected = [precision_of_loops(labels[rows, column], scores[rows, column]) for column in (0, 1)]
        found = [values[f"AP {name}"][draw] for name in "ab"]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert values["mAP"][draw] == pytest.approx(np.nanmean(expected), rel=1e-12)


def test_macro_f1_is_that_of_scikit_learn():
    arrays = {"labels": TRUE, "predictions": FOUND, "places": np.where(FOUND == TRUE, 0, 1), "top": np.array([1])}
    arrays["losses"] = np.ones(40)
    scores = find_score_kind("classes with F1", list("01234"))
    values = scores.compute(arrays, np.stack([np.ones(40), np.arange(40) % 3]))
    np.testing.assert_allclose(values["macro F1"], [100 * value for value in F1.values()], rtol=1e-12)
    assert values["top-1"][0] == pytest.approx(100 * np.mean(TRUE == FOUND))


def test_errors_of_areas_are_those_of_a_loop_over_images():
    names, generator = ["none", "pond", "path"], np.random.default_rng(4)
    labels, found = generator.choice([0, 1, 2], (2, 9, 40), p=[0.7, 0.2, 0.1])
    labels[:3][labels[:3] == 2] = 0  # no path
    counts = [
        [[((true == c) & (one == c)).sum(), (true == c).sum(), (one == c).sum()] for c in range(3)]
        for true, one in zip(labels, found)
    ]
    arrays = {"statistics": np.array(counts).transpose(0, 2, 1), "losses": np.full(9, np.nan)}
    scores = find_score_kind("label maps with areas", names)
    weights = np.stack([np.ones(9), np.arange(9) % 2, np.arange(9) < 3]).astype(float)
    values = scores.compute(arrays, weights)
    for number, name in enumerate(names):
        errors = [100 * (f - t) / t if t else None for t, f in (image[number][1:] for image in counts)]
        for draw, chosen in enumerate(weights):
            own = [error for error, weight in zip(errors, chosen) if weight and error is not None]
            assert values[f"area error {name}"][draw] == pytest.approx(np.mean(own) if own else np.nan, nan_ok=True)
    intervals = bootstrap(scores.recompute([arrays], names), 9)
    assert -100 < intervals["area error pond"].low < 0 < intervals["area error pond"].high
    assert np.isnan(values["area error path"][2]) and "mIoU" in values


def test_a_score_from_outside_is_a_short_program():
    lines = [line for line in read_program("several_labels.py").splitlines() if line]
    assert len(lines) <= MOST_LINES and "all_gather" not in "".join(lines)
