"""Runs with data options: unreadable images, a split folder, prepared tar files, rare classes."""

import json
import shutil
import sys

import pytest
from PIL import Image
from support.processes import run_command, run_main
from support.trainings.runs import IMAGES, last_line, read_events, refused, well, write_images

SKIP = ["DATA.ON_INVALID_SAMPLE", "skip"]


@pytest.fixture
def images(tmp_path):
    return write_images(tmp_path / "pictures")


@pytest.fixture
def output(tmp_path):
    return tmp_path / "output"


def spoil(images, *names):
    files = [images / name for name in names]
    for file in files:
        file.write_bytes(file.read_bytes()[:200])
    return [str(file) for file in files]


def listed(output):
    return [line.split("\t")[0] for line in (output / "quarantine.tsv").read_text().splitlines()[1:]]


def test_unreadable_images_are_replaced_and_listed_the_same_for_any_processes(images, tmp_path):
    require_the_same_replaced_images(images, tmp_path, ((1, 0), (2, 1)))


def require_the_same_replaced_images(images, tmp_path, sizes):
    """For these numbers of processes and of loader processes of each."""
    bad = spoil(images, "train/ant/02.jpg", "train/ant/03.jpg", "train/bee/07.jpg")
    losses = []
    for processes, workers in sizes:
        output = tmp_path / f"{processes} {workers}"
        arguments = [f"-ngpus={processes}", f"-num_workers={workers}", f"-batch_size={8 // processes}", "-epochs=2"]
        ended = well(run_main(f"-output={output}", *IMAGES, f"-data_path={images}", *SKIP, *arguments))
        assert listed(output) == bad
        told = "3 unreadable images so far replaced by the next readable one, listed in"
        assert ended.out.count(f"{told} {output / 'quarantine.tsv'}") == 1  # not every epoch
        losses.append([event["loss"] for event in read_events(output) if event["kind"] == "epoch"])
    assert losses[1] == (losses[0] if sizes[0][0] == sizes[1][0] else pytest.approx(losses[0], rel=1e-5))


def test_an_evaluation_replaces_nothing(images, output):
    (bad,) = spoil(images, "val/ant/02.jpg")
    message = refused(f"-output={output}", *IMAGES, f"-data_path={images}", *SKIP)
    assert f"{bad} cannot be read as an image" in message


def test_a_clean_data_set_needs_no_list_and_odd_images_no_word(images, output):
    Image.new("P", (20, 20)).save(images / "train" / "ant" / "odd.png", transparency=bytes(range(16)))
    well(run_main(f"-output={output}", *IMAGES, f"-data_path={images}", *SKIP))
    assert not (output / "quarantine.tsv").exists() and not (output / "quarantine").exists()


def test_a_split_folder_trains_and_evaluates_on_the_same_images(images, output, tmp_path):
    single = tmp_path / "single"
    shutil.copytree(images / "train", single)
    arguments = [*IMAGES, f"-data_path={single}", "DATA.VAL_FRACTION", "0.25"]
    trained = well(run_main(f"-output={output}", *arguments))
    assert "note: 4 of 16 training images are held out for validation (DATA.VAL_FRACTION 0.25" in trained.out
    data = json.loads((output / "run.json").read_text())["data"]
    assert data["val"]["holds"] == "4 images: ant 1, bee 2, cow 1" and data["train"]["classes"] == 3
    assert any("4 of 16 training images are held out" in note for split in data.values() for note in split["notes"])
    names = (output / "val_files.txt").read_text().splitlines()
    assert sorted(name.partition("/")[0] for name in names) == ["ant", "bee", "bee", "cow"]
    weights = f"-pretrained={output / 'checkpoints' / 'last'}"
    evaluated = well(run_main(f"-output={tmp_path / 'evaluation'}", *arguments, "-eval", weights, "-seed=9"))
    assert last_line(trained) == f"{last_line(evaluated)} (last and best, epoch 1)"
    assert (tmp_path / "evaluation" / "val_files.txt").read_text().splitlines() == names


def test_other_files_than_the_run_s_are_counted_and_trained_ones_are_not_scored(images, output, tmp_path):
    single = tmp_path / "single"
    shutil.copytree(images / "train", single)
    arguments = [word for word in IMAGES if word != "-epochs=1"] + ["-epochs=2", f"-data_path={single}"]
    arguments += ["DATA.VAL_FRACTION", "0.25"]
    well(run_main(f"-output={output}", *arguments, "-stop_after_epoch=1"))
    evaluation = [f"-output={tmp_path / 'evaluation'}", *arguments, "-eval", f"-pretrained={output}"]
    message = refused(*evaluation, "DATA.VAL_FRACTION", "0.5")
    assert "8 images of val, compared with the samples that" in message and "4 trained on; for example, " in message
    allowed = well(run_main(*evaluation, "DATA.VAL_FRACTION", "0.5", "-allow_changes"))
    assert "4 trained on" in allowed.out and "the score counts samples that the model has seen" in allowed.out
    renamed = (output / "val_files.txt").read_text().splitlines()[0]
    (single / renamed).rename(single / "ant" / "another name.jpg")
    message = refused(f"-output={output}", *arguments, "-resume=auto")
    assert "files 4 -> " in message and "1 gone" in message and "1 new" in message


def test_a_run_on_prepared_images_says_so(images, output, tmp_path):
    command = [sys.executable, "-m", "paddlevit_dist", "prepare", "images", str(images), str(tmp_path / "small")]
    well(run_command([*command, "--shorter_side=16", "--workers=1"]))
    arguments = [*IMAGES, "-dataset=tar", f"-data_path={tmp_path / 'small'}", "-ngpus=2", "-num_workers=1"]
    ended = well(run_main(f"-output={output}", *arguments))
    note = f"prepared from {images} with a shorter side of at most 16 pixels, JPEG quality 90"
    assert ended.out.count(note) == 1 and note in (output / "log.txt").read_text()


@pytest.mark.parametrize("options", [["DATA.CLASS_BALANCED", "true"], ["TRAIN.CLASS_WEIGHTS", "balanced"]])
def test_rare_classes_give_the_same_for_any_processes(options, images, tmp_path):
    """With weights that a user gives at night."""
    require_the_same_of_rare_classes(options, images, tmp_path)


def require_the_same_of_rare_classes(options, images, tmp_path):
    for number in range(2, 8):
        (images / "train" / "bee" / f"{number:02d}.jpg").unlink()
    losses = []
    for processes in (1, 2):
        output = tmp_path / str(processes)
        arguments = [f"-ngpus={processes}", f"-batch_size={4 // processes}", "TRAIN.SMOOTHING", "0.1", *options]
        well(run_main(f"-output={output}", *IMAGES, f"-data_path={images}", *arguments))
        losses += [event["loss"] for event in read_events(output) if event["kind"] == "epoch"]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_options_that_contradict_or_do_not_fit(images, output):
    arguments = [f"-output={output}", *IMAGES, f"-data_path={images}"]
    both = ["DATA.CLASS_BALANCED", "true", "TRAIN.CLASS_WEIGHTS", "balanced"]
    assert "both correct for rare classes; keep one" in refused(*arguments, *both)
    assert "TRAIN.CLASS_WEIGHTS has 2 weights, expected 3" in refused(*arguments, "TRAIN.CLASS_WEIGHTS", "[1,2]")
    assert "expected balanced, a list of numbers" in refused(*arguments, "TRAIN.CLASS_WEIGHTS", "rare")
    assert "DATA.VAL_FRACTION" in refused(*arguments, "DATA.VAL_FRACTION", "1")
