"""Which weights the figures of a training are of, and that nothing about them fails a run."""

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support.trainings import small_runs
from support.trainings.report_runs import Page
from support.trainings.runs import read_events

from paddlevit_dist.core.inference.evaluation import evaluate_only
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.figures import FigureTable
from paddlevit_dist.core.tasks.protocols import Predictable, Reportable
from paddlevit_dist.extensions.report import store
from paddlevit_dist.images.classification.task import Classification

RUN = ["-batch_size=32", "REPORT", "True", "SAVE_FREQ", "1"]


def build(output: Path, *arguments: str, task: Any = Classification) -> Any:
    return small_runs.build(str(output), *RUN, *arguments, task_class=task)


class Falling(Classification):
    """Its score falls from epoch to epoch, so that the first one is the best.

    It counts from the first update on: before that, a user's metrics are checked with a batch.
    """

    best_metric = ("score", True)
    evaluations = computed = 0

    def train_step(self, model: Any, batch: Any, step: Any) -> Any:
        if step.update == 0:
            self.evaluations = self.computed = 0
        return super().train_step(model, batch, step)

    def build_metrics(self) -> Any:
        metrics = super().build_metrics()
        compute = metrics.compute
        self.evaluations += 1

        def falling(state: Any) -> dict[str, float]:
            self.computed += 1
            return {**compute(state), "score": -float(self.evaluations)}

        metrics.compute = falling
        return metrics


def confusion(output: Path) -> int:
    figures = store.load(output / store.TRAINING).figures
    return next(figure["cells"] for figure in figures if figure["kind"] == "matrix")


@pytest.mark.parametrize("averaged", ["True", "False"], ids=["averaged weights", "plain weights"])
def test_figures_are_of_the_best_weights_and_the_model_keeps_its_own(tmp_path, capsys, averaged):
    arguments = ["-epochs=2", "TRAIN.MODEL_EMA", averaged, "TRAIN.MODEL_EMA_DECAY", "0.5", "TRAIN.BASE_LR", "0.01"]
    trainer = build(tmp_path / "run", *arguments, task=Falling)
    trainer.train()
    trained = {name: tensor.numpy() for name, tensor in trainer.model.state_dict().items()}
    said = capsys.readouterr().out
    assert "evaluating the best weights (epoch 1) again for the report" in said
    last = paddle.load(str(tmp_path / "run/checkpoints/last/model.pdparams"))
    for name, value in trained.items():
        np.testing.assert_array_equal(value, last[name].numpy())
    about = store.load(tmp_path / "run" / store.TRAINING).about
    assert about["of"] == "the best weights, of epoch 1"
    # The same weights, evaluated by themselves.
    other = build(tmp_path / "other", "-eval", f"-pretrained={tmp_path / 'run/checkpoints/best'}")
    evaluate_only(other)
    figures = store.load(tmp_path / "other" / store.EVALUATION).figures
    alone = next(figure["cells"] for figure in figures if figure["kind"] == "matrix")
    assert alone == confusion(tmp_path / "run") and sum(alone[2::3]) == 64
    evaluated = 4 if averaged == "True" else 2
    assert trainer.task.computed == evaluated  # not again for the report


def test_the_last_evaluation_serves_where_it_is_the_best(tmp_path, capsys):
    trainer = build(tmp_path, "-epochs=1")
    values = trainer.train()
    said = capsys.readouterr().out.splitlines()
    assert not any("again for the report" in line for line in said) and said[-2].startswith(
        f"report: {tmp_path}/report.html"
    )
    cells = np.reshape(confusion(tmp_path), (-1, 3))
    assert sum(count for row, column, count in cells if row == column) == values["top-1 count"]
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "What the model looks at" in page.text and len(page.named("img")) >= 20
    assert [event["kind"] for event in read_events(tmp_path)][-1] == "evaluation"


class Broken(Classification, Reportable):
    def figures(self, samples: Any, records: Any, model: Any) -> Any:
        raise ZeroDivisionError("in a task's own figures")


class BrokenRecords(Classification):
    def eval_step(self, model: Any, batch: Any, step: Any) -> Any:
        super().eval_step(model, batch, step)
        return (lambda: 1 / 0) if step.keeps_records else None


