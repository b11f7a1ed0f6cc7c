"""A run on images in Parquet equals a run on the same images in folders, on any processes, also if it is resumed."""

import json
import sys

import pytest
from integration.core.distributed.resumed_runs import assert_bit_equal, run_until_killed, weights
from support.files.hub_files import IMAGE, classes, write_parquet
from support.processes import run_command, run_main, succeeded
from support.trainings.runs import IMAGES, read_events, write_images

RUN = [word for word in IMAGES if "dataset" not in word and "epochs" not in word]
RUN += ["-ngpus=2", "-seed=5", "-epochs=4", "-batch_size=1", "REPORT", "False"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Images in folders, and the same in the same order in Parquet, in groups of five rows."""
    root = tmp_path_factory.mktemp("data")
    folder = write_images(root / "folders")
    names = ("ant", "bee", "cow")
    for split in ("train", "val"):
        files = sorted((folder / split).rglob("*.jpg"))
        rows = [{"bytes": file.read_bytes(), "path": file.name} for file in files]
        columns = {"image": rows, "label": [names.index(file.parent.name) for file in files]}
        shard = root / "hub" / "data" / f"{split}-00000-of-00001.parquet"
        write_parquet(shard, columns, {"image": IMAGE, "label": classes(*names)}, row_group_size=5)
    return root


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    output = tmp_path_factory.mktemp("hub")
    cache = f"DATA.CACHE_FOLDER {data}/cache".split()
    ended = succeeded(run_main(*RUN, *cache, f"-data_path={data}/hub", f"-output={output}"))
    return output, ended.out, cache


def test_a_run_on_two_processes_equals_a_run_from_folders(data, trained, tmp_path):
    output, printed, _ = trained
    succeeded(run_main(*RUN, "-dataset=folder", f"-data_path={data}/folders", f"-output={tmp_path}"))
    assert_bit_equal(weights(output), weights(tmp_path))
    scores = [
        [row["loss"] for row in read_events(folder) if row["kind"] == "evaluation"] for folder in (output, tmp_path)
    ]
    assert scores[0] == scores[1] != []
    assert (
        "images of 1 file of split train are unpacked in" in printed
        and "train 16 images: ant 5, bee 8, cow 3" in printed
    )
    assert "hub, split train: 16 images, images in column image, labels in label" in printed


def test_a_run_that_is_killed_in_an_epoch_ends_with_the_same_weights(data, trained, tmp_path):
    output, _, cache = trained
    words = [*RUN, *cache, f"-data_path={data}/hub"]
    succeeded(run_main(*words, f"-output={tmp_path}", "-stop_after_epoch=1"))
    run_until_killed(tmp_path, *words)
    assert "samples into epoch" in succeeded(run_main(*words, f"-output={tmp_path}", "-resume=auto")).out
    assert_bit_equal(weights(output), weights(tmp_path))


def test_one_process_finds_the_score_of_two_and_names_rows(data, trained, tmp_path):
    output, _, cache = trained
    tool = [sys.executable, "-m", "paddlevit_dist"]
    words = [f"-cfg={output}/config.yaml", f"-pretrained={output}/checkpoints/last", f"-output={tmp_path}/evaluated"]
    table = f"-per_sample={tmp_path}/rows.csv"
    ended = succeeded(run_command([*tool, "evaluate", *words, *cache, table, "-ngpus=1"]))
    score = next(event for event in reversed(read_events(output)) if event["kind"] == "evaluation")
    assert f"top-1 {score['top-1']:.2f}" in ended.out.splitlines()[-1]
    assert "data/val-00000-of-00001.parquet/7" in (tmp_path / "rows.csv").read_text()
    ended = succeeded(
        run_command([*tool, "inspect", "data", *RUN[:-2], *cache, f"-data_path={data}/hub", f"-output={tmp_path}/look"])
    )
    assert (tmp_path / "look" / "data.png").is_file()
    assert json.loads((output / "run.json").read_text())["data"]
