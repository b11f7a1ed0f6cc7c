"""A run that only evaluates: what it tells and records, in which order, and the predictions that all ranks write."""

import json
import os
import shutil
import signal
import threading
from pathlib import Path

import numpy as np
import paddle
import pytest
import yaml
from support.refusals import refusal_of
from support.registrations import forgotten
from support.thread_ranks import ThreadRanks
from support.trainings import small_runs
from support.trainings.runs import STATE, read_events

from paddlevit_dist import Callback, Key, Manifest, Trainer, UserError, register_feature
from paddlevit_dist.core import settings
from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.distributed import StopRequested
from paddlevit_dist.core.engine.evaluation import EvaluationObserver
from paddlevit_dist.core.inference.evaluation import SavedPredictions, evaluate_only, load_evaluated_weights
from paddlevit_dist.core.launch import status
from paddlevit_dist.core.metrics.classifier_prediction import ClassifierPrediction
from paddlevit_dist.core.runtime import signals
from paddlevit_dist.core.tasks import LogContributor
from paddlevit_dist.core.tasks.aspects import TaskAspect
from paddlevit_dist.core.tasks.prediction import PredictionWriter
from paddlevit_dist.extensions.report import store
from paddlevit_dist.images.classification.task import Classification


class ListedWriter(PredictionWriter):
    """Lists what is written, and what it gets at the end."""

    writes_evaluations = True

    def __init__(self):
        self.written = []

    def write(self, index, prediction, truth=None):
        self.written.append([index, prediction, truth])
        return {"never": "read"}

    def summarize(self, index, prediction, truth=None):
        return [index, prediction, truth]

    def finish(self, entries):
        return [json.dumps(entry) for entry in entries]


def list_open_files(folder):
    """List the files below a folder that this process has open."""
    links = (os.path.join("/proc/self/fd", number) for number in os.listdir("/proc/self/fd"))
    return [os.path.basename(path) for path in map(os.path.realpath, links) if path.startswith(f"{folder}{os.sep}")]


def test_predictions_of_all_ranks_are_finished_in_the_order_of_the_samples(tmp_path):
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "entries-0000.jsonl").write_text("[7,[]]\n")  # of an evaluation that was killed
    is_early, is_late, writers = threading.Event(), threading.Event(), [ListedWriter(), ListedWriter()]

    def finish(entries):
        is_late.set()
        return [json.dumps(entry) for entry in entries]

    writers[0].finish = finish

    def write(rank):
        if rank == 0:
            is_early.wait(0.2)  # the other rank is ahead, and has to wait for the folder
        saved = SavedPredictions(writers[rank], tmp_path, [[0, 2, 4], [1, 3]][rank])
        is_early.set()
        if rank == 1:
            is_late.wait(0.2)  # the first has to wait for it
            saved.add(["b", "d"], [9, None])
        else:
            saved.add(["a", "c"], [7, 8])
            saved.add(["e"])
        return saved.finish()

    expected = [[0, "a", 7], [1, "b", 9], [2, "c", 8], [3, "d", None], [4, "e", None]]
    lines = [json.dumps([row[0], [], "", row]) for row in expected]
    assert ThreadRanks(2).run(write) == [lines, []] and writers[1].written == expected[1::2]
    assert not list_open_files(tmp_path) and not list(tmp_path.iterdir())


def test_a_folder_of_predictions_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UserError, match="cannot write .*gone/unfinished"):
        SavedPredictions(ListedWriter(), tmp_path / "gone", [0])


def test_a_folder_that_is_gone_at_the_end_costs_no_prediction(tmp_path):
    class RemovingWriter(ListedWriter):
        def finish(self, entries):
            lines = super().finish(entries)
            shutil.rmtree(tmp_path / "unfinished")
            return lines

    saved = SavedPredictions(RemovingWriter(), tmp_path, [0])
    saved.add(["a"])
    assert saved.finish() == ['[0, [], "", [0, "a", null]]']


class OwnPrediction(ClassifierPrediction):
    def open_inputs(self, inputs, cache_folder):
        raise NotImplementedError

    def prediction_writer(self, folder, samples):
        print(f"writer for {folder.name}, {folder.exists()}")
        return self.task.writer


class OwnLine(TaskAspect, LogContributor):
    def evaluation_lines(self):
        print("the task has a line")
        return ["the task's line"]


class OwnCaching(TaskAspect):
    def on_weights_loaded(self, model, datasets, features):
        print("caches", model.training, *datasets)


class PrintingTask(Classification):
    """Prints what it is asked for; its samples have the names of ``named``, and its predictions are 0."""

    aspects = {"Predictable": OwnPrediction, "Ensembling": OwnPrediction}
    aspects |= {"LogContributor": OwnLine, "FeatureCaching": OwnCaching}
    writer = ListedWriter()
    named = [f"class {number}" for number in range(10)]

    def signature(self, samples=None):
        named = samples is not None and samples.labeled
        return {**super().signature(samples), **({"classes": self.named} if named else {})}

    def eval_step(self, model, batch, step):
        print(status.get_status().text, step.keeps_records)
        if step.writer is not None:
            step.writer.add([0] * len(batch["labels"]), batch["labels"].tolist())
        return super().eval_step(model, batch, step)


