"""A resumed training reports what it does differently, and its records list each epoch once."""

import json
import shutil

import pytest
from support.trainings.finished_runs import EPOCHS
from support.trainings.runs import IMAGES, contents, read_events, refused, run_main, well, write_images


@pytest.fixture
def stopped(trained, tmp_path):
    """A copy of a finished run that continues from its third epoch, as if the later ones had been lost."""
    folder = shutil.copytree(trained.output, tmp_path / "run", symlinks=True)
    arguments = [f"-output={folder}" if word.startswith("-output=") else word for word in trained.arguments]
    shutil.rmtree(folder / "checkpoints" / f"epoch_{EPOCHS:04d}")
    (folder / "checkpoints" / "last").unlink()
    (folder / "checkpoints" / "best").unlink()
    for path in (folder / "checkpoints").glob("epoch_*"):
        if path.name != "epoch_0003":
            shutil.rmtree(path)
    return folder, arguments


def test_a_setting_that_alters_the_run_stops_it_and_shows_both_sides(stopped):
    folder, arguments = stopped
    before = (folder / "metrics.jsonl").read_bytes()
    message = refused(*arguments, "-resume=auto", "TRAIN.WEIGHT_DECAY", "0.5", "REPORT_FREQ", "7")
    assert "TRAIN.WEIGHT_DECAY 0.05 -> 0.5" in message and "-allow_changes" in message
    assert "REPORT_FREQ" not in message
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_another_effective_batch_alters_the_run_and_the_same_one_does_not(stopped):
    _, arguments = stopped
    message = refused(*arguments, "-resume=auto", "-ngpus=2")
    assert "effective batch 64 -> 128" in message
    message = refused(*arguments, "-resume=auto", "-ngpus=2", "-batch_size=32", "-seed=4")
    assert "SEED 3 -> 4" in message and "effective batch" not in message and "NGPUS" not in message


def test_allowed_changes_are_a_table_and_repeated_epochs_are_marked(stopped):
    folder, arguments = stopped
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(text + '{"kind": "training", "epo')  # as a killed run leaves it
    ended = well(
        run_main(*arguments, "-resume=auto", "-allow_changes", "TRAIN.WEIGHT_DECAY", "0.5", "REPORT_FREQ", "7")
    )
    rows = [line.split() for line in ended.out.splitlines()]
    assert ["setting", "before", "now"] in rows
    assert ["TRAIN.WEIGHT_DECAY", "0.05", "0.5", "alters", "the", "run"] in rows
    assert ["REPORT_FREQ", "10", "7"] in rows
    assert "earlier evaluations of epoch(s) 4, 5 are marked as superseded" in ended.out

    lines = read_events(folder)
    (resume,) = [line for line in lines if line["kind"] == "resume"]
    assert resume["epoch"] == 3 and resume["changes"]["TRAIN.WEIGHT_DECAY"] == [0.05, 0.5]
    (interruption,) = [line for line in lines if line["kind"] == "interruption"]
    assert interruption["epoch"] == 3 and interruption["lost_updates"] == 2 * 22
    valid = [line["epoch"] for line in lines if line["kind"] == "evaluation" and "superseded" not in line]
    assert valid == list(range(1, EPOCHS + 1))
    assert [line["epoch"] for line in lines if line.get("superseded") and line["kind"] == "evaluation"] == [4, 5]
    assert [line["text"] for line in lines if line["kind"] == "unreadable"] == ['{"kind": "training", "epo']


def test_other_data_alter_a_run_and_an_evaluation_has_the_classes(tmp_path):
    """The same number of images: one has another label, or all classes have other names."""
    images = write_images(tmp_path / "pictures")
    arguments = [word for word in IMAGES if word != "-epochs=1"] + ["-epochs=2", f"-output={tmp_path / 'run'}"]
    well(run_main(*arguments, f"-data_path={images}", "-stop_after_epoch=1"))
    moved = shutil.copytree(images, tmp_path / "moved")
    (moved / "train" / "ant" / "00.jpg").rename(moved / "train" / "bee" / "other.jpg")
    assert "train labels" in refused(*arguments, f"-data_path={moved}", "-resume=auto")
    shutil.copy(images / "val" / "ant" / "00.jpg", images / "val" / "ant" / "more.jpg")
    assert "val samples 8 -> 9" in refused(*arguments, f"-data_path={images}", "-resume=auto")
    for split in ("train", "val"):
        (moved / split / "ant").rename(moved / split / "cat")
    evaluation = [word for word in arguments if not word.startswith(("-epochs", "-output"))]
    evaluation += [f"-data_path={moved}", "-eval", f"-pretrained={tmp_path / 'run'}", f"-output={tmp_path / 'eval'}"]
    message = refused(*evaluation)
    assert "has 2 of the data's 3 classes (bee, cat, cow); its own are ant, bee, cow" in message
    assert "2 of 3 classes by name" in well(run_main(*evaluation, "-allow_changes")).out


def test_a_training_that_begins_again_marks_what_was_there(stopped):
    folder, arguments = stopped
    shutil.rmtree(folder / "checkpoints")
    ended = well(run_main(*arguments, "-epochs=1", "-resume=auto"))
    assert "are marked as superseded" in ended.out
    lines = read_events(folder)
    assert [line["epoch"] for line in lines if line["kind"] == "evaluation" and "superseded" not in line] == [1]
    (resume,) = [line for line in lines if line["kind"] == "resume"]
    assert resume["from"] is None and resume["epoch"] == 0


def test_a_run_whose_checkpoints_are_all_damaged_does_not_start_again(stopped):
    folder, arguments = stopped
    (folder / "checkpoints" / "epoch_0003" / "optimizer.npz").unlink()
    message = refused(*arguments, "-resume=auto")
    assert "all checkpoints" in message and "are damaged" in message and "choose another -output" in message


def test_a_refused_start_leaves_the_other_runs_files_alone_and_its_reason_in_the_log(stopped):
    folder, arguments = stopped
    before = contents(folder)
    message = refused(*arguments, "DATA.VAL_FRACTION", "0.1")
    assert "already holds a run's checkpoints" in message and contents(folder) == before
    message = refused(*arguments, "-resume=auto", "-seed=99")
    assert (folder / "log.txt").read_text().splitlines()[-1].endswith(f"stopped: {message}")


def test_an_undisturbed_run_says_nothing_of_interruptions(trained):
    assert not {"interruption", "failure", "resume"} & {line["kind"] for line in read_events(trained.output)}


def test_a_worker_that_is_refused_in_mid_training_is_an_event(tmp_path, trained):
    """The loss becomes infinite in the first epoch, long after the run has started its records."""
    arguments = [word for word in trained.arguments if not word.startswith("-output=")]
    output = tmp_path / "output"
    message = refused(f"-output={output}", *arguments, "TRAIN.BASE_LR", "1e30", "TRAIN.OPTIMIZER.NAME", "SGD")
    assert "diverged" in message
    (event,) = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines() if "reason" in line]
    assert event["kind"] == "failure" and "diverged" in event["reason"] and event["epoch"] == 0
    assert "interrupted: " in (output / "log.txt").read_text()
