"""The line, the event and the files of an evaluation: values, facts and intervals, each once and in order."""

import json
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from support.registrations import forgotten
from support.trainings import small_runs

from paddlevit_dist import Manifest, UserError, register_feature
from paddlevit_dist.core.distributed import StopRequested
from paddlevit_dist.core.engine import evaluation
from paddlevit_dist.core.engine.evaluation import Evaluator
from paddlevit_dist.core.intervals import ConfidenceInterval
from paddlevit_dist.core.metrics import ClassificationMetrics, ClassificationScores
from paddlevit_dist.core.metrics.confidence import IntervalConfig, PerSampleResults
from paddlevit_dist.core.registry.register import register_score_kind
from paddlevit_dist.core.runtime import signals
from paddlevit_dist.core.tasks.metrics import PerSampleMetrics
from paddlevit_dist.core.tasks.sample_groups import SampleGroups
from paddlevit_dist.images import Classification


class Means(PerSampleMetrics):
    """The mean of each of two columns, and their number, which is not computed for chosen samples."""

    def per_sample(self):
        return []

    def bootstrap_values(self, table, weights):
        return {name: (weights * column).sum(1) / weights.sum(1) for name, column in zip(("b", "a", "hidden"), table)}

    def summary(self, values):
        shown = " ".join(f"{name} {values[name]:g}{self.format_interval(name, 1)}" for name in ("a", "b"))
        return f"{shown} of {values['number']:g}" if "number" in values else shown


GROUPS = SampleGroups("video", np.array(list("xyyzx")), "videos.csv")
INTERVALS = {
    "b": ConfidenceInterval(2.0, 1.0, 3.0),
    "hidden": ConfidenceInterval(1.0, 1.0, 1.0),
    "a": ConfidenceInterval(1.0, 0.5, 1.5),
}
VALUES = {"b": 2.0, "a": 1.0, "number": 5.0}
FACTS = {"precision": "float16", "without": "without 3 images"}


def evaluator_of(intervals=INTERVALS, groups=GROUPS, **attributes):
    evaluator = Evaluator.__new__(Evaluator)
    evaluator.task = SimpleNamespace(best_metric=("a", True))
    evaluator.confidence, evaluator.facts = IntervalConfig(90, 50), dict(FACTS)
    evaluator.values, evaluator.intervals, evaluator.groups = dict(VALUES), intervals, groups
    vars(evaluator).update(attributes)
    return evaluator


def test_an_event_has_facts_values_and_intervals_of_the_main_value_first():
    event = evaluator_of().build_event(VALUES)
    interval = {"percent": 90, "a": [0.5, 1.5], "b": [1.0, 3.0]}
    assert event == {"groups": "by 3 groups (video)", **FACTS, **VALUES, "interval": interval}
    assert list(event)[0] == "groups" and list(event["interval"]) == ["percent", "a", "b"]
    assert evaluator_of(intervals={}).build_event(VALUES) == {**FACTS, **VALUES}
    assert evaluator_of(groups=None).build_event(VALUES) == {**FACTS, **VALUES, "interval": interval}


def test_a_line_ends_with_the_facts_in_parentheses():
    line = evaluation.format_line(Means(), VALUES, {"groups": "by 3 groups (video)", **FACTS})
    assert line == "a 1 b 2 of 5 by 3 groups (video) (float16) (without 3 images)"
    assert evaluation.format_line(Means(), VALUES, {}) == "a 1 b 2 of 5"


def test_some_samples_are_scored_as_if_they_were_all():
    rng = np.random.default_rng(5)
    columns = [rng.normal(size=5) for _ in range(3)]
    table = PerSampleResults(Means(), np.arange(5) * 2, columns, GROUPS)
    part = table.without([2, 8])
    event, line = evaluator_of().scored(part, {"part": "clean"})
    rows = [0, 2, 3]
    means = {name: column[rows].mean() for name, column in zip(("b", "a"), columns)}
    assert {name: event[name] for name in means} == pytest.approx(means) and "hidden" not in event
    assert list(event)[:4] == ["groups", "precision", "without", "part"] and event["groups"] == "by 3 groups (video)"
    assert set(event["interval"]) == {"percent", "a", "b"} and event["interval"]["percent"] == 90
    low, high = event["interval"]["a"]
    assert low < event["a"] < high and f"a {means['a']:g} [{low:.1f}, {high:.1f}]" in line
    assert line.endswith(" by 3 groups (video) (float16) (without 3 images) (clean)")


