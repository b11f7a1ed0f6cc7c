"""Scores on the page about own ones: they are what loops over images compute, and other tasks' tables take them."""

import importlib
import re
import sys

import numpy as np
import pytest
from support.processes import ROOT
from support.registrations import forgotten
from support.samples.counted_samples import KINDS, SAMPLES

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.register import register_score_kind
from paddlevit_dist.core.tasks.score_kind import find_score_kind, require_score_kind
from paddlevit_dist.images.detection.metrics import DetectionMetrics

PAGE = (ROOT / "docs" / "guides" / "own_scores.md").read_text(encoding="utf-8")
NAMES = ("count_boxes", "image_f1")


@pytest.fixture(scope="module", autouse=True)
def programs(tmp_path_factory):
    """The programs, imported as a run imports them."""
    folder = tmp_path_factory.mktemp("programs")
    with pytest.MonkeyPatch.context() as patch, forgotten():
        patch.syspath_prepend(str(folder))
        for name in NAMES:
            program = re.search(rf"`{name}.py`:\n\n```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
            (folder / f"{name}.py").write_text(program, encoding="utf-8")
            importlib.import_module(name)
        yield
    for name in NAMES:
        del sys.modules[name]


def test_errors_of_counts_are_those_of_a_loop_over_images():
    metrics = DetectionMetrics(["c", "a", "b"]).score_by("boxes with counts")
    order = [4, 0, 7, 2]  # ids fall: samples are in another order than images
    KINDS["boxes"][1](metrics, order)
    values = metrics.compute(metrics.state)
    errors = []
    for index in order:  # as ``add_boxes`` draws them
        generator = np.random.default_rng(index)
        generator.uniform(0, 50, (4, 2)), generator.uniform(20, 60, (4, 2)), generator.normal(0, 3, (4, 4))
        errors.append(abs(int((generator.random(4).astype(np.float32) >= 0.5).sum()) - 4))
    assert values["count error"] == pytest.approx(np.mean(errors)) and 0 < np.mean(errors)
    table = list(metrics.gathered[1].values())
    weights = np.array([[1.0, 0, 2, 1], [0.0, 1, 0, 0]])
    drawn = metrics.bootstrap_values(table, weights)
    np.testing.assert_allclose(drawn["count error"], weights @ errors / weights.sum(axis=1))
    assert "AP" in values and metrics.summary(values).startswith(f"count error {np.mean(errors):.2f} AP ")


def test_the_f1_of_an_image_is_that_of_a_loop_over_images():
    labels = np.array([[1, 0, -1], [1, 1, 0], [0, 0, -1], [0, 1, 1]], np.int8)
    chosen = np.array([[1, 0, 1], [1, 0, 1], [0, 0, 1], [1, 0, 0]], bool)
    arrays = {"labels": labels, "logits": np.where(chosen, 1.0, -1.0), "chosen": chosen}
    own = []
    for true, found in zip(labels, chosen):
        pairs = [(t, f) for t, f in zip(true, found) if t >= 0]
        right, wrong = sum(t and f for t, f in pairs), sum(bool(t) != f for t, f in pairs)
        own.append(2 * right / (2 * right + wrong) if right or wrong else None)
    assert own == [1.0, 0.5, None, 0.0]
    scores = find_score_kind("labels with image F1", list("abc"))
    values = scores.compute(arrays, np.array([[1.0, 1, 1, 1], [2.0, 1, 0, 0], [0.0, 0, 1, 0]]))
    np.testing.assert_allclose(values["image F1"], [0.5, 2.5 / 3, np.nan])
    assert "mAP" in values


@pytest.mark.parametrize("samples", KINDS)
def test_a_kind_of_ones_own_scores_the_table_of_any_task(samples):
    make, add = KINDS[samples]
    metrics = make()

    class Own(type(metrics.scores)):  # type: ignore[misc]
        few = 7

        def compute(self, arrays, weights):
            return {"samples": weights.sum(axis=1)}

    register_score_kind("own", Own, replace=True)
    assert metrics.score_by("own") is metrics and (metrics.kind, metrics.few) == ("own", 7)
    assert metrics.scores.classes == require_score_kind("own", metrics.class_names).classes
    add(metrics, list(range(SAMPLES)))
    assert metrics.compute(metrics.state)["samples"] == SAMPLES
    with pytest.raises(UserError, match="no kind of scores 'none' is registered"):
        metrics.score_by("none")
