"""A run that only evaluates: what it hands to whom, in which order, and the predictions that all ranks write."""

import contextlib
import json
import os
import shutil
import signal
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import paddle
import pytest
from support.thread_ranks import acting_as
from support.trainings import small_runs

from paddlevit_dist import UserError, settings
from paddlevit_dist.checkpoint import store
from paddlevit_dist.checkpoint.class_rows import ClassNames
from paddlevit_dist.distributed import StopRequested
from paddlevit_dist.inference import evaluation
from paddlevit_dist.inference.evaluation import SavedPredictions, evaluate_only, load_evaluated_weights
from paddlevit_dist.runtime import signals
from paddlevit_dist.tasks.callback import RunFacts
from paddlevit_dist.tasks.prediction import PredictionWriter

LOADED = ["weights hub/w: loaded all", "note: other classes", "of another split: note: no"]
VALUES = {"top-1": 50.0, "loss": 1.5}


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


def test_predictions_of_all_ranks_are_finished_in_the_order_of_the_samples(tmp_path, monkeypatch):
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "entries-0000.jsonl").write_text("[7,[]]\n")  # of an evaluation that was killed
    seen, writers = [], []
    monkeypatch.setattr(evaluation, "barrier", lambda: seen.append(sorted(list_open_files(tmp_path))))
    for number, indices in enumerate([[0, 2, 4], [1, 3]]):
        with acting_as(number, 2):
            writers.append(SavedPredictions(own := ListedWriter(), tmp_path, indices))
    first, second = "entries-0000.jsonl", "entries-0001.jsonl"
    assert seen == [[], [first]] and list_open_files(tmp_path) == [first, second]
    writers[0].add(["a", "c"], [7, 8])
    writers[0].add(["e"])
    writers[1].add(["b", "d"], [9, None])
    assert own.written == [[1, "b", 9], [3, "d", None]]
    with acting_as(1, 2):
        assert writers[1].finish() == [] and seen.pop() == [first]
    expected = [[0, "a", 7], [1, "b", 9], [2, "c", 8], [3, "d", None], [4, "e", None]]
    with acting_as(0, 2):
        assert writers[0].finish() == [json.dumps([row[0], [], "", row]) for row in expected]
    assert seen.pop() == [] and len(seen) == 2 and not list(tmp_path.iterdir())


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


class Task:
    traits = SimpleNamespace(sample_name="scans")

    def __init__(self, calls, writer):
        self._calls, self._writer = calls, writer

    def prediction_writer(self, folder, samples):
        self._calls.append(("writer", folder, samples, folder.exists()))
        return self._writer

    def evaluation_lines(self):
        return ["the task's line"]


Samples = namedtuple("Samples", "labeled number")
Samples.__len__ = lambda self: 1234


@pytest.fixture
def start(tmp_path, monkeypatch):
    """What notes all calls of an evaluation, in place of the run, and the list of these notes."""
    calls = []

    def note(name, result=None):
        def call(*arguments, **options):
            calls.append((name, *arguments, *([options] if options else [])))
            return result

        return call

    @contextlib.contextmanager
    def notified():
        yield
        calls.append(("ended",))

    @contextlib.contextmanager
    def beat(place):
        calls.append(("in", place))
        yield
        calls.append(("out of", place))

    def build(*words, labeled=True, aspects=("Reportable", "LogContributor"), during=None, writer=None, warning=None):
        config = settings.load([f"-output={tmp_path / 'run'}", "-eval", "-pretrained=w", *words]).values
        task = type("TaskOfCase", (Task,), {"aspects": {name: lambda task: task for name in aspects}})(calls, writer)
        monkeypatch.setattr(evaluation, "load_evaluated_weights", loading("https://me:key@hub/w", LOADED))
        monkeypatch.setattr(evaluation, "start_run_log", note("log starts"))
        monkeypatch.setattr(evaluation, "FigureRecorder", lambda *arguments: (calls.append(arguments), observers[0])[1])
        monkeypatch.setattr(evaluation, "build_set", lambda rows, run: observers[1:])
        functions = {"write_evaluation_report": note("report"), "load_comparison_weights": loading("net", ["net"])}
        monkeypatch.setattr(evaluation, "find_function", functions.__getitem__)
        observers = [SimpleNamespace(after_evaluate=note(f"observer {number}")) for number in range(3)]
        table = SimpleNamespace(small_sample_warning=note("warned", warning))

        def evaluate(label, writer, **options):
            note("evaluated")(label, writer, **options)
            if during is not None:
                during(writer)
            return VALUES, "top-1 50.00"

        class Evaluator(SimpleNamespace):
            __call__ = staticmethod(evaluate)

        run_log = SimpleNamespace(folder=tmp_path / "run", log_and_print=note("line"), event=note("event"))
        run = SimpleNamespace(
            config=config,
            task=task,
            model="model",
            run_log=run_log,
            datasets={"val": "samples"},
            eval_dataset=Samples(labeled, 3),
            callbacks=SimpleNamespace(
                notified_of_end=notified, start=note("started"), evaluated=note("callbacks evaluated")
            ),
            heartbeat=SimpleNamespace(at=beat),
            on_weights_loaded=note("weights loaded"),
            evaluator=Evaluator(
                loader=SimpleNamespace(sampler=SimpleNamespace(indices=lambda: [3, 5])),
                write_intervals=note("intervals written"),
                write_sample_table=note("table written"),
                build_event=lambda values: {**values, "groups": "by patient"},
                intervals={"top-1": 3},
                table=table if labeled else None,
            ),
        )
        return run, calls, observers

    return build