def test_files_are_written_if_there_are_intervals(tmp_path):
    written, calls = [], []
    log = SimpleNamespace(file=lambda *words: written.append(words), writes=True, folder=tmp_path)
    evaluator_of().write_intervals(log, "intervals.json", {"epoch": 3, "precision": "other"})
    ((name, text),) = written
    content = json.loads(text)
    assert name == "intervals.json" and set(content.pop("values")) == {"a", "b", "hidden"}
    groups = {"by": "video", "number": 3, "source": "videos.csv"}
    assert content == {"epoch": 3, **FACTS, "groups": groups, "percent": 90, "resamples": 50}
    evaluator_of(groups=None).write_intervals(log, "x", {})
    assert "groups" not in json.loads(written[1][1])
    evaluator_of(intervals={}).write_intervals(log, "x", {})
    assert len(written) == 2
    evaluator = evaluator_of(table="table")
    with forgotten():
        register_feature(Manifest("acme", functions={"write_evaluated": lambda *words: calls.append(words)}))
        evaluator.write_sample_table(log, "name", {"epoch": 3})
        assert calls == [(tmp_path / "name", evaluator, {"epoch": 3})]
        for other in (evaluator_of(table=None), evaluator_of(intervals={}, table="table")):
            other.write_sample_table(log, "name", {})
        log.writes = False
        evaluator.write_sample_table(log, "name", {})
        log.writes = True
        register_feature(Manifest("without", functions={"write_evaluated": None}))
        evaluator.write_sample_table(log, "name", {})
    assert len(calls) == 1


def test_an_evaluation_ends_after_the_batch_in_which_it_is_asked_to(own_handlers):
    signals.record_only()
    places: list[str] = []
    heartbeat = SimpleNamespace(at=places.append)
    evaluator = evaluator_of(loader=["a", "b", "c"], model="model", heartbeat=heartbeat)
    evaluator.task.eval_step = lambda *given: given
    batches = evaluator.batches("evaluation 3", "step")
    assert [next(batches) for _ in range(2)] == [(batch, ("model", batch, "step")) for batch in "ab"]
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(StopRequested):
        next(batches)
    assert places == ["in the evaluation 3", *(f"in the evaluation 3, {n} of 3 batches done" for n in (1, 2))]


class Missing(ClassificationMetrics):
    """Computes what it is told, and shows a value by its name."""

    computed = shown = "top-1"

    def compute(self, state):
        return {self.computed: super().compute(state)["top-1"], "loss": 1.0}

    def summary(self, values):
        return f"{values[self.shown]:.2f}"


def make_task(best: str, **attributes: str) -> type:
    metrics = type("Missing", (Missing,), attributes)
    return type(
        "Own",
        (Classification,),
        {"best_metric": (best, True), "build_metrics": lambda task: metrics(task.num_classes), "__module__": "own"},
    )


@pytest.mark.parametrize(
    "best, attributes, told",
    [
        (
            "worst clas",
            {"computed": "worst class", "shown": "loss"},
            "Own is 'worst clas', .*; it returns worst class, loss",
        ),
        ("top-1", {"shown": "AP"}, "summary of Missing: compute does not return 'AP'"),
    ],
)
def test_names_that_a_users_metrics_lack_are_refused_before_the_first_update(tmp_path, best, attributes, told):
    run = small_runs.build(str(tmp_path), "-epochs=1", "VALIDATE_FREQ", "1", task_class=make_task(best, **attributes))
    with pytest.raises(UserError, match=told):
        run.train()
    assert run.schedule.update == 0 and not (tmp_path / "checkpoints").exists()


def test_a_score_of_a_wrong_shape_is_refused_before_the_first_update(tmp_path):
    def compute(self, arrays, weights):
        return {"top-1": float((arrays["places"] == 0).mean())}

    register_score_kind("one value", type("OneValue", (ClassificationScores,), {"compute": compute}))

    def build_metrics(task):
        return ClassificationMetrics(task.num_classes, kind="one value")

    task_class = type("Own", (Classification,), {"build_metrics": build_metrics, "__module__": "own"})
    run = small_runs.build(str(tmp_path), "-epochs=1", task_class=task_class)
    with pytest.raises(UserError, match=r"compute of OneValue: 'top-1' has shape \(\)"):
        run.train()
    assert run.schedule.update == 0


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((0, None), r"score 'bias' has the range \(0, None\): expected"),
        ((0, 1), "score 'bias' is -3, outside of its ran"),
    ],
)
def test_a_range_that_is_none_or_excludes_a_score_is_refused_before_the_first_update(tmp_path, bounds, message):
    class Biased(ClassificationScores):
        def compute(self, arrays, weights):
            return {**super().compute(arrays, weights), "bias": np.full(len(weights), -3.0)}

        def find_ranges(self, arrays, classes):
            return {**super().find_ranges(arrays, classes), "bias": bounds}

    def build_metrics(task):
        return ClassificationMetrics(task.num_classes, kind="biased")

    register_score_kind("biased", Biased)
    task_class = type("Own", (Classification,), {"build_metrics": build_metrics, "__module__": "own"})
    run = small_runs.build(str(tmp_path), "-epochs=1", task_class=task_class)
    with pytest.raises(UserError, match=message):
        run.train()
    assert run.schedule.update == 0


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"directions": {"top-1": "lower"}},
            "best_metric of Own says of 'top-1' that higher is better, and directions of",
        ),
        ({"decimals": "two"}, "decimals of Stated are 'two', expected a whole number from 0"),
        ({"right_rate": "near"}, "right_rate of Stated is 'near', which hits does not return$"),
        (
            {"compute": lambda self, arrays, weights: None},
            "compute of Stated returns None, expected values of the draws",
        ),
        (None, "Own.build_metrics returns None, expected metrics, such as TableMetrics or super"),
    ],
)
def test_what_a_kind_says_is_compared_before_the_first_update(tmp_path, attributes, message):
    kind = type("Stated", (ClassificationScores,), attributes or {})
    register_score_kind("stated", kind, replace=True)

    def build_metrics(task):
        return None if attributes is None else ClassificationMetrics(task.num_classes, kind="stated")

    task_class = type("Own", (Classification,), {"build_metrics": build_metrics, "__module__": "own"})
    run = small_runs.build(str(tmp_path), "-epochs=1", task_class=task_class)
    with pytest.raises(UserError, match=f"^{message}"):
        run.train()
    assert run.schedule.update == 0


