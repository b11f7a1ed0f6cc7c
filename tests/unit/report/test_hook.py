"""Which weights have the figures of a report, what they are told to be, and that an error costs a line."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.thread_ranks import ThreadRanks, acting_as

from paddlevit_dist import UserError
from paddlevit_dist.report import hook, store
from paddlevit_dist.tasks import Task
from paddlevit_dist.tasks.figures import FigureTable
from paddlevit_dist.tasks.protocols import Reportable

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

    def figures(self, dataset, records, model):
        return self.make(dataset, records, model)


def build_run(folder: Path, figures=None, evaluates: bool = False):
    """A run whose task makes these figures, if any."""
    config = SimpleNamespace(TASK="some", DATA=SimpleNamespace(DATASET="digits"), EVAL=evaluates, SAVE=str(folder))
    stages: list[str] = []
    evaluator = SimpleNamespace(
        samples=["a", "b", "c"],
        precision=Precision(),
        heartbeat=SimpleNamespace(at=stages.append),
        loader=SimpleNamespace(sampler=SimpleNamespace(indices=lambda: [4, 2])),
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


@pytest.fixture
def written(monkeypatch) -> list:
    """Notes what reports are asked to write, and whose weights there are."""
    calls = []
    monkeypatch.setattr(
        hook.ReportWriter, "write_figures", lambda self, recorder, facts: calls.append((type(recorder), facts))
    )
    monkeypatch.setattr(hook.ReportWriter, "write_page", lambda self: calls.append("page"))
    return calls


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
    tmp_path, monkeypatch, written, has_figures, best, last_epoch, evaluates_last, outcome, has_average
):
    run = build_run(tmp_path, list if has_figures else None)
    run.checkpointer.best, run.last_epoch = best, last_epoch

    @contextlib.contextmanager
    def average():
        written.append("average")
        yield
        written.append("back")

    def note_weights(recorder, evaluator):
        assert evaluator is run.evaluator and (run.model.weight.numpy() == 7.0).all()
        written.append("best")

    (tmp_path / "checkpoints" / "best").mkdir(parents=True)
    of_best = {name: paddle.full_like(value, 7.0) for name, value in run.model.state_dict().items()}
    paddle.save(of_best, str(tmp_path / "checkpoints" / "best" / "model.pdparams"))
    run.ema = SimpleNamespace(in_place=average) if has_average else None
    monkeypatch.setattr(hook.FigureRecorder, "evaluate", note_weights)
    report = hook.ReportHook(run)
    report.before_evaluate(evaluates_last)
    report.after_train()
    figures = (hook.FigureRecorder, FACTS)
    assert (
        written
        == {
            "none": ["page"],
            "last": ["average", figures, "back", "page"] if has_average else [figures, "page"],
            "again": ["best", figures, "page"],
        }[outcome]
    )
    told = ["evaluating the best weights (epoch 3) again for the report"]
    assert run.run_log.printed == told * (outcome == "again")


def test_weights_that_a_process_cannot_read_cost_the_figures(tmp_path, written):
    run = build_run(tmp_path, list)
    hook.ReportHook(run).after_train()
    assert written == ["page"] and run.run_log.printed == [
        f"note: the report has no figures, since some process cannot read {tmp_path / 'checkpoints' / 'best'}"
    ]


def test_an_evaluation_has_figures_and_a_page(tmp_path, written):
    hook.write_evaluation_report(build_run(tmp_path), None, {"a": 1})
    assert written == [(type(None), {"a": 1}), "page"]


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


def fail_to_write(error):
    def write(folders, target):
        raise error

    return write


def test_the_page_is_told_on_the_screen_after_training_and_in_the_log_after_an_evaluation(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(hook, "write_page", lambda *words: calls.append(words) or "page.html")
    for evaluates in (False, True):
        run = build_run(tmp_path, evaluates=evaluates)
        hook.ReportWriter(run).write_page()
        (line,) = run.run_log.logged if evaluates else run.run_log.printed
        assert line.startswith("report: page.html (") and len(run.run_log.logged + run.run_log.printed) == 1
        assert 0 <= float(line.rpartition("(")[2].removesuffix(" s)")) < 60
    assert calls == [([tmp_path], tmp_path / "report.html")] * 2
    run.run_log.writes = False
    hook.ReportWriter(run).write_page()
    assert len(calls) == 2
    run.run_log.writes = True
    monkeypatch.setattr(hook, "write_page", fail_to_write(UserError("no space")))
    hook.ReportWriter(run).write_page()
    monkeypatch.setattr(hook, "write_page", fail_to_write(ZeroDivisionError("by zero")))
    hook.ReportWriter(run).write_page()
    first, second = run.run_log.printed
    assert first == "note: no report was written: no space"
    assert second.startswith("note: the report: it could not be written (ZeroDivisionError: by zero); the run is not ")


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
