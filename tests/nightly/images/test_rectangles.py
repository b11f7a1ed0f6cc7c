"""Images that are not square, from training on two processes to a prediction and an exported model."""

import csv
import sys

import numpy as np
import yaml
from integration.images.test_rectangles import train
from support.processes import run_command
from support.trainings.runs import well

from paddlevit_dist.extensions.export.command import run as export


def evaluate(folder, name, source, processes=1):
    words = ["evaluate", source, f"-data_path={folder}/data", f"-output={folder}/{name}", f"-ngpus={processes}"]
    config = ["-cfg=" + str(folder / "run" / "config.yaml"), "-per_sample=" + str(folder / f"{name}.csv")]
    well(run_command([sys.executable, "-m", "paddlevit_dist", *words, *config], timeout=600))
    with (folder / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_evaluations_predictions_and_exports_of_rectangles_agree(tmp_path):
    folder = train(tmp_path, "-ngpus=2", "REPORT", "True")
    assert yaml.safe_load((folder / "run" / "config.yaml").read_text())["DATA"]["IMAGE_SIZE"] == [16, 24]
    rows = evaluate(folder, "one", f"-pretrained={folder}/run")
    assert evaluate(folder, "two", f"-pretrained={folder}/run", processes=2) == rows
    command = [sys.executable, "-m", "paddlevit_dist", "predict", f"{folder}/run", f"{folder}/data/val"]
    well(run_command([*command, f"-output={folder}/predicted"], timeout=600))
    with (folder / "predicted" / "predictions.csv").open(newline="") as file:
        predicted = list(csv.DictReader(file))
    assert [row["class"] for row in predicted] == [row["prediction"] for row in rows]
    scores = [float(row["confidence"]) for row in rows]
    np.testing.assert_allclose([float(row["score"]) for row in predicted], scores, rtol=1e-5)
    export([str(folder / "run"), str(folder / "exported" / "model")])
    about = yaml.safe_load((folder / "exported" / "model.about.yaml").read_text())
    assert about["input_shape"] == [None, 3, 16, 24] and about["preprocessing"]["resize_to_fit"] == [17, 26]
    exported = evaluate(folder, "exported_scores", f"{folder}/exported/model")
    np.testing.assert_allclose([float(row["confidence"]) for row in exported], scores, rtol=1e-4)
    assert (folder / "run" / "report.html").is_file()
