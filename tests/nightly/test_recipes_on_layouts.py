"""Each recipe trains and evaluates by its own command on a tiny set in the layout that it reads, as it is published."""

import csv
import math
import sys

import numpy as np
import pytest
from support.processes import run_command
from support.trainings.published_names import KNOWN, favor, require_predictions
from support.trainings.published_recipes import CANNOT, SMALL, Bench, find_layout, list_recipes, load
from support.trainings.recipe_steps import read_losses
from support.trainings.runs import read_events, well

_OF_RUN = ("time", "epoch", "best", "weights", "split")
_FIRST = {find_layout(recipe): recipe for recipe in reversed(list_recipes())}
# Detectors have an output for each category, one more, or one before them.
_NAMING = [(layout, SMALL.get(layout, _FIRST.get(layout))) for layout in KNOWN]
_NAMING += [("coco", "detr_shapes"), ("coco", "mask_rcnn_shapes")]


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("layouts"))


def scores(values):
    """What an evaluation found, without when, and of which weights."""
    return {name: value for name, value in values.items() if name not in _OF_RUN}


@pytest.mark.parametrize("recipe", [recipe for recipe in list_recipes() if recipe not in CANNOT])
def test_two_updates_and_an_evaluation(recipe, bench):
    layout = find_layout(recipe)
    with bench.trained(recipe, layout) as output:
        found = read_losses(output)
        assert len(found) >= (load(recipe).TASK != "knn_probe") * 2 and all(map(math.isfinite, found))
        last = [line for line in read_events(output) if line["kind"] == "evaluation"][-1]
        if load(recipe).TASK != "knn_probe":  # nothing is trained, and the recipe has evaluated
            assert scores(bench.evaluate(recipe, layout, output)) == scores(last)


@pytest.mark.parametrize("split", ["train", "val"])
def test_landmarks_keep_their_names_and_places(split, bench):
    """The errors of predicted places are their distances from the published places of the same name."""
    recipe = "landmark_unet3d"
    words = [f"-split={split}", "SAVE_PREDICTIONS", "true"]
    with bench.trained(recipe, "landmarks") as output:
        alone, shared = (bench.evaluate(recipe, "landmarks", output, *words, f"-ngpus={number}") for number in (1, 2))
    assert scores(alone) == scores(shared)
    with open(
        bench.find_evaluation(recipe, "landmarks", output, *words, "-ngpus=2") / "predictions" / "landmarks.csv"
    ) as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        published = bench.truth["landmarks"][row["case"]][row["landmark"]]
        if published is None:
            assert row["radial_error_mm"] == ""
        else:
            found = np.array([float(row[f"{axis}_mm"]) for axis in "xyz"]) * (
                [1, 1, 1] if row["world"] == "RAS" else [-1, -1, 1]
            )
            assert float(row["radial_error_mm"]) == pytest.approx(np.linalg.norm(found - published), abs=2e-4)
    assert len(rows) == 4 * {"train": 3, "val": 2}[split]


@pytest.mark.parametrize("layout, recipe", _NAMING)
def test_a_class_keeps_its_published_name(layout, recipe, bench, tmp_path):
    """A network that finds one class everywhere has the score that the published labels give it, on one process and on
    two, and predicts the published name and number."""
    known = KNOWN[layout]
    with bench.trained(recipe, layout) as output:
        weights = favor(output, tmp_path / "favored", known)
        alone = bench.evaluate(recipe, layout, weights)
        assert scores(bench.evaluate(recipe, layout, weights, "-ngpus=2")) == scores(alone)
        if known.score is not None:
            name, compute = known.score
            assert alone[name] == pytest.approx(compute(bench.truth[layout]), rel=1e-6)
    words = ["predict", str(weights), str(bench.make_data(layout)[0]), f"--output={tmp_path / 'found'}"]
    well(run_command([sys.executable, "-m", "paddlevit_dist", *words]))
    require_predictions(tmp_path / "found", known)
