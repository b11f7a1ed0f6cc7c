"""Each recipe trains and evaluates by its own command on a tiny set in the layout that it reads, as it is published.

Weights of whole networks that a recipe would fetch are replaced by those of a run from scratch.
"""

import contextlib
import csv
import json
import math
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from PIL import Image
from support.processes import ROOT, run_command, run_main
from support.samples.published_extras import write_extras
from support.trainings.published_names import KNOWN, Known
from support.trainings.published_recipes import CANNOT, LAYOUTS, SMALL, cut, find_layout, list_recipes, load
from support.trainings.recipe_steps import read_losses
from support.trainings.runs import read_events, well

_TOOL = [sys.executable, "-m", "paddlevit_dist"]
_OF_RUN = ("time", "epoch", "best", "weights", "split")
_FIRST = {find_layout(recipe): recipe for recipe in reversed(list_recipes())}
# Detectors have an output for each category, one more, or one before them.
_NAMING = [(layout, SMALL.get(layout, _FIRST.get(layout))) for layout in KNOWN]
_NAMING += [("coco", "detr_shapes"), ("coco", "mask_rcnn_shapes")]


def read_header_command(recipe: str) -> list[str]:
    """The words after ``main_multi_gpu.py`` in the header of a recipe."""
    text = (ROOT / "configs" / f"{recipe}.yaml").read_text(encoding="utf-8")
    (command,) = re.findall(r"^# command: ((?:.*\\\n#)*.*)$", text, re.MULTILINE)
    program, entry, *words = shlex.split(command.replace("\\\n#", " "))
    assert (program, entry) == ("python", "main_multi_gpu.py")
    return words


class Bench:
    """Layouts and runs in one folder, each made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.truth: dict[str, Any] = {}  # what writing each layout returned

    def make_data(self, layout: str) -> tuple[Path, Path]:
        """The set as published, and what a recipe reads: the same, or the store that ``prepare`` made of it."""
        raw, store = self.folder / "raw" / layout, self.folder / "stores" / layout
        if not raw.exists():
            raw.mkdir(parents=True)
            self.truth[layout] = LAYOUTS[layout].write(raw)
            write_extras(layout, raw)
        if not LAYOUTS[layout].prepare:
            return raw, raw
        if not store.exists():
            store.parent.mkdir(exist_ok=True)
            words = [word.format(raw=raw, store=store) for word in LAYOUTS[layout].prepare.split()]
            well(run_command([*_TOOL, "prepare", *words, "--workers=1"]))
        return raw, store

    def train(self, recipe: str, layout: str, *words: str) -> Path:
        """Train by the command of the recipe's header; returns the output folder."""
        output = self.folder / "runs" / f"{recipe} {layout}{' start' if words else ''}"
        if not output.exists():
            command = [*self.make_words(recipe, layout, with_start=not words), *words, f"-output={output}"]
            well(run_main(*command))
        return output

    @contextlib.contextmanager
    def trained(self, recipe: str, layout: str) -> Iterator[Path]:
        """Train a recipe, and remove the output folder in the end: networks that cannot be cut have gigabytes."""
        output = self.train(recipe, layout)
        yield output
        shutil.rmtree(output)

    def evaluate(self, recipe: str, layout: str, weights: Path, *words: str) -> dict[str, Any]:
        """Evaluate weights with the recipe's settings; returns the values of the last line."""
        output = self.find_evaluation(recipe, layout, weights, *words)
        command = [*self.make_words(recipe, layout, with_start=False), f"-pretrained={weights}", *words]
        well(run_command([*_TOOL, "evaluate", *command, f"-output={output}"]))
        return read_events(output)[-1]

    def find_evaluation(self, recipe: str, layout: str, weights: Path, *words: str) -> Path:
        """The output folder of an evaluation."""
        return self.folder / "evaluations" / "_".join((recipe, layout, weights.name, *words))

    def make_words(self, recipe: str, layout: str, with_start: bool = True) -> list[str]:
        """The words of the header on a layout, cut; with the weights that they or the recipe name, of runs of ours."""
        words = read_header_command(recipe)
        kept = [word for word in words if word == "-amp" or word.startswith("-dataset=")]
        named = [word.partition("=")[2] for word in words if word.startswith("-pretrained=")]
        values = load(recipe)
        if with_start and (named or values.MODEL.PRETRAINED_REQUIRED):
            kept += [f"-pretrained={self._make_start(recipe, layout, (*named, '')[0])}"]
        if with_start and values.TRAIN.get("DISTILLATION_TYPE", "none") != "none":
            kept += ["TRAIN.TEACHER_MODEL", str(self._make_teacher(layout)), "TRAIN.TEACHER_WEIGHTS", "None"]
        kept += [f"-cfg={ROOT / 'configs' / recipe}.yaml", f"-data_path={self.make_data(layout)[1]}"]
        opened = (*(word.partition("=")[2] for word in kept if word.startswith("-dataset=")), values.DATA.DATASET)[0]
        if opened not in LAYOUTS[layout].dataset:
            kept = [word for word in kept if not word.startswith("-dataset=")]
            kept.append(f"-dataset={LAYOUTS[layout].dataset[0]}")
        return [*kept, *cut(recipe), *LAYOUTS[layout].words]

    def _make_start(self, recipe: str, layout: str, named: str) -> Path:
        """Weights to begin with: of the recipe that the header names, else of the network from scratch."""
        other = Path(named).stem
        if other in list_recipes():
            return self.train(other, layout)
        if load(recipe).TASK.endswith("_probe"):
            recipe = "vit_small_patch14_dinov2_finetune"
        return self.train(recipe, layout, "MODEL.PRETRAINED", "None", "MODEL.PRETRAINED_REQUIRED", "false")

    def _make_teacher(self, layout: str) -> Path:
        """An exported teacher, of the recipe that distilling recipes name."""
        exported = self.folder / "teacher"
        if not exported.with_suffix(".json").exists():
            well(run_command([*_TOOL, "export", str(self.train("convnext_base", layout)), str(exported)]))
        return exported


