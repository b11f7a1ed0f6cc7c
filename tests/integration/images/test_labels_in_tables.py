"""A run that reads labels from a table equals a run that reads them from folders, and predicts their names."""

import csv
import json
import sys

import pytest
from integration.core.distributed.resumed_runs import assert_bit_equal, weights
from support.processes import run_command, run_main, succeeded
from support.trainings.runs import IMAGES, read_events, refused, write_images

CLASSES, CLASS_COLUMNS = ("ant", "bee", "cow"), ("class", "class_2", "class_3")
TWO_UPDATES = [*IMAGES, "-ngpus=2", "-seed=5", "REPORT", "False"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Images in folders, 16 and 8 of three classes, and a table of the same images in the same order."""
    folder = write_images(tmp_path_factory.mktemp("data"))
    rows = []
    for split in ("train", "val"):
        for path in sorted((folder / split).rglob("*.jpg")):
            rows.append((f"{split}/{path.parent.name}/{path.stem}", path.parent.name, split, "x; y"))
    with (folder / "labels.tsv").open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=";", quoting=csv.QUOTE_ALL).writerows([("Image", "Class", "Split", "Note"), *rows])
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    output = tmp_path_factory.mktemp("table")
    ended = succeeded(run_main(*TWO_UPDATES, "-dataset=table", f"-data_path={data}/labels.tsv", f"-output={output}"))
    return output, ended.out


def test_a_run_on_two_processes_equals_a_run_from_folders(data, trained, tmp_path):
    output, printed = trained
    succeeded(run_main(*TWO_UPDATES, f"-data_path={data}", f"-output={tmp_path}"))
    assert_bit_equal(weights(output), weights(tmp_path))
    scores = [
        [event["loss"] for event in read_events(folder) if event["kind"] == "evaluation"]
        for folder in (output, tmp_path)
    ]
    assert scores[0] == scores[1] != []
    assert "labels.tsv: 24 rows, images in column Image, labels in column Class; not used: Note" in printed
    assert "train 16 images: ant 5, bee 8, cow 3" in printed and "val 8 images: ant 3, bee 4, cow 1" in printed


def test_one_process_finds_the_score_of_two_and_predicts_class_names(data, trained, tmp_path):
    output, _ = trained
    tool = [sys.executable, "-m", "paddlevit_dist"]
    words = [f"-cfg={output}/config.yaml", f"-pretrained={output}/checkpoints/last", f"-output={tmp_path}/evaluated"]
    ended = succeeded(run_command([*tool, "evaluate", *words, "-ngpus=1"]))
    score = next(event for event in reversed(read_events(output)) if event["kind"] == "evaluation")
    assert f"top-1 {score['top-1']:.2f}" in ended.out.splitlines()[-1]
    succeeded(run_command([*tool, "predict", str(output), str(data / "val"), f"-output={tmp_path}/found"]))
    with (tmp_path / "found" / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 and all({row[name] for name in CLASS_COLUMNS} == set(CLASSES) for row in rows)
    about = json.loads((tmp_path / "found" / "predictions.jsonl").read_text().splitlines()[0])
    assert about["class"] in CLASSES


def test_the_sheet_of_samples_and_lines_about_the_table_are_shown(data, tmp_path):
    (data / "few.csv").write_text("image,label\nbee/03,bee\nant/04,ant\nant/04.jpg,ant\nbee/99,bee\n")
    words = [*IMAGES, "-dataset=table", f"-data_path={data}/few.csv", f"-output={tmp_path}/look"]
    tool = [sys.executable, "-m", "paddlevit_dist", "inspect", "data"]
    ended = run_command([*tool, *words])
    assert ended.code == 2 and "may be each of train/bee/03.jpg, val/bee/03.jpg in" in ended.err
    (data / "few.csv").write_text((data / "few.csv").read_text().replace("bee/03", "train/bee/03"))
    words = [word for word in words if "data_path" not in word] + [f"-data_path={data}/few.csv"]
    ended = run_command([*tool, *words])
    assert ended.code == 2 and "1 of 4 images is missing below" in ended.err and "bee/99; correct" in ended.err
    ended = succeeded(run_command([*tool, *words, "DATA.ALLOW_SKIPPED_FILES", "True"]))
    assert (tmp_path / "look" / "data.png").is_file()
    for line in (
        "few.csv names 1 image again, read once: train/ant/04.jpg",
        "few.csv: 1 missing images: bee/99",
        "images next to these are not in",
    ):
        assert line in ended.out


def test_wrong_tables_end_a_run_in_one_line(data, tmp_path):
    table = tmp_path / "labels.csv"
    for rows, message in (
        ("image,label\na.png,cat\n", "labels.csv: 1 of 1 image is missing below"),
        ("image,label\na.png,cat\n,dog\n", "labels.csv, line 3: no image is named"),
        ("image,size,age\na.png,3,4\n", "labels.csv: no column of labels among image, size, age: name it label"),
    ):
        table.write_text(rows)
        assert message in refused(*IMAGES, "-dataset=table", f"-data_path={table}", f"-output={tmp_path}/out")
