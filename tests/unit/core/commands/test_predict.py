"""What ``predict`` refuses, reads and reports around the predictions."""

import contextlib
import csv
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.refusals import refusal_of
from support.thread_ranks import ThreadRanks
from support.trainings.full_gpus import no_memory
from support.trainings.trained import write_weights

from paddlevit_dist import UserError
from paddlevit_dist.core.commands import predict
from paddlevit_dist.core.inference import rows, trained
from paddlevit_dist.core.inference.trained import open_source
from paddlevit_dist.core.tasks.protocols import load_meta
from paddlevit_dist.images import Classification


def test_inputs_that_are_none_are_told_by_what_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("there.jpg").touch()
    Path("broken").symlink_to("nowhere")
    predict.require_inputs(["there.jpg", "."])
    for text, reason in {
        "https://me:secret@host/a.jpg": "URLs are not fetched: download it and give the file",
        "*.jpg": "no file matches: write patterns without quotes, for the shell to expand",
        "a[1].jpg": "no file matches: write patterns without quotes, for the shell to expand",
        "broken": "it is a link to a file that does not exist",
        "gone.jpg": "no such file or folder",
    }.items():
        line = refusal_of(predict.require_inputs, ["there.jpg", text])
        assert line.startswith(f"predict: input {text[:5]}") and line.endswith(f": {reason}") and "secret" not in line
    line = refusal_of(predict.require_inputs, ["data.batch_size=4"])
    assert line == "predict: input data.batch_size=4: keys are in capitals: DATA.BATCH_SIZE"
    assert "no such file" in refusal_of(predict.require_inputs, ["a=B.C"])


@pytest.mark.parametrize("output", ["", "  "])
def test_an_empty_output_is_refused_first(output):
    assert refusal_of(predict.run, ["run", "no_input", f"-output={output}"]).startswith(
        "predict: -output is empty: is a shell variable"
    )


def test_options_have_the_runs_values_by_default():
    options = vars(predict.parse_words(["run", "a", "b"]))
    assert (options.pop("source"), options.pop("inputs"), options.pop("output")) == ("run", ["a", "b"], "./predictions")
    assert (options.pop("device"), options.pop("restart")) == ("auto", False)
    assert options.pop("settings") == [] and set(options.values()) == {None} and len(options) == 8
    options = predict.parse_words(
        "run a -restart -ngpus=2 -batch_size=3 -num_workers=0 -least_score=.25 -max_detections=10 -window=8x9 "
        "-save_as=yolo -largest_component=foreground -class_names=n -annotations=c".split()
    )
    assert (options.restart, options.ngpus, options.batch_size, options.num_workers) == (True, 2, 3, 0)
    assert (options.save_as, options.class_names, options.annotations) == ("yolo", "n", "c")
    given = "-least_score=.25 -max_detections=10 -window=8x9 -largest_component=foreground"
    assert options.settings == given.split()


@pytest.mark.parametrize(
    "hint, names",
    [
        ("write -least_score=SHARE", "conf conf_thres confidence threshold score_thr"),
        (
            "write the weights and then the inputs, without flags",
            "source input inputs images img weights model checkpoint ckpt pretrained",
        ),
        ("the image size is stored with the weights: remove this option", "imgsz img_size"),
        ("write -output=FOLDER", "project name"),
    ],
)
def test_options_of_other_programs_are_told_as_what_they_are_here(hint, names, capsys):
    for name in names.split():
        for dashes in ("-", "--"):
            line = refusal_of(predict.parse_words, ["run", "a.png", f"{dashes}{name}=b"])
            assert hint in line and name in line, line


def test_class_names_are_the_lines_of_a_file(tmp_path):
    names = tmp_path / "names.txt"
    names.write_bytes("\ufeffred \n\nblue fish\n\n".encode())
    assert predict.read_class_names(None) is None
    assert predict.read_class_names(str(names)) == ["red", "", "blue fish"]
    names.write_text(" \n\n")
    assert refusal_of(predict.read_class_names, str(names)).endswith(
        "names.txt is empty: expected one class name per line"
    )
    line = refusal_of(predict.read_class_names, str(tmp_path / "none"))
    assert line.endswith("none cannot be read: No such file or directory; expected one class name per line")
    names.write_bytes(b"\xff")
    line = refusal_of(predict.read_class_names, str(names))
    assert line.endswith("names.txt is not UTF-8 text; save it as UTF-8; expected one class name per line")


