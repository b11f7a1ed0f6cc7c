"""What an own kind of scores does wrong is told before the first update, and what is undefined is no mistake."""

import re
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.refusals import refusal_of
from support.trainings import small_runs

from paddlevit_dist import UserError
from paddlevit_dist.core.engine.metrics_check import check_values, find_problem, require_value
from paddlevit_dist.core.metrics import ClassificationMetrics, ClassificationScores
from paddlevit_dist.core.registry.register import register_score_kind
from paddlevit_dist.core.runtime.metrics_file import (
    EVENT_FIELDS,
    find_best_evaluation,
    get_interval,
    get_values,
    recorded_events,
)
from paddlevit_dist.core.tasks.metrics import Metrics
from paddlevit_dist.images import Classification

TABLE = "which its table lacks: it has labels, places, losses"


class OwnMetrics(ClassificationMetrics):
    """Metrics of the kind that a test registers."""


class OwnTask(Classification):
    best_metric = ("top-1", True)

    def build_metrics(self):
        return OwnMetrics(self.num_classes, kind="tried")


def build(tmp_path, *words: str, best: str = "top-1", **methods):
    register_score_kind("tried", type("Tried", (ClassificationScores,), methods), replace=True)
    task_class = type("Own", (OwnTask,), {"best_metric": (best, True)})
    return small_runs.build(str(tmp_path), "-epochs=1", "VALIDATE_FREQ", "1", *words, task_class=task_class)


def with_score(name: str, value: float):
    def compute(self, arrays, weights):
        return {**ClassificationScores.compute(self, arrays, weights), name: np.full(len(weights), value)}

    return compute


def compute_lacking(self, arrays, weights):
    return {"top-1": weights @ arrays["depths"]}


def misspelled(self, arrays):
    return arrays["labels"].tolists()


@pytest.mark.parametrize(
    "methods, told",
    [
        ({"compute": compute_lacking}, f"^compute of Tried reads 'depths', {TABLE}"),
        ({"columns": lambda self, arrays: {"depth": arrays["depths"]}}, f"^columns of Tried reads 'depths', {TABLE}"),
        (
            {"columns": lambda self, arrays: {"first": [1]}},
            r"^columns of Tried: 'first' has 1 rows for \d+ samples: ret",
        ),
        (
            {"columns": misspelled},
            r"^columns of Tried: AttributeError: .*'tolists'.* \(test_metrics_check.py, line \d+\)$",
        ),
        (
            {"summary": lambda self, values, shown: values["tpo-1"]},
            "^summary of Tried: compute does not return 'tpo-1'$",
        ),
        ({"summary": lambda self, values, shown: None}, "^summary of Tried returns None, expected the line of an eval"),
        ({"counts": lambda self, arrays: {"percent": 3}}, "^scores of Tried: 'percent' is a field .* 'mean percent'$"),
    ],
)
def test_a_mistake_of_a_kind_is_told_before_the_first_update(tmp_path, methods, told):
    run = build(tmp_path, **methods)
    with pytest.raises(UserError, match=told):
        run.train()
    assert run.schedule.update == 0


class CountedMetrics(OwnMetrics):
    """Refuses to compute scores of a part of a split, as those of boxes do."""

    def compute(self, state):
        values = super().compute(state)
        if self.is_complete and len(self.per_sample()[0]) != 64:
            raise RuntimeError("some samples are missing")
        return values


def test_metrics_that_refuse_a_part_of_a_split_are_tried_with_its_first_samples(tmp_path):
    run = build(tmp_path, "-batch_size=16", best="top1")
    run.task.build_metrics = lambda: CountedMetrics(run.task.num_classes, kind="tried")
    with pytest.raises(UserError, match="^best_metric of Own is 'top1', which compute does not return; it returns"):
        run.train()
    assert run.schedule.update == 0


@pytest.mark.parametrize(
    "values, told",
    [
        ({"a": 1.0, "b": "1.0"}, "^compute of Given: 'b' is '1.0', expected a number$"),
        ({"a": 1j}, "^compute of Given: 'a' is 1j, expected a number$"),
        (None, "^compute of Given returns None, expected values by name$"),
    ],
)
def test_values_that_are_no_numbers_are_refused(values, told):
    metrics = type("Given", (Metrics,), {"compute": lambda self, state: values})()
    with pytest.raises(UserError, match=told):
        check_values(metrics, values)
    assert re.search(told, find_problem(OwnTask, metrics, {}))