def favor(run: Path, folder: Path, known: Known) -> Path:
    """Copy the evaluated weights of a run, with biases that let them find one class everywhere; returns the copy."""
    checkpoint = run / "checkpoints" / "best"
    folder.mkdir(parents=True)
    averaged = checkpoint / "model_ema.pdparams"
    state = paddle.load(str(averaged if averaged.exists() else checkpoint / "model.pdparams"))
    biases = {name: value for name, value in state.items() if value.shape and value.shape[-1] == value.size}
    # One output more than classes is that of no object, or of the background, which is the first of Mask R-CNN's.
    heads = [name for name, value in biases.items() if value.size == known.outputs and "bbox" not in name]
    shift = 0
    if not heads:
        heads = [name for name, value in biases.items() if value.size == known.outputs + 1 and "bbox" not in name]
        shift = int(any(name.startswith("roi_heads") for name in heads))
    assert heads, sorted(state)
    for name in heads:
        values = np.full(state[name].shape, -1e4, np.float32)
        values[..., known.output + shift] = 1e4  # whatever the weights
        state[name] = paddle.to_tensor(values)
    paddle.save(state, str(folder / "model.pdparams"))
    shutil.copy(checkpoint / "about.yaml", folder / "about.yaml")
    return folder / "model.pdparams"


def require_predictions(folder: Path, known: Known) -> None:
    """Check that ``predict`` found the class everywhere, under its name and its number of the published set."""
    with open(folder / "predictions.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 2
    if "class" in rows[0]:  # a scene without instances has a row without one
        assert {row["class"] for row in rows if row["class"] or "instance" not in row} == {known.name}
    elif known.name in rows[0]:  # several labels
        assert {(row["labels"], float(row[known.name])) for row in rows} == {(known.name, 1.0)}
    elif "category" in rows[0]:
        assert {row["category"] for row in rows} == {known.name}
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        best = [result for result in results if result["score"] > 0.5]
        assert {(result["category_id"], result["category_name"]) for result in best} == {(known.number, known.name)}
    elif f"points_{known.name}" in rows[0]:
        assert [row[f"points_{known.name}"] for row in rows] == [row["points"] for row in rows]
        number = known.output if known.number is None else known.number
        for row in rows:
            if row.get("as_source"):  # a scan of SemanticKITTI
                labels = np.fromfile(folder / row["as_source"], "<u4")
            else:
                labels = np.loadtxt(folder / row["text"], int)
            found = labels[labels >= 0]  # others have no finite coordinates
            assert set(found.tolist()) == {number} and len(found) == int(row["points"])
    elif f"ml {known.name}" in rows[0]:
        import nibabel

        for row in rows:
            assert float(row[f"ml {known.name}"]) > 0
            assert np.unique(nibabel.load(folder / row["labels"]).dataobj).tolist() == [known.number]
    else:
        names = (folder / "classes.txt").read_text(encoding="utf-8").splitlines()
        assert names[known.output] == known.name and len(names) == known.outputs
        for row in rows:
            assert float(row[f"share {known.name}"]) == 1.0
            with Image.open(folder / row["mask"]) as mask:
                assert np.unique(np.asarray(mask)).tolist() == [known.output]


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
    well(run_command([*_TOOL, *words]))
    require_predictions(tmp_path / "found", known)