class EndingTask(PrintingTask):
    def eval_step(self, model, batch, step):
        raise StopRequested


class UnlabeledPart(small_runs.Part):
    labeled = False


class FollowingCallback(Callback):
    def start(self, run):
        print("started", run.folder.name, run.trains, run.config.EVAL)

    def evaluated(self, update, epoch, values):
        print("told", update, epoch, "top-1 low" in values, values.get("top-1"))

    def end(self, outcome):
        print("ended", outcome)


class PrintingObserver(EvaluationObserver):
    def __init__(self, run):
        self.run = run

    def after_batch(self, batch, records):
        print("observes", records is None)

    def after_evaluate(self, facts):
        if self.run.config.OBSERVED == "fails":
            raise UserError("cannot write a.csv")
        print("observed", facts)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Weights of the digits, alone and with what a training stores of them."""
    folder = tmp_path_factory.mktemp("weights")
    trainer = small_runs.build(str(folder / "run"), val_size=4)
    state = trainer.model.state_dict()
    paddle.save(state, str(folder / "weights.pdparams"))
    paddle.save({"student": state, "teacher": state, "other": state}, str(folder / "parts.pdparams"))
    paddle.save({**state, "more": state["head.bias"]}, str(folder / "more.pdparams"))
    (folder / "named").mkdir()
    turned = {name: value.numpy() for name, value in state.items()}
    for name in ("head.weight", "head.bias"):
        turned[name] = turned[name][..., ::-1]
    np.savez(folder / "named" / "weights.npz", **turned)
    about = {"task": "classification", "model": "vit", "data": {"val": {"classes": PrintingTask.named[::-1]}}}
    (folder / "named" / "about.yaml").write_text(yaml.safe_dump(about))
    return folder


@pytest.fixture
def build(tmp_path, weights):
    """Return a function that builds a run that evaluates ``source`` on four images of digits."""

    def build_run(*words, source="named/weights.npz", labeled=True, task=PrintingTask, writer=None):
        words = [f"-output={tmp_path / 'run'}", "-eval", *words]
        words += [f"-pretrained={weights / source}"] if source else []
        (tmp_path / "run").mkdir(exist_ok=True)
        values = settings.load([*small_runs.DIGITS, *small_runs.TINY, *words]).values
        made = task(values)
        if writer is not None:
            made.writer = writer
        samples = made.build_dataset("val", tmp_path)
        part = small_runs.Part if labeled else UnlabeledPart
        return Trainer(values, made, {"val": part(samples, 4)}, (), [FollowingCallback()])

    with forgotten():
        key = Key("OBSERVED", "prints", "text", "what an observer does")
        register_feature(Manifest("observing", key_tables=([key],), observers={"OBSERVED": PrintingObserver}))
        yield build_run


def read_event(folder):
    (event,) = read_events(folder)
    return event


def test_each_part_of_a_run_is_told_in_this_order(build, weights, tmp_path, capsys):
    run, source = build("REPORT=True"), weights / "named" / "weights.npz"
    capsys.readouterr()
    values = evaluate_only(run)
    said, facts = capsys.readouterr().out.splitlines(), {"of": str(source), "split": "val"}
    note = f"{source} does not store its preprocessing"
    expected = [
        "started run False True",
        f"weights {source}: loaded 32 of 32",
        f"note: {note}",
        "caches True val",
        "in the evaluation True",
        "observes False",
        "the task has a line",
        "the task's line",
        f"told 0 0 True {values['top-1']}",
        "note: the interval is rough: 4 samples",
        f"observed {facts}",
        f"top-1 {values['top-1']:.2f} [",
        "ended finished",
    ]
    assert [next((start for start in expected if line.startswith(start)), line) for line in said] == expected
    event = read_event(tmp_path / "run")
    (told,) = event["notes"]
    assert told.startswith(f"note: {note}") and event.items() >= {"weights": str(source), **values}.items()
    intervals = json.loads((tmp_path / "run" / "eval_intervals.json").read_text())
    assert (intervals["weights"], intervals["split"], intervals["notes"]) == (str(source), "val", [told])
    assert store.load(tmp_path / "run" / store.EVALUATION).about.items() >= facts.items()
    record = json.loads((tmp_path / "run" / "eval_run.json").read_text())
    assert f"report: {tmp_path}/run/report.html (" in (tmp_path / "run" / "log.txt").read_text()
    assert list(record["data"]) == ["val"] and (tmp_path / "run" / "eval_scored_samples.npz").is_file()


def test_weights_without_notes_and_a_run_without_a_report_have_neither(build, tmp_path, capsys):
    evaluate_only(build(source="weights.pdparams", task=Classification))
    assert "notes" not in read_event(tmp_path / "run") and "observes True" in capsys.readouterr().out
    assert not (tmp_path / "run" / "report.html").exists()


def test_predictions_without_labels_are_saved_and_no_score_is_told(build, tmp_path, capsys):
    run = build("REPORT=True", labeled=False)
    capsys.readouterr()
    assert evaluate_only(run) == {}
    said, folder = capsys.readouterr().out.splitlines(), tmp_path / "run" / "predictions"
    line = f"no score: the 4 images of val have no labels; their predictions are in {folder}"
    assert line in said and said.index("writer for predictions, False") < said.index("in the evaluation False")
    assert folder.is_dir() and not any(line.startswith(("top-1", "note: the interval")) for line in said)
    assert "top-1" not in read_event(tmp_path / "run") and not (tmp_path / "run" / "eval_intervals.json").exists()


def test_predictions_are_written_on_request_beside_earlier_ones(build, tmp_path, capsys):
    (tmp_path / "run" / "predictions").mkdir(parents=True)
    run = build("SAVE_PREDICTIONS=True", writer=ListedWriter())
    capsys.readouterr()
    evaluate_only(run)
    said = capsys.readouterr().out.splitlines()
    truths = [truth for _, _, truth in run.task.writer.written]
    written = [f'[{index}, [], "", [{index}, 0, {truth}]]' for index, truth in enumerate(truths)]
    begin = said.index(written[0])
    assert said[begin : begin + 5] == [*written, "the task's line"] and len(set(truths)) > 1


@pytest.mark.parametrize("task, writer", [(Classification, None), (PrintingTask, PredictionWriter())])
def test_predictions_that_a_task_cannot_write_are_refused_before_the_evaluation(build, tmp_path, capsys, task, writer):
    run = build("SAVE_PREDICTIONS=True", task=task, writer=writer)
    assert refusal_of(evaluate_only, run) == (
        "SAVE_PREDICTIONS: task classification does not write predictions; remove SAVE_PREDICTIONS"
    )
    assert not (tmp_path / "run" / "predictions").exists() and "in the evaluation" not in capsys.readouterr().out


def test_one_of_several_ranks_asks_the_task_for_its_lines_and_all_have_the_values(build, capsys):
    values = ThreadRanks(2).run(lambda rank: evaluate_only(build("-batch_size_eval=2")))
    assert values[0] == values[1] and values[0]["samples"] == 4
    assert capsys.readouterr().out.splitlines().count("the task has a line") == 1


def test_a_file_that_an_observer_cannot_write_does_not_cost_the_score(build, tmp_path, capsys):
    with pytest.raises(UserError, match="a.csv"):
        evaluate_only(build("OBSERVED=fails"))
    first, last = capsys.readouterr().out.splitlines()[-2:]
    assert first.startswith("top-1 ") and last == "ended failed" and read_event(tmp_path / "run")["samples"] == 4


@pytest.mark.parametrize("number, expected", [(signal.SIGINT, signal.SIGINT), (None, signal.SIGTERM)])
def test_a_signal_that_code_ignored_ends_the_evaluation(build, tmp_path, own_handlers, number, expected):
    run = build(task=EndingTask)
    signals.record_only()
    if number is not None:
        signal.raise_signal(number)
    with pytest.raises(signals.ProcessInterrupted) as stopped:
        evaluate_only(run)
    assert stopped.value.args == signals.ProcessInterrupted(expected).args
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_weights_of_others_are_loaded_by_class_names(build, weights, tmp_path):
    run = build()
    run.model.head.weight.set_value(paddle.zeros_like(run.model.head.weight))
    source, lines = load_evaluated_weights(run, run.model)
    stored = paddle.load(str(weights / "weights.pdparams"))["head.weight"].numpy()
    np.testing.assert_array_equal(run.model.head.weight.numpy(), stored, strict=True)
    report = json.loads((tmp_path / "run" / "eval_load_report.json").read_text())
    assert str(source) == str(weights / "named" / "weights.npz")
    assert lines[0].startswith(f"weights {source}: ") and report["loaded"]
    assert list(run.task.evaluated_classes) == PrintingTask.named


def test_classes_are_not_matched_without_labels(build, weights):
    run = build(labeled=False)
    load_evaluated_weights(run, run.model)
    turned = np.load(weights / "named" / "weights.npz")["head.weight"]
    np.testing.assert_array_equal(run.model.head.weight.numpy(), turned, strict=True)


def test_part_and_allowed_changes_of_the_configuration_apply_to_weights(build, weights):
    run = build("MODEL.PRETRAINED_PART=teacher", source="parts.pdparams")
    load_evaluated_weights(run, run.model)
    run = build("-allow_changes", source="more.pdparams")
    load_evaluated_weights(run, run.model)
    run = build(source="more.pdparams")
    with pytest.raises(UserError, match="more"):
        load_evaluated_weights(run, run.model)


def test_a_run_that_resumes_is_evaluated_at_its_checkpoint(build):
    run = build("-resume=auto", source=None)
    with pytest.raises(UserError, match=f"^-resume=auto: no checkpoint in {run.folder} to evaluate$"):
        load_evaluated_weights(run, run.model)
    position = {"epoch": 1, "consumed": 0, "update": 10}
    saved = checkpoint_store.save(
        run.folder, "epoch_0001", run.model.state_dict(), checkpoint_store.RunState(position, {}, STATE)
    )
    source, _ = load_evaluated_weights(run, run.model)
    assert Path(source) == saved