class TooFew(Classification):
    def eval_step(self, model: Any, batch: Any, step: Any) -> Any:
        super().eval_step(model, batch, step)
        return (lambda: [b""]) if step.keeps_records else None


@pytest.mark.parametrize("task", [Broken, BrokenRecords, TooFew])
def test_a_failure_costs_the_figures_and_not_the_run(tmp_path, capsys, task):
    values = build(tmp_path, "-epochs=1", task=task).train()
    said = capsys.readouterr().out.splitlines()
    notes = [line for line in said if line.startswith("note: the report: ")]
    assert len(notes) == 1 and "the run is not affected" in notes[0] and "top-1" in values
    assert "Traceback" in (tmp_path / "log.txt").read_text()
    assert "has no figures" in Page((tmp_path / "report.html").read_text(encoding="utf-8")).text


class FailingAgain(Falling):
    """Its third evaluation, of the best weights for the report, fails."""

    def eval_step(self, model: Any, batch: Any, step: Any) -> Any:
        if self.evaluations == 3:
            raise MemoryError("of the GPU")
        return super().eval_step(model, batch, step)


def test_a_training_ends_well_where_its_best_weights_cannot_be_evaluated_again(tmp_path, capsys):
    trainer = build(tmp_path, "-epochs=2", task=FailingAgain)
    values = trainer.train()
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: the report: ")]
    assert len(notes) == 1 and "MemoryError: of the GPU" in notes[0] and values["score"] == -2
    assert trainer.model.training


class WithoutRecords(Classification):
    """Its ``eval_step`` returns no records."""

    def eval_step(self, model: Any, batch: Any, step: Any) -> None:
        super().eval_step(model, batch, step)


def test_a_task_whose_evaluation_returns_no_records_is_told(tmp_path, capsys):
    values = build(tmp_path, "-epochs=1", task=WithoutRecords).train()
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: the report: ")]
    assert len(notes) == 1 and "eval_step returned no records" in notes[0] and "top-1" in values


class Plain(Classification, Reportable):
    """Keeps the predictions of samples whose label is not 0."""

    def eval_step(self, model: Any, batch: Any, step: Any) -> Any:
        super().eval_step(model, batch, step)
        predictions = get_aspect(self, Predictable).predict_step(model, batch)
        kept = [int(p.argmax()) if label else None for p, label in zip(predictions, batch["labels"].tolist())]
        return lambda: kept

    def figures(self, samples: Any, records: Any, model: Any) -> Any:
        return [FigureTable("kept", ("index", "class"), records)]


def test_a_sample_without_a_record_is_left_out(tmp_path):
    trainer = build(tmp_path, "-epochs=1", task=Plain)
    trainer.train()
    (table,) = store.load(tmp_path / store.TRAINING).figures
    labels = [trainer.datasets["val"].sample(index, np.random.default_rng(0))[1] for index in range(64)]
    assert [index for index, _ in table["rows"]] == [index for index, label in enumerate(labels) if label]


def test_a_report_that_is_switched_off_leaves_nothing(tmp_path):
    build(tmp_path, "-epochs=1", "REPORT", "False").train()
    assert not {"report.html", store.TRAINING} & {path.name for path in tmp_path.iterdir()}


def test_an_evaluation_writes_its_score_before_anything_of_the_report(tmp_path, monkeypatch):
    build(tmp_path / "run", "-epochs=1", "REPORT", "False").train()
    evaluated = build(tmp_path / "scored", "-eval", f"-pretrained={tmp_path / 'run'}")
    existing: dict[str, set[str]] = {}

    def log(text: str) -> None:
        existing[text.partition(" ")[0]] = {path.name for path in (tmp_path / "scored").iterdir()}

    monkeypatch.setattr(evaluated.run_log, "log_and_print", log)
    monkeypatch.setattr(evaluated.run_log, "log", log)
    evaluate_only(evaluated)
    written = {"report.html", store.EVALUATION, "eval_scored_samples.npz"}
    assert list(existing)[-2:] == ["top-1", "report:"]
    assert not existing["top-1"] & written and "eval_intervals.json" in existing["top-1"]
    assert existing["report:"] >= written