def loading(source, lines):
    """What returns source and lines of the loading of weights into the run's model."""
    return lambda run, model: (source, lines) if model is run.model else None


WEIGHTS = {"weights": "https://***@hub/w", "split": "val"}
NOTES = {**WEIGHTS, "notes": LOADED[1:2]}


def test_each_part_of_a_run_gets_what_it_needs_in_this_order(start, tmp_path):
    run, calls, observers = start("REPORT=True", warning="few samples")
    assert evaluate_only(run) is VALUES
    event = {**NOTES, **VALUES, "groups": "by patient"}
    assert calls == [
        ("log starts", run.config, run.run_log, run.task, run.datasets),
        (run.task, "model", [3, 5]),
        ("started", RunFacts(tmp_path / "run", run.config, trains=False)),
        *(("line", line) for line in LOADED),
        ("weights loaded",),
        ("in", "evaluating"),
        ("evaluated", "evaluation", None, {"observers": observers}),
        ("out of", "evaluating"),
        ("line", "the task's line"),
        ("intervals written", run.run_log, "eval_intervals.json", NOTES),
        ("event", "evaluation", event),
        ("callbacks evaluated", 0, 0, VALUES, {**VALUES, "groups": "by patient"}),
        ("warned", {"top-1": 3}, VALUES),
        ("line", "note: few samples"),
        *((f"observer {number}", {"of": WEIGHTS["weights"], "split": "val"}) for number in range(3)),
        ("line", "top-1 50.00"),
        ("table written", run.run_log, "eval_intervals.json", NOTES),
        ("report", run, observers[0], {"of": WEIGHTS["weights"], "split": "val"}),
        ("ended",),
    ]


@pytest.mark.parametrize(
    "words, options", [(["REPORT=False"], {}), ([], {"aspects": ()}), (["SAVE_PREDICTIONS=True"], {"labeled": False})]
)
def test_figures_are_recorded_of_labels_for_a_report_that_the_task_can_make(start, words, options):
    run, calls, observers = start(*words, **{"writer": ListedWriter(), "aspects": ["Predictable"], **options})
    evaluate_only(run)
    (evaluated,) = (call for call in calls if call[0] == "evaluated")
    assert evaluated[-1] == {"observers": observers[1:]}
    report = [call for call in calls if call[0] == "report"]
    assert [call[2:] for call in report] == ([] if words[:1] == ["REPORT=False"] else [(None, {**report[0][3]})])


def test_predictions_without_labels_are_saved_and_no_score_is_told(start, tmp_path):
    run, calls, _ = start(labeled=False, aspects=["Predictable"], writer=ListedWriter())
    assert evaluate_only(run) == {}
    folder = tmp_path / "run" / "predictions"
    assert [call for call in calls if call[0] == "writer"] == [("writer", folder, run.eval_dataset, False)]
    lines = [call[1] for call in calls if call[0] == "line"]
    assert lines[len(LOADED) :] == [
        f"no score: the 1,234 scans of val have no labels; their predictions are in {folder}"
    ]
    ((_, name, event),) = [call for call in calls if call[0] == "event"]
    assert event == {**NOTES, "groups": "by patient"} and folder.is_dir()
    assert not any(call[0] == "warned" for call in calls)


