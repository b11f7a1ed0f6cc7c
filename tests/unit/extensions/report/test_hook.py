"""Which weights have the figures of a report, what they are told to be, and that an error costs a line."""

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.thread_ranks import ThreadRanks, acting_as
from support.trainings.report_runs import write_run

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks import Task
from paddlevit_dist.core.tasks.figures import FigureTable
from paddlevit_dist.core.tasks.metrics import Metrics
from paddlevit_dist.core.tasks.protocols import Reportable
from paddlevit_dist.extensions.report import hook, store

BEST = {"epoch": 3, "name": "score", "value": 0.25}


class Log:
    """Notes what is printed, and what is in the log alone."""

    writes = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.printed: list[str] = []
        self.logged: list[str] = []

    def log_and_print(self, line: str) -> None:
        self.printed.append(line)

    def log(self, line: str) -> None:
        self.logged.append(line)


class Precision:
    """Computes as it is told, and knows of which model."""

    facts = {"precision": "half"}

    def __init__(self) -> None:
        self.patched: list = []

    @contextlib.contextmanager
    def patch_forward(self, model):
        self.patched.append(model)
        yield
        self.patched.append("done")


class FiguresTask(Task, Reportable):
    def __init__(self, make) -> None:
        super().__init__(None)
        self.make = make

    def build_metrics(self):
        return Metrics()

    def figures(self, dataset, records, model):
        return self.make(dataset, records, model)


def evaluate(label, step):
    """Evaluate two samples, whose records are told if they are kept."""
    assert (label, type(step.metrics), step.keeps_records) == ("evaluation for the report", Metrics, True)
    yield {}, lambda: ["r4 again", "r2 again"]


def build_run(folder: Path, figures=None, evaluates: bool = False):
    """A run whose task makes these figures, if any."""
    config = SimpleNamespace(TASK="some", DATA=SimpleNamespace(DATASET="digits"), EVAL=evaluates, SAVE=str(folder))
    stages: list[str] = []
    evaluator = SimpleNamespace(
        samples=["a", "b", "c"],
        precision=Precision(),
        heartbeat=SimpleNamespace(at=stages.append),
        loader=SimpleNamespace(sampler=SimpleNamespace(indices=lambda: [4, 2])),
        batches=evaluate,
    )
    checkpointer = SimpleNamespace(best=BEST, folder=folder / "checkpoints")
    model = paddle.nn.Linear(2, 3)
    return SimpleNamespace(
        task=Task(None) if figures is None else FiguresTask(figures),
        config=config,
        evaluator=evaluator,
        model=model,
        run_log=Log(folder),
        checkpointer=checkpointer,
        ema=None,
        last_epoch=3,
        stages=stages,
    )


def gathered(records=(), problems=()):
    return SimpleNamespace(gather=lambda: (list(records), list(problems)))