def test_a_loss_that_no_evaluation_computes_names_the_cross_entropy():
    task = SimpleNamespace(best_metric=("loss", False))
    refusal = refusal_of(require_value, task, {"top-1": 50.0, "cross_entropy": 1.0})
    assert refusal.startswith("best_metric of SimpleNamespace is 'loss'") and "('cross_entropy', False)" in refusal
    require_value(task, {"loss": 2.0, "cross_entropy": 1.0})


def test_numbers_of_any_kind_none_and_nan_are_values():
    values = {"a": 1, "b": np.float32(2), "c": paddle.to_tensor(3.0), "d": None, "e": float("nan"), "f": float("inf")}
    assert check_values(Metrics(), values) == {"d", "e"}


def test_a_kind_of_ones_own_is_tried_by_our_tasks_too(tmp_path):
    register_score_kind("tried", type("Tried", (ClassificationScores,), {"compute": with_score("percent", 1.0)}), True)

    def build_metrics(task):
        return ClassificationMetrics(task.num_classes, kind="tried")

    own = {"build_metrics": build_metrics, "__module__": Classification.__module__}
    run = small_runs.build(str(tmp_path), "-epochs=1", task_class=type("Ours", (Classification,), own))
    with pytest.raises(UserError, match="^scores of Tried: 'percent' is a field"):
        run.train()
    assert run.schedule.update == 0


def test_a_score_that_is_never_defined_ends_no_run_and_the_last_checkpoint_is_the_best(tmp_path):
    def summary(self, values, format_interval):
        return f"sureness {values['sureness']:.1f}"

    words = "-epochs=3", "TRAIN.PATIENCE", "1", "TRAIN.WARMUP_EPOCHS", "0"
    run = build(tmp_path, *words, best="sureness", compute=with_score("sureness", np.nan), summary=summary)
    values = run.train()
    assert "sureness" not in values and "top-1" in values
    assert run.checkpointer.best == {"name": "sureness", "value": None, "epoch": 3, "line": "sureness nan"}
    assert (tmp_path / "checkpoints" / "best").resolve() == (tmp_path / "checkpoints" / "last").resolve()
    log = (tmp_path / "log.txt").read_text()
    assert log.count("note: sureness is not defined in epoch") == 3
    assert "sureness nan (last and best, epoch 3, as sureness is not defined in any evaluation)" in log


@pytest.mark.parametrize("unsaved", [("confidences",), ()])
def test_what_compute_reads_is_in_the_files_for_compare(tmp_path, unsaved):
    def compute(self, arrays, weights):
        values = ClassificationScores.compute(self, arrays, weights)
        return {**values, "sureness": weights @ arrays["confidences"] / weights.sum(axis=1)}

    run = build(tmp_path, best="sureness", compute=compute, unsaved=unsaved)
    if unsaved:
        with pytest.raises(UserError, match="^compute of Tried reads 'confidences', which files for compare do not"):
            run.train()
    else:
        values, (file,) = run.train(), tmp_path.glob("*.npz")
        with np.load(file) as saved:
            assert values["sureness"] == pytest.approx(saved["confidences"].mean(), rel=1e-6)


def test_a_score_may_have_the_name_of_a_field(tmp_path):
    names = [*EVENT_FIELDS, "accuracy", "recall", "loss", "memory", "images_per_second"]

    def compute(self, arrays, weights):
        top_1 = ClassificationScores.compute(self, arrays, weights)["top-1"]
        return {name: top_1 + place for place, name in enumerate(names)}

    def summary(self, values, format_interval):
        return f"precision {values['precision']:.2f}"

    for words in (["-stop_after_epoch=1"], ["-resume=auto"]):
        run = build(
            tmp_path, "-epochs=2", *words, "TRAIN.PATIENCE", "9", best="precision", compute=compute, summary=summary
        )
        values = run.train()
    best = find_best_evaluation(recorded_events(tmp_path), None)
    assert best["kind"] == "evaluation" and best["epoch"] in (1, 2) and best["best"] == "precision"
    *_, last = (event for event in recorded_events(tmp_path) if event["kind"] == "evaluation")
    assert last["epoch"] == 2 and get_values(last).items() >= {name: values[name] for name in names}.items()
    assert get_interval(last, "precision")["percent"] == 95


def test_the_fields_of_events_are_those_that_runs_write(tmp_path):
    import json

    run = build(tmp_path)
    values = run.train()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    measured = {*values, "loss"}
    written = {name for line in lines if line["kind"] in ("training", "epoch", "evaluation") for name in line}
    assert written - measured <= EVENT_FIELDS and {"learning_rate", "best", "interval"} <= written