@pytest.fixture
def prepared_process(monkeypatch):
    """As a process that has started with the environment of a run, so that a command does not replace it."""
    monkeypatch.setenv("PADDLEVIT_DIST_ENVIRONMENT", "")


@pytest.mark.usefixtures("prepared_process")
def test_runs_without_inputs_and_options_of_other_models_are_refused(tmp_path, monkeypatch, capsys):
    weights = str(write_weights(tmp_path / "weights", ["cat", "ant", "bee"]))
    output = f"-output={tmp_path / 'out'}"
    line = refusal_of(predict.run, [weights, weights, output])
    assert line == f"predict: {weights}, {weights}: runs without an input; add files or folders"
    (tmp_path / "pictures").mkdir()
    pictures = str(tmp_path / "pictures")
    line = refusal_of(predict.run, [pictures, weights, output])
    said = f"{pictures} is not a run, but {weights} is: the run comes first, as in 'predict {weights} {pictures}'"
    assert line == f"predict: {said}"
    assert not (tmp_path / "out").exists()
    Image.new("RGB", (16, 16)).save(tmp_path / "a.png")
    (tmp_path / "coco.json").write_text("{}")
    monkeypatch.setenv("PADDLE_MASTER", "a:1")
    for option, value in {"save_as": "coco", "annotations": str(tmp_path / "coco.json")}.items():
        line = refusal_of(predict.run, [weights, str(tmp_path / "a.png"), output, f"-{option}={value}"])
        assert line == f"predict: -{option} is for models that find boxes or keypoints; remove it"
    notice = "ignored, as no launcher started this run: PADDLE_MASTER=a:1 (left in this shell; unset them)"
    assert capsys.readouterr().out.splitlines()[0] == notice


@pytest.mark.usefixtures("prepared_process")
def test_an_interrupted_prediction_goes_on_with_the_inputs_that_are_left(tmp_path, capsys, workers):
    weights, out = write_weights(tmp_path / "weights", ["cat", "ant", "bee"]), tmp_path / "out"
    (tmp_path / "in").mkdir()
    for number in range(5):
        Image.new("RGB", (16, 16), (50 * number,) * 3).save(tmp_path / "in" / f"{number}.png")

    def run(*words, most=5, fails=False):
        """The lines, and what was predicted, of which ``most`` are done before a failure."""
        shares = []

        def work(started):
            task, sources, samples, share, *rest = started.arguments
            shares.append(share.tolist())
            if most:
                started.worker(task, sources, samples, share[:most], *rest)
            if fails:
                raise ZeroDivisionError

        workers.work = work
        with pytest.raises(ZeroDivisionError) if fails else contextlib.nullcontext():
            predict.run([str(weights), str(tmp_path / "in"), f"-output={out}", "-num_workers=0", "-device=cpu", *words])
        return capsys.readouterr().out.splitlines(), shares

    lines, shares = run(most=2, fails=True)
    assert shares == [[0, 1, 2, 3, 4]]
    assert lines[-1] == f"2 of 5 predicted so far, in {out}; run the same command to continue"
    with open(out / rows.ROWS_CSV, newline="") as file:
        assert len(list(csv.reader(file))) == 1 + 2
    done = f"5 predicted, in {out}/predictions.csv and .jsonl"
    lines, shares = run(most=2, fails=True)
    assert shares == [[2, 3, 4]] and "continuing: 2 of 5 inputs are done" in lines
    lines, shares = run()
    assert shares == [[4]] and lines[-1] == done
    assert "continuing: 4 of 5 inputs are done" in lines
    lines, shares = run()
    assert shares == [] and lines[-1] == f"{out}: all inputs are already predicted; add -restart to predict them again"
    lines, shares = run("-restart", most=0, fails=True)
    assert shares == [[0, 1, 2, 3, 4]] and not any("so far" in line for line in lines)
    assert not (out / rows.ROWS_CSV).exists() and not (out / rows.ABOUT).exists()