def test_predictions_of_this_ranks_samples_are_written_on_request_beside_earlier_ones(start, tmp_path):
    (tmp_path / "run" / "predictions").mkdir(parents=True)
    options = {"aspects": ["Predictable", "LogContributor"], "writer": ListedWriter()}
    run, calls, _ = start("SAVE_PREDICTIONS=True", during=lambda writer: writer.add(["a", "b"], [0, 1]), **options)
    assert evaluate_only(run) is VALUES
    lines = [call[1] for call in calls if call[0] == "line"]
    written = ['[3, [], "", [3, "a", 0]]', '[5, [], "", [5, "b", 1]]']
    assert lines[len(LOADED) :] == [*written, "the task's line", "top-1 50.00"]


@pytest.mark.parametrize("aspects, writer", [((), None), (["Predictable"], PredictionWriter())])
def test_predictions_that_a_task_cannot_write_are_refused_before_the_evaluation(start, tmp_path, aspects, writer):
    run, calls, _ = start("SAVE_PREDICTIONS=True", aspects=aspects, writer=writer)
    with pytest.raises(UserError) as refusal:
        evaluate_only(run)
    assert str(refusal.value) == (
        "SAVE_PREDICTIONS: task classification does not write predictions; remove SAVE_PREDICTIONS"
    )
    assert not (tmp_path / "run").exists() and not any(call[0] == "evaluated" for call in calls)


