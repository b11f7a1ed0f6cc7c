"""Which weights have the figures of a report, what they are told to be, and that an error costs a line."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.report import hook, store
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


def build_run(folder: Path, evaluates: bool = False):
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
        task="the task",
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


def make_reportable(monkeypatch, figures=None) -> None:
    """The task is reportable with these figures, or not."""
    reportable = None if figures is None else SimpleNamespace(figures=figures)
    for name, value in (("has_aspect", reportable is not None), ("get_aspect", reportable)):
        monkeypatch.setattr(
            hook, name, lambda task, kind, value=value: value if (task, kind) == ("the task", Reportable) else 1 / 0
        )


@pytest.mark.parametrize(
    ("is_last", "has_figures", "collects"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_records_are_collected_of_the_last_evaluation_of_a_task_with_figures(
    tmp_path, monkeypatch, is_last, has_figures, collects
):
    make_reportable(monkeypatch, list if has_figures else None)
    run = build_run(tmp_path)
    recorder = hook.ReportHook(run).before_evaluate(is_last)
    assert (recorder is not None) == collects
    if collects:
        assert (recorder.task, recorder.model, recorder.indices) == ("the task", run.model, [4, 2])


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
    make_reportable(monkeypatch, list if has_figures else None)
    run = build_run(tmp_path)
    run.checkpointer.best, run.last_epoch = best, last_epoch

    @contextlib.contextmanager
    def average():
        written.append("average")
        yield
        written.append("back")

    @contextlib.contextmanager
    def load(model, checkpoint):
        assert (model, checkpoint) == (run.model, tmp_path / "checkpoints" / "best")
        written.append("best")
        yield True

    run.ema = SimpleNamespace(in_place=average) if has_average else None
    monkeypatch.setattr(hook, "apply_weights", load)
    monkeypatch.setattr(hook.FigureRecorder, "evaluate", lambda self, evaluator: written.append(evaluator))
    report = hook.ReportHook(run)
    report.before_evaluate(evaluates_last)
    report.after_train()
    figures = (hook.FigureRecorder, FACTS)
    assert (
        written
        == {
            "none": ["page"],
            "last": ["average", figures, "back", "page"] if has_average else [figures, "page"],
            "again": ["best", run.evaluator, figures, "page"],
        }[outcome]
    )
    told = ["evaluating the best weights (epoch 3) again for the report"]
    assert run.run_log.printed == told * (outcome == "again")


def test_weights_that_a_process_cannot_read_cost_the_figures(tmp_path, monkeypatch, written):
    make_reportable(monkeypatch, list)
    run = build_run(tmp_path)
    monkeypatch.setattr(hook, "apply_weights", lambda *_: contextlib.nullcontext(False))
    hook.ReportHook(run).after_train()
    assert written == ["page"] and run.run_log.printed == [
        f"note: the report has no figures, since some process cannot read {tmp_path / 'checkpoints' / 'best'}"
    ]


def test_an_evaluation_has_figures_and_a_page(tmp_path, written):
    hook.write_evaluation_report(build_run(tmp_path), None, {"a": 1})
    assert written == [(type(None), {"a": 1}), "page"]


@pytest.mark.parametrize(("evaluates", "name"), [(True, store.EVALUATION), (False, store.TRAINING)])
@pytest.mark.parametrize("training", [True, False])
def test_figures_are_made_in_evaluation_mode_and_stored_with_what_they_are_of(
    tmp_path, monkeypatch, evaluates, name, training
):
    seen = []

    def make(samples, records, model):
        seen.append((samples, records, model, model.training, paddle.is_grad_enabled(), len(precision.patched)))
        return [FigureTable("t", ("a",), [(7,)]), "no figure", 5]

    make_reportable(monkeypatch, make)
    run = build_run(tmp_path, evaluates)
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


def test_no_figures_are_stored_without_records_elsewhere_or_for_another_task(tmp_path, monkeypatch):
    make_reportable(monkeypatch, lambda *_: [FigureTable("t", ("a",), [(7,)])])
    run = build_run(tmp_path)
    hook.ReportWriter(run).write_figures(None, {})
    assert run.stages == []
    with monkeypatch.context() as patch:
        patch.setattr(hook, "is_main", lambda: False)
        hook.ReportWriter(run).write_figures(gathered(), {})
    make_reportable(monkeypatch)
    hook.ReportWriter(run).write_figures(gathered(), {})
    assert len(run.stages) == 2 and not [*tmp_path.iterdir()] and run.run_log.printed == []


def test_errors_of_figures_are_told_once_with_their_traces(tmp_path, monkeypatch):
    def fail(samples, records, model):
        raise errors[0]

    errors = [None]
    make_reportable(monkeypatch, fail)
    for errors[0], problems, printed, logged in (
        (UserError("too many"), (), ["note: the report has no figures: too many"], None),
        (ValueError("odd"), (), ["ValueError: odd"], "  Traceback (most recent call last):"),
        (None, ("Trace\n  of one\nE: 1\n", "Trace\nE: 2\n"), ["E: 1"], "  Trace"),
    ):
        run = build_run(tmp_path)
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
        run = build_run(tmp_path, evaluates)
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


def test_weights_are_applied_where_all_processes_can_read_them_and_put_back(tmp_path, monkeypatch):
    def load(model, weights, **options):
        calls.append((weights, options))
        if not readable:
            raise OSError
        for tensor in model.state_dict().values():
            tensor.set_value(tensor + 1)

    calls, others = [], [True]
    monkeypatch.setattr(hook, "load_weights", load)
    monkeypatch.setattr(hook, "evaluated_weights", lambda checkpoint: f"weights of {checkpoint}")
    monkeypatch.setattr(hook, "all_gather", lambda mine: [mine, *others])
    model = paddle.nn.Linear(2, 3)
    before = [tensor.numpy().copy() for tensor in model.state_dict().values()]
    for readable, others[0], expected in ((True, True, True), (True, False, False), (False, True, False)):
        with hook.apply_weights(model, tmp_path) as is_loaded:
            assert is_loaded is expected
            changes = [tensor.numpy() - value for tensor, value in zip(model.state_dict().values(), before)]
            assert all((change != 0).all() == readable for change in changes)
        for tensor, value in zip(model.state_dict().values(), before):
            np.testing.assert_array_equal(tensor.numpy(), value, strict=True)
    assert calls == [(f"weights of {tmp_path}", {"strict": True})] * 3
    with contextlib.suppress(KeyError), hook.apply_weights(model, tmp_path):
        raise KeyError
    np.testing.assert_array_equal(next(iter(model.state_dict().values())).numpy(), before[0], strict=True)