@pytest.mark.parametrize(
    ("is_last", "has_figures", "collects"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_records_are_collected_of_the_last_evaluation_of_a_task_with_figures(tmp_path, is_last, has_figures, collects):
    run = build_run(tmp_path, list if has_figures else None)
    recorder = hook.ReportHook(run).before_evaluate(is_last)
    assert (recorder is not None) == collects
    if collects:
        assert (recorder.task, recorder.model, recorder.indices) == (run.task, run.model, [4, 2])


FACTS = {"of": "the best weights, of epoch 3", "score": 0.25}


@pytest.mark.parametrize(
    ("has_figures", "best", "last_epoch", "evaluates_last", "outcome"),
    [
        (True, BEST, 3, True, "last"),
        (True, BEST, 5, True, "again"),
        (True, BEST, 3, False, "again"),
        (True, None, 3, True, "none"),
        (False, BEST, 3, True, "none"),
    ],
)
@pytest.mark.parametrize("has_average", [True, False])
def test_figures_are_those_of_the_best_weights(
    tmp_path, has_figures, best, last_epoch, evaluates_last, outcome, has_average
):
    folder, seen = write_run(tmp_path / "run"), []

    def make(samples, records, model):
        seen.append((model.weight.numpy().flat[0], records))
        return []

    run = build_run(folder, make if has_figures else None)
    run.checkpointer.best, run.last_epoch = best, last_epoch
    run.model.weight.set_value(paddle.ones([2, 3]))

    @contextlib.contextmanager
    def average():
        run.model.weight.set_value(paddle.full([2, 3], 5.0))
        yield
        run.model.weight.set_value(paddle.ones([2, 3]))

    (folder / "checkpoints" / "best").mkdir(parents=True)
    of_best = {name: paddle.full_like(value, 7.0) for name, value in run.model.state_dict().items()}
    paddle.save(of_best, str(folder / "checkpoints" / "best" / "model.pdparams"))
    run.ema = SimpleNamespace(in_place=average) if has_average else None
    report = hook.ReportHook(run)
    recorder = report.before_evaluate(evaluates_last)
    if recorder is not None:
        recorder.after_batch({}, lambda: ["r4", "r2"])
    report.after_train()
    last = (5.0 if has_average else 1.0, [(2, "r2"), (4, "r4")])
    assert seen == {"none": [], "last": [last], "again": [(7.0, [(2, "r2 again"), (4, "r4 again")])]}[outcome]
    assert (run.model.weight.numpy() == 1.0).all()
    if seen:
        assert store.load(folder / store.TRAINING).about.items() >= FACTS.items()
    *told, page = run.run_log.printed
    assert told == ["evaluating the best weights (epoch 3) again for the report"] * (outcome == "again")
    assert page.startswith(f"report: {folder}/report.html (") and (folder / "report.html").is_file()


def test_weights_that_a_process_cannot_read_cost_the_figures(tmp_path):
    run = build_run(write_run(tmp_path / "run"), list)
    hook.ReportHook(run).after_train()
    note, page = run.run_log.printed
    best = tmp_path / "run" / "checkpoints" / "best"
    assert note == f"note: the report has no figures, since some process cannot read {best}"
    assert page.startswith("report: ")


def test_an_evaluation_has_figures_and_a_page(tmp_path):
    folder = write_run(tmp_path / "run")
    hook.write_evaluation_report(build_run(folder, lambda *_: [], evaluates=True), gathered(), {"a": 1})
    assert store.load(folder / store.EVALUATION).about["a"] == 1 and (folder / "report.html").is_file()


@pytest.mark.parametrize(("evaluates", "name"), [(True, store.EVALUATION), (False, store.TRAINING)])
@pytest.mark.parametrize("training", [True, False])
def test_figures_are_made_in_evaluation_mode_and_stored_with_what_they_are_of(tmp_path, evaluates, name, training):
    seen = []

    def make(samples, records, model):
        seen.append((samples, records, model, model.training, paddle.is_grad_enabled(), len(precision.patched)))
        return [FigureTable("t", ("a",), [(7,)]), "no figure", 5]

    run = build_run(tmp_path, make, evaluates)
    precision = run.evaluator.precision
    run.model.train() if training else run.model.eval()
    hook.ReportWriter(run).write_figures(gathered([(1, "x")]), {"of": "those weights"})
    assert seen == [(["a", "b", "c"], [(1, "x")], run.model, False, False, 1)]
    assert precision.patched == [run.model, "done"] and run.model.training == training
    stored = store.load(tmp_path / name)
    facts = {"task": "some", "data": "digits", "samples": 3, "precision": "half", "of": "those weights"}
    assert stored.about.pop("time") > 1.7e9 and stored.about == facts
    assert [figure["rows"] for figure in stored.figures] == [[[7]]]
    assert [line.partition(" was")[0] for line in run.run_log.printed] == ["note: figure 'str'", "note: figure 'int'"]
    assert run.stages == ["building the report's figures"] and len([*tmp_path.iterdir()]) == 1


def test_no_figures_are_stored_without_records_elsewhere_or_for_another_task(tmp_path):
    run = build_run(tmp_path, lambda *_: [FigureTable("t", ("a",), [(7,)])])
    hook.ReportWriter(run).write_figures(None, {})
    assert run.stages == []
    with acting_as(1, 2):
        hook.ReportWriter(run).write_figures(gathered(), {})
    other = build_run(tmp_path)
    hook.ReportWriter(other).write_figures(gathered(), {})
    assert (
        len(run.stages) == len(other.stages) == 1
        and other.run_log.printed == []
        and not [*tmp_path.iterdir()]
        and run.run_log.printed == []
    )


def test_errors_of_figures_are_told_once_with_their_traces(tmp_path):
    def fail(samples, records, model):
        raise errors[0]

    errors = [None]
    for errors[0], problems, printed, logged in (
        (UserError("too many"), (), ["note: the report has no figures: too many"], None),
        (ValueError("odd"), (), ["ValueError: odd"], "  Traceback (most recent call last):"),
        (None, ("Trace\n  of one\nE: 1\n", "Trace\nE: 2\n"), ["E: 1"], "  Trace"),
    ):
        run = build_run(tmp_path, fail)
        hook.ReportWriter(run).write_figures(gathered(problems=problems), {})
        if logged is not None:
            printed = [
                f"note: the report: its figures could not be built ({printed[0]}); the run is not affected, the "
                "traceback is in log.txt"
            ]
        assert run.run_log.printed == printed and [*run.run_log.logged[:1]] == [logged] * (logged is not None)
    assert run.run_log.logged == ["  Trace", "    of one", "  E: 1"]


def test_the_page_is_told_on_the_screen_after_training_and_in_the_log_after_an_evaluation(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run")
    page = folder / "report.html"
    for evaluates in (False, True):
        run = build_run(folder, evaluates=evaluates)
        hook.ReportWriter(run).write_page()
        (line,) = run.run_log.logged if evaluates else run.run_log.printed
        assert line.startswith(f"report: {page} (") and len(run.run_log.logged + run.run_log.printed) == 1
        assert 0 <= float(line.rpartition("(")[2].removesuffix(" s)")) < 60
        page.unlink()
    run.run_log.writes = False
    hook.ReportWriter(run).write_page()
    assert not page.exists()
    run = build_run(tmp_path)
    hook.ReportWriter(run).write_page()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    run.run_log.folder = folder
    hook.ReportWriter(run).write_page()
    first, second = run.run_log.printed
    assert first.startswith(f"note: no report was written: report: {tmp_path} does not contain a run")
    assert second.startswith("note: the report: it could not be written (ModuleNotFoundError: ") and run.run_log.logged


@pytest.mark.parametrize("files", [("all", "all"), ("all", "none"), ("none", "all"), ("all", "part")])
def test_weights_are_applied_where_all_processes_can_read_them_and_put_back(tmp_path, files):
    models = [paddle.nn.Linear(2, 3), paddle.nn.Linear(2, 3)]
    before = [{name: value.numpy().copy() for name, value in model.state_dict().items()} for model in models]
    changed = {name: paddle.to_tensor(value + 1) for name, value in before[0].items()}
    paddle.save(changed, str(tmp_path / "all.pdparams"))
    paddle.save({"weight": changed["weight"]}, str(tmp_path / "part.pdparams"))

    def apply(rank):
        with hook.apply_weights(models[rank], tmp_path / f"{files[rank]}.pdparams") as is_loaded:
            if files[rank] == "all":
                check(models[rank], changed)
            if rank:
                raise KeyError(is_loaded)
        return is_loaded

    def check(model, state):
        for name, value in model.state_dict().items():
            np.testing.assert_array_equal(value.numpy(), np.asarray(state[name]), strict=True)

    def apply_until_an_error(rank):
        try:
            return apply(rank)
        except KeyError as error:
            return error.args[0]

    assert ThreadRanks(2).run(apply_until_an_error) == [files == ("all", "all")] * 2
    for model, state in zip(models, before, strict=True):
        check(model, state)