def test_weights_without_notes_and_those_of_an_export_have_their_own_facts(start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, calls, _ = start()
    monkeypatch.setattr(evaluation, "load_evaluated_weights", loading("w", ["weights w: loaded all"]))
    evaluate_only(run)
    assert [call[3] for call in calls if call[0] == "intervals written"] == [{"weights": "w", "split": "val"}]
    Path("net.onnx").touch()
    run, calls, _ = start("EXPORTED=net.onnx")
    evaluate_only(run)
    assert [call[2]["weights"] for call in calls if call[0] == "event"] == ["w", "net"]


def test_other_ranks_log_no_line_of_the_task_and_keep_no_table(start):
    run, calls, _ = start()
    run.evaluator.table = None
    with acting_as(1, 2):
        evaluate_only(run)
    assert [call[1] for call in calls if call[0] == "line"] == [*LOADED, "top-1 50.00"]


def test_a_file_that_an_observer_cannot_write_does_not_cost_the_score(start):
    run, calls, observers = start()

    def fail(facts):
        raise UserError("cannot write a.csv")

    observers[1].after_evaluate = fail
    with pytest.raises(UserError, match="a.csv"):
        evaluate_only(run)
    names = [call[0] for call in calls]
    assert names[-1] == "line" and calls[-1] == ("line", "top-1 50.00") and "event" in names


@pytest.mark.parametrize("number, expected", [(signal.SIGINT, signal.SIGINT), (None, signal.SIGTERM)])
def test_a_signal_that_code_ignored_ends_the_evaluation(start, own_handlers, number, expected):
    def stop(writer):
        raise StopRequested

    run, calls, _ = start(during=stop)
    signals.record_only()
    if number is not None:
        signal.raise_signal(number)
    with pytest.raises(signals.ProcessInterrupted) as stopped:
        evaluate_only(run)
    assert stopped.value.args == signals.ProcessInterrupted(expected).args
    assert not any(call[0] == "event" for call in calls)


NAMES = ClassNames(list("0123456789"), list("0123456789"), is_own=False)


class Watched:
    """A trainer of tiny weights, and what their loading hands on."""

    def __init__(self, tmp_path, monkeypatch, *words, labeled=True):
        self.given = {}
        trainer = small_runs.build(str(tmp_path / "run"), "-eval", *words, val_size=4)
        self.samples = SimpleNamespace(labeled=labeled, signature=dict)
        self.run = SimpleNamespace(
            config=trainer.config,
            task=trainer.task,
            model=trainer.model,
            eval_dataset=self.samples,
            folder=trainer.folder,
            run_log=trainer.run_log,
        )
        watched = self

        class Diff:
            def __init__(self, *arguments):
                watched.given["diff"] = arguments

            def settings(self):
                return ["settings"]

            def input(self):
                return ["input"]

            def files(self, *arguments):
                watched.given["files"] = arguments
                return ["files"]

        def compare_classes(diff, *arguments):
            self.given["classes"] = arguments
            return ["classes"]

        def find_class_names(*arguments):
            self.given["names"] = arguments
            return NAMES

        def load_weights(*arguments, **options):
            self.given["load"] = arguments, options
            self.report = load(*arguments, **options)
            self.report.outputs = self.outputs
            return self.report

        self.outputs, load = None, evaluation.load_weights
        for name, function in (("CheckpointDiff", Diff), ("compare_classes", compare_classes)):
            monkeypatch.setattr(evaluation, name, function)
        monkeypatch.setattr(evaluation, "load_weights", load_weights)
        monkeypatch.setattr(evaluation, "find_class_names", find_class_names)
        monkeypatch.setattr(evaluation, "compile_model", lambda *given: self.given.update(compiled=given))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    state = small_runs.build(str(folder / "run"), val_size=4).model.state_dict()
    paddle.save(state, str(folder / "weights.pdparams"))
    paddle.save({"student": state, "teacher": state, "other": state}, str(folder / "parts.pdparams"))
    paddle.save({**state, "more": state["head.bias"]}, str(folder / "more.pdparams"))
    return folder


def test_weights_of_others_are_loaded_by_class_names_and_compared(weights, tmp_path, monkeypatch):
    source = str(weights / "weights.pdparams")
    watched = Watched(tmp_path, monkeypatch, f"-pretrained={source}")
    run, watched.outputs = watched.run, ["zero", "one"]
    loaded = load_evaluated_weights(run, run.model)
    report, names = watched.report, watched.given["classes"][1]
    assert loaded == (source, [f"weights {source}: {report.summary()}", "settings", "input", "classes", "files"])
    assert watched.given["diff"] == ("evaluate", source, run.config, run.task)
    assert watched.given["names"] == (run.task, watched.samples, source)
    assert names == NAMES._replace(is_evaluated=True)
    options = {"strict": True, "allow_unused": False, "part": None, "class_names": names}
    assert watched.given["load"] == ((run.model, source), options)
    assert watched.given["classes"] == (watched.samples, names, report)
    assert watched.given["files"] == ("val", watched.samples)
    assert watched.given["compiled"] == (run.config, run.task, run.model)
    assert run.task.evaluated_classes == ["zero", "one"]
    assert (tmp_path / "run" / "eval_load_report.json").read_text() == report.json()


def test_classes_are_not_matched_without_labels(weights, tmp_path, monkeypatch):
    source = str(weights / "weights.pdparams")
    watched = Watched(tmp_path, monkeypatch, f"-pretrained={source}", labeled=False)
    before = watched.run.task.evaluated_classes
    load_evaluated_weights(watched.run, watched.run.model)
    assert watched.given["classes"][1] is None and watched.run.task.evaluated_classes is before


def test_part_and_allowed_changes_of_the_configuration_apply_to_weights(weights, tmp_path, monkeypatch):
    words = f"-pretrained={weights / 'parts.pdparams'}", "MODEL.PRETRAINED_PART=teacher"
    watched = Watched(tmp_path, monkeypatch, *words)
    load_evaluated_weights(watched.run, watched.run.model)
    assert watched.given["load"][1]["part"] == "teacher"
    more = f"-pretrained={weights / 'more.pdparams'}"
    watched = Watched(tmp_path, monkeypatch, more, "-allow_changes")
    load_evaluated_weights(watched.run, watched.run.model)
    watched = Watched(tmp_path, monkeypatch, more)
    with pytest.raises(UserError, match="more"):
        load_evaluated_weights(watched.run, watched.run.model)


def test_a_run_that_resumes_is_evaluated_at_its_checkpoint(weights, tmp_path, monkeypatch):
    watched = Watched(tmp_path, monkeypatch, "-resume=auto")
    with pytest.raises(UserError, match=f"^-resume=auto: no checkpoint in {watched.run.folder} to evaluate$"):
        load_evaluated_weights(watched.run, watched.run.model)
    given = []
    monkeypatch.setattr(store, "resolve", lambda *arguments: given.append(arguments) or weights / "weights.pdparams")
    source, _ = load_evaluated_weights(watched.run, watched.run.model)
    run = watched.run
    assert given == [("auto", run.folder, run.run_log.log_and_print)]
    assert str(source) == str(weights / "weights.pdparams")