@pytest.mark.parametrize(
    ("has_data", "save_as", "has_run", "restarts", "refused"),
    [
        (True, "coco", False, False, True),
        (True, "coco", True, True, True),
        (True, "coco", True, False, False),
        (True, None, False, False, False),
        (False, "coco", False, False, False),
    ],
)
def test_images_are_not_added_to_the_data_set_of_another_prediction(
    tmp_path, has_data, save_as, has_run, restarts, refused
):
    if has_data:
        (tmp_path / "dataset").mkdir()
    if has_run:
        (tmp_path / "about").touch()
    options = SimpleNamespace(save_as=save_as, restart=restarts)
    if refused:
        line = refusal_of(predict.require_no_dataset, options, tmp_path, "about")
        assert line == f"-save_as: {tmp_path / 'dataset'} exists: remove it, or choose another -output"
    else:
        predict.require_no_dataset(options, tmp_path, "about")


def test_the_digest_of_annotations_follows_their_content(tmp_path):
    files = [tmp_path / name for name in "abc"]
    for file, text in zip(files, ("one", "one", "two")):
        file.write_text(text)
    digests = [predict.compute_digest(str(file)) for file in files]
    assert digests[0] == digests[1] != digests[2] and predict.compute_digest(None) is None
    line = refusal_of(predict.compute_digest, str(tmp_path / "none"))
    assert line.startswith("-annotations=") and line.endswith("cannot be read: No such file or directory")


@pytest.mark.parametrize(
    ("predicted", "unreadable", "inputs", "lines", "error"),
    [
        (3, [], ["in"], ["3 predicted, in {f}/predictions.csv and .jsonl"], None),
        (
            1234,
            [("in/a", "torn"), ("in/b", "empty")],
            ["in"],
            [
                "1,234 predicted, in {f}/predictions.csv and .jsonl; 2 could not be read, listed in {f}/unreadable.tsv",
                "note: the first unreadable input: in/a: torn",
            ],
            None,
        ),
        (
            0,
            [("a", "torn"), ("b", "empty")],
            ["a", "b"],
            [],
            "predict: nothing was predicted: 2 could not be read, listed in {f}/unreadable.tsv; the first: a: torn",
        ),
        (
            1,
            [("in/a", "torn"), ("b", "empty")],
            ["in", "b"],
            ["1 predicted, in {f}/predictions.csv and .jsonl; 2 could not be read, listed in {f}/unreadable.tsv"],
            "predict: b: empty",
        ),
        (
            1,
            [("c", "torn"), ("b", "empty")],
            ["b", "c", "d"],
            ["1 predicted, in {f}/predictions.csv and .jsonl; 2 could not be read, listed in {f}/unreadable.tsv"],
            "predict: c: torn (2 unreadable inputs on the command line, listed in {f}/unreadable.tsv)",
        ),
    ],
)
def test_what_was_predicted_and_what_was_not_is_counted(tmp_path, capsys, predicted, unreadable, inputs, lines, error):
    with open(tmp_path / rows.UNREADABLE, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, "excel-tab").writerows([("input", "reason"), *unreadable])
    counts = SimpleNamespace(predicted=predicted, unreadable=len(unreadable))
    if error is None:
        predict.report_outcome(counts, tmp_path, inputs)
    else:
        assert refusal_of(predict.report_outcome, counts, tmp_path, inputs) == error.format(f=tmp_path)
    assert capsys.readouterr().out.splitlines() == [line.format(f=tmp_path) for line in lines]


class FailingClassification(Classification):
    fails = False

    def logits(self, model, batch):
        if self.fails:
            no_memory()
        return super().logits(model, batch)


@pytest.mark.parametrize(("batch_size", "said"), [(1, 1), (None, 9)])
def test_ranks_hand_on_what_the_main_process_has_and_wait_for_each_other(tmp_path, batch_size, said):
    images, ranks = [np.full((16, 16, 3), 40 * number, np.uint8) for number in range(5)], ThreadRanks(2)
    weights = str(write_weights(tmp_path / "weights", ["cat", "ant", "bee"]))
    source = open_source(weights, "predict", words=["-batch_size_eval=9"])
    task = FailingClassification(source.config)
    load_meta(task, source.learned)
    samples = trained.require_predictable(task).open_inputs(images, tmp_path)
    rows.begin(tmp_path, {"inputs": len(images)}, restart=False)

    def work(rank):
        remaining = None if rank else np.array([1, 4])
        predict.worker(task, [source], samples, remaining, tmp_path, batch_size, 0)
        return [entry.index for entry in rows.read_entries(tmp_path)]

    assert ranks.run(work) == [[1, 4], [1, 4]]
    task.fails = True
    with pytest.raises(UserError, match=rf"; lower -batch_size \({said}\)$"):
        ranks.run(work)