@pytest.mark.parametrize("direction", ["", "higher"])
def test_the_best_may_be_chosen_by_a_score_without_a_direction(tmp_path, direction):
    kind = type("Stated", (ClassificationScores,), {"directions": {"top-1": direction}})
    register_score_kind("stated", kind, replace=True)

    def build_metrics(task):
        return ClassificationMetrics(task.num_classes, kind="stated")

    task_class = type("Own", (Classification,), {"build_metrics": build_metrics, "__module__": "own"})
    small_runs.build(str(tmp_path), "-epochs=1", task_class=task_class).evaluator.check_metrics(1)


@pytest.mark.parametrize("is_training", [True, False])
def test_a_check_of_metrics_leaves_the_mode_of_the_model(tmp_path, is_training):
    run = small_runs.build(str(tmp_path), "-epochs=1", task_class=make_task("top-1"))
    (run.model.train if is_training else run.model.eval)()
    modes = []
    task = run.task
    step = task.eval_step
    task.eval_step = lambda model, *others: modes.append(model.training) or step(model, *others)
    run.evaluator.check_metrics(1)
    assert modes == [False]
    assert {layer.training for layer in run.model.sublayers(include_self=True)} == {is_training}


class OddMetrics(Missing):
    """Cannot be computed or summarized for few samples, and has a value for each class that there is."""

    error: Exception | None = None
    reads_interval = False

    def compute(self, state):
        correct, images = state["of classes"].numpy()
        if self.error is not None and images.sum() < 32:
            raise self.error
        classes = {f"class {label}": float(correct[label]) for label in np.flatnonzero(images)}
        return {**super().compute(state), **classes, "many": 1.0 if images.sum() >= 32 else None}

    def summary(self, values):
        interval = self.intervals["top-1"] if self.reads_interval else ""
        return f"{values['class 9']:.1f} {values['many']:.1f} {interval}"


@pytest.mark.parametrize(
    "attributes",
    [{"error": kind("few")} for kind in (ZeroDivisionError, AssertionError, TypeError, KeyError, UserError)]
    + [{}, {"reads_interval": True}],
    ids=str,
)
def test_a_users_metrics_may_need_more_than_the_first_batch(tmp_path, attributes):
    class Own(Classification):
        best_metric = ("class 9", True)

        def build_metrics(self):
            return type("Odd", (OddMetrics,), attributes)(self.num_classes)

        def eval_step(self, model, batch, step):
            epochs.append(f"{step.epoch:03d}")
            return super().eval_step(model, batch, step)

    Own.__module__, epochs = "own", []
    words = ["-epochs=1", "VALIDATE_FREQ", "1", "TRAIN.WARMUP_EPOCHS", "0", "-batch_size=16"]
    words += ["DATA.BATCH_SIZE_EVAL", "2"]
    sizes = {"train_size": 48, "val_size": 32}
    assert small_runs.build(str(tmp_path / "good"), *words, task_class=Own, **sizes).train()["class 9"] >= 0
    assert {*epochs} == {"001"}
    Own.best_metric = ("nothing", True)
    run = small_runs.build(str(tmp_path / "bad"), *words, task_class=Own, **sizes)
    epochs.clear()
    with pytest.raises(UserError, match="best_metric of Own is 'nothing'"):
        run.train()
    # All samples are tried where the first batch shows a mistake; what it may be too small for is not checked.
    is_unsure = isinstance(attributes.get("error"), (ArithmeticError, AssertionError, UserError))
    assert (run.schedule.update, len(epochs)) == ((3, 17) if is_unsure else (0, 17))
