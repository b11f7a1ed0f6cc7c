"""Scores of an evaluated run: its rows, its file of results scored by the command, and its table in a comparison."""

import csv
import json

from support.processes import run_main
from support.trainings.runs import well
from support.trainings.small_keypoints import HEATMAPS
from support.trainings.small_runs import make_trainer
from unit.images.keypoints.evaluation.test_result_files import as_file

from paddlevit_dist.extensions.compare.pairs import TablePair
from paddlevit_dist.extensions.compare.tables import read_table
from paddlevit_dist.images.keypoints import evaluate_command
from paddlevit_dist.images.keypoints.data.drawn_figures import DrawnFigures
from paddlevit_dist.images.keypoints.evaluation.score_kind import TEN


def write_figures(folder):
    """Figures as a data set in COCO's layout, with sigmas by which a network that has learned nothing finds some."""
    (folder / "annotations").mkdir(parents=True)
    for split in ("train", "val"):
        dataset = DrawnFigures(None, split, None, num_train=6, num_val=5)
        file = folder / "annotations" / f"person_keypoints_{split}.json"
        as_file(dataset, file)
        content = json.loads(file.read_text(encoding="utf-8"))
        for category in content["categories"]:
            category["sigmas"] = [2.0] * len(category["keypoints"])
        (folder / split).mkdir()
        for index, image in enumerate(content["images"]):
            image["file_name"] = f"{index}.png"
            dataset.read(index)[0].save(folder / split / image["file_name"])
        file.write_text(json.dumps(content), encoding="utf-8")


def test_the_command_scores_a_runs_file_of_results_as_the_run_did(tmp_path, capsys):
    write_figures(tmp_path / "figures")
    data = ["-dataset=coco_keypoints", f"-data_path={tmp_path / 'figures'}"]
    make_trainer(tmp_path / "run", [*HEATMAPS, "-epochs=1", *data]).train()
    evaluated, rows, theirs = tmp_path / "evaluated", tmp_path / "rows.csv", tmp_path / "theirs"
    words = ["-eval", f"-pretrained={tmp_path / 'run'}", f"-output={evaluated}", f"-per_sample={rows}"]
    well(run_main(*HEATMAPS, *data, *words, "-ngpus=2", "SAVE_PREDICTIONS", "True", "REPORT", "True"))
    capsys.readouterr()
    truth = tmp_path / "figures" / "annotations" / "person_keypoints_val.json"
    results = evaluated / "predictions" / "results.json"
    evaluate_command.run([str(truth), str(results), "-json", f"-output={theirs}"])
    values = json.loads(capsys.readouterr().out)
    first, second = read_table(str(evaluated)), read_table(str(theirs))
    own = first.kind.recompute([first.arrays], first.about["classes"])(first.arrays["ids"][None] * 0.0 + 1)
    for name, value in zip(TEN, values["stats"]):
        assert value == (own[name][0] if own[name][0] == own[name][0] else -1)
    assert values["stats"][0] > 0 and values["samples"] == len(first.names) == 5
    assert TablePair.match(first, second).compute_intervals().difference["AP"].value == 0
    with rows.open(newline="") as file:
        listed = list(csv.DictReader(file))
    assert len(listed) == 5 and {"AP", "missed", "person head error_px", "OKS hand wrist"} <= listed[0].keys()
    report = (evaluated / "report.html").read_text(encoding="utf-8")
    assert "Scores by similarity" in report and "Distribution of the errors" in report and "exchanged %" in report
