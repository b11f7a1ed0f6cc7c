"""The landmark task trains and evaluates alike with one process or several, and writes what it finds."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from support.files.landmark_folders import TINY, small_folder
from support.files.volume_files import world
from support.processes import ROOT, run_main, run_together, succeeded
from support.trainings.runs import last_line, read_events
from support.trainings.small_runs import make_trainer

from paddlevit_dist import Trainer, UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine.compatibility import CheckpointDiff
from paddlevit_dist.core.registry.lookup import resolve

SGD = ["TRAIN.OPTIMIZER.NAME", "SGD", "TRAIN.BASE_LR", "0.05", "TRAIN.GRAD_CLIP", "None", "TRAIN.WARMUP_STEPS", "0"]


def build(output: str, *arguments: str, train_size: int = 8, val_size: int = 3) -> Trainer:
    words = [f"-cfg={ROOT}/configs/landmark_unet3d.yaml", *TINY, "REPORT_FREQ", "1", *arguments]
    return make_trainer(output, words, {"train": train_size, "val": val_size})


def train(output: str, *arguments: str) -> dict[str, Any]:
    trainer = build(output, "-epochs=2", *SGD, *arguments, val_size=1)
    values = trainer.train()
    lines = read_events(output)
    return {
        "weights": {name: tensor.numpy() for name, tensor in trainer.model.state_dict().items()},
        "losses": [line["heatmap"] for line in lines if line["kind"] == "training"],
        "evaluation": values,
    }


def evaluate(output: str) -> dict[str, float]:
    trainer = build(output, "-epochs=1", "-batch_size=2", "VOLUMES.CROP_SIZE", "[40,48,56]", val_size=5)
    return trainer.evaluator("evaluation")[0]


HERE = "integration.volumes.test_landmark_training"
LOSSES = {loss: ["VOLUMES.LOSS", loss, "TRAIN.BASE_LR", rate] for loss, rate in (("mse", "0.05"), ("focal", "0.002"))}


@pytest.fixture(scope="module")
def of_two(tmp_path_factory) -> dict[str, list]:
    """What two processes train and score, one after the other: results of both ranks."""
    folder = tmp_path_factory.mktemp("two")
    calls = {loss: (f"{HERE}:train", (str(folder / loss), "-batch_size=2", *chosen)) for loss, chosen in LOSSES.items()}
    return run_together({**calls, "scores": (f"{HERE}:evaluate", (str(folder / "scores"),))})


@pytest.mark.parametrize("loss", LOSSES)
def test_two_processes_train_as_one_on_the_whole_batch(tmp_path, of_two, loss):
    """Phantoms miss landmarks at random, so the ranks hold different numbers of them."""
    one = train(str(tmp_path / "1"), "-batch_size=4", *LOSSES[loss])
    first, second = of_two[loss]
    assert len(one["losses"]) == 4 and one["losses"][-1] < one["losses"][0]
    np.testing.assert_allclose(first["losses"], one["losses"], rtol=1e-4)
    for name, expected in one["weights"].items():
        assert np.array_equal(first["weights"][name], second["weights"][name]), name
        np.testing.assert_allclose(first["weights"][name], expected, rtol=1e-3, atol=1e-4, err_msg=name)


def test_evaluation_is_equal_for_one_process_and_two(tmp_path, of_two):
    """And for three at night."""
    one = evaluate(str(tmp_path / "1"))
    assert all(values == of_two["scores"][0] for values in of_two["scores"])
    assert 30 <= one["landmarks"] <= 40
    # This process computes products without the workers' tuning, which rounds differently.
    assert of_two["scores"][0] == pytest.approx(one, rel=1e-5)


def test_a_folder_trains_and_its_predictions_are_written(tmp_path):
    data = small_folder(tmp_path / "data")
    recipe = [f"-cfg={ROOT}/configs/landmark_unet3d.yaml", "-dataset=landmarks", f"-data_path={data}"]
    recipe += ["-batch_size=1", "VOLUMES.MIRROR_PAIRS", "none", *TINY]
    succeeded(run_main(*recipe, "-ngpus=1", "-epochs=1", "TRAIN.WARMUP_STEPS", "0", f"-output={tmp_path / 'run'}"))
    weights = tmp_path / "run" / "checkpoints" / "last"
    evaluation = ["-eval", f"-pretrained={weights}", f"-output={tmp_path / 'eval'}", "SAVE_PREDICTIONS", "true"]
    ended = succeeded(run_main(*recipe, "-ngpus=2", *evaluation, f"-per_sample={tmp_path / 'samples.csv'}"))
    mean = float(last_line(ended).split()[1])
    folder = tmp_path / "eval" / "predictions"
    with open(folder / "landmarks.csv", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["case"], row["landmark"]) for row in rows] == [
        (case, name) for case in ("case0", "case1") for name in ("chin", "nose")
    ]
    assert rows[0]["radial_error_mm"] == "" and all(0 <= float(row["confidence"]) <= 1 for row in rows)
    place = np.array([float(rows[1][axis]) for axis in ("x_mm", "y_mm", "z_mm")])
    error = np.linalg.norm(place - world((3.0, 4.0, 5.0)))
    assert error == pytest.approx(float(rows[1]["radial_error_mm"]), abs=1e-3)
    errors = [float(row["radial_error_mm"]) for row in rows if row["radial_error_mm"]]
    assert mean == pytest.approx(np.mean(errors), abs=1e-3)
    with open(tmp_path / "samples.csv", encoding="utf-8", newline="") as lines:
        samples = list(csv.DictReader(lines))
    assert [sample["world"] for sample in samples] == [rows[0]["world"]] * 2
    for row in rows:
        sample = samples[int(row["case"].removeprefix("case"))]
        assert row["case"] in sample["name"]
        for ours, theirs in (("error_mm", "radial_error_mm"), ("x_mm", "x_mm"), ("y_mm", "y_mm"), ("z_mm", "z_mm")):
            assert float(sample[f"{row['landmark']} {ours}"] or 0) == pytest.approx(float(row[theirs] or 0), abs=1e-3)
    summary = (folder / "per_landmark.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in summary] == ["landmark", "chin", "nose", "all"]
    assert float(summary[-1].split(",")[1]) == pytest.approx(mean, abs=1e-3)
    for case in ("case0", "case1"):
        with Image.open(folder / f"{case}.png") as image:
            assert image.width > 2 * image.height > 400
        assert all((folder / f"{case}{suffix}").is_file() for suffix in (".fcsv", ".mrk.json"))
    check_what_weights_say(data, weights, [*recipe, "-eval", f"-pretrained={weights}"])


def check_what_weights_say(data: Path, weights: Path, arguments: list[str]) -> None:
    """Evaluations with another window stop."""

    def compare(*more: str) -> list[str]:
        values = settings.load([*arguments, *more]).values
        task = resolve("task", values.TASK)(values)
        task.build_dataset("val", data / "cache")
        return CheckpointDiff("evaluate", weights, values, task).input()

    assert yaml.safe_load((weights / "about.yaml").read_text())["input"] == {
        "orientation": "RAS",
        "spacing_mm": [2.0, 1.5, 1.0],
        "intensity_window": [-1000.0, 1000.0],
        "normalize": ["percentiles"],
        "landmarks": ["chin", "nose"],
    }
    assert compare() == []
    with pytest.raises(UserError, match=r"intensity_window \[-1000.0, 1000.0\] there, percentiles here"):
        compare("VOLUMES.INTENSITY_WINDOW", "None")
    assert "different preprocessing" in compare("VOLUMES.INTENSITY_WINDOW", "None", "-allow_changes")[0]


def test_options_that_only_classifiers_have_are_refused(tmp_path):
    for option, message in (("TO_STATIC", "cannot be compiled"), ("TRAIN.RECOMPUTE", "cannot recompute")):
        with pytest.raises(UserError, match=rf"{option}: task landmarks {message}; remove {option}"):
            build(str(tmp_path), "-batch_size=2", option, "True").train()
