"""Metrics that are a table of samples, from which a kind of scores computes all values."""

import re

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.register import register_score_kind
from paddlevit_dist.core.tasks.metrics import Metrics, ShownValues, TableMetrics
from paddlevit_dist.core.tasks.score_kind import ScoreKind
from paddlevit_dist.volumes.landmarks.metrics import LandmarkScores


class Widths(ScoreKind):
    """The mean width, a share that no sample defines, and the mean width of each class."""

    class_score, decimals, settings = "width {}", 2, ("unit",)

    def compute(self, arrays, weights):
        widths, labels = arrays["widths"] * arrays["unit"], arrays["labels"]
        values = {"share": np.full(len(weights), np.nan), "width": weights @ widths / weights.sum(axis=1)}
        for label, name in enumerate(self.classes):
            own = weights * (labels == label)
            with np.errstate(invalid="ignore"):
                values[f"width {name}"] = own @ widths / own.sum(axis=1)
        return values

    def counts(self, arrays):
        return {"samples": len(arrays["widths"])}


@pytest.fixture(autouse=True)
def kind(monkeypatch):
    register_score_kind("widths", Widths)
    monkeypatch.setattr(Widths, "logs_classes", True)


def make(*rows) -> TableMetrics:
    metrics = TableMetrics("widths", ["cow", "ant", "bee"], {"unit": np.array(2.0)})
    for width, label in rows:
        metrics.add(widths=width, labels=label)
    return metrics


def test_defined_values_are_those_of_the_kind_and_the_others_are_named_and_read_as_nan(monkeypatch):
    metrics = make((1.5, 2), (4.0, 0), (2.5, 2))
    values = metrics.compute({})
    assert values == {"width": 16 / 3, "width cow": 8.0, "width bee": 4.0, "samples": 3}
    undefined = metrics.find_undefined(values)
    assert undefined == {"share", "width ant"} and metrics.summary(values) == "width 5.33"
    shown = ShownValues(values, undefined)
    assert np.isnan(shown["share"]) and "share" not in shown and shown["width"] == 16 / 3
    with pytest.raises(KeyError, match="height"):
        shown["height"]
    monkeypatch.setattr(Widths, "logs_classes", False)
    assert metrics.compute({}) == {"width": 16 / 3, "samples": 3} and metrics.find_undefined({}) == {"share"}
    assert make().compute({}) == {} and make().per_sample() == []


def test_of_other_metrics_nan_and_none_are_not_defined():
    values = {"a": 0.0, "b": float("nan"), "c": None, "d": float("inf"), "e": 3}
    assert Metrics.find_undefined(make(), values) == {"b", "c"}


def test_an_infinite_value_stays_where_an_undefined_one_is_omitted():
    values = make((np.inf, 2), (4.0, 2)).compute({})
    assert values["width"] == values["width bee"] == np.inf and "width ant" not in values


COMPUTED = "share, width, width cow, width ant, width bee"


@pytest.mark.parametrize(
    "place, declared, told",
    [
        ("find_ranges", lambda self, arrays, classes: {"widht": (0.0, 9.0)}, f"'widht' is none of .* .{COMPUTED}.: "),
        ("class_means", {"widht": "width {}"}, f"'widht' is none of the scores that Widths computes .{COMPUTED}.: cor"),
        (
            "directions",
            {"widht": "lower"},
            "'widht' is none of the scores that Widths computes .share, width.: correct",
        ),
        ("directions", {"width cow": "lower"}, "'width cow' is none of"),  # all classes have the quantity's
        ("units", {"widht": "mm"}, "'widht' is none of the scores that Widths computes .share, width.: correct"),
        ("directions", {"width": "up"}, "'width' is 'up', expected 'higher' or 'lower' is better, or '' for neither"),
        ("units", {"width": 1}, "'width' is 1, expected a text, as 'mm'"),
        ("find_ranges", lambda self, arrays, classes: None, "returns None, expected ranges by name of the score, such"),
        ("directions", ["width"], r"is list of 1 \('width'\), expected a dictionary by name"),
    ],
)
def test_what_a_kind_declares_is_of_scores_that_it_computes(monkeypatch, place, declared, told):
    monkeypatch.setattr(Widths, place, declared)
    with pytest.raises(UserError, match=f"^{place}( of Widths)?:? {told}"):
        make((1.5, 2)).compute({})


def test_directions_and_units_are_of_quantities_and_those_of_our_kinds_need_not_be_computed(monkeypatch):
    monkeypatch.setattr(Widths, "directions", {"width": "lower", "share": ""})
    monkeypatch.setattr(Widths, "units", {"width": "mm"})
    assert make((1.5, 2)).compute({})["width"] == 3.0
    fewer = type("Fewer", (LandmarkScores,), {"compute": Widths.compute})()
    assert fewer.directions and fewer.units
    fewer.require_declared(["share"], {}, [])


def test_tensors_and_arrays_of_a_batch_are_rows_in_their_order():
    rows = [(1.5, 2), (4.0, 0), (2.5, 2)]
    batches = make(rows[0])
    batches.add_batch(widths=np.array([4.0, 2.5]), labels=np.array([0, 2]))
    tensors = make()
    tensors.add_batch(widths=paddle.to_tensor([1.5, 4.0]), labels=paddle.to_tensor([2, 0]))
    tensors.merge(make(rows[2]))
    assert batches.compute({}) == tensors.compute({}) == make(*rows).compute({})
    empty = make()
    empty.merge(make(*rows))
    assert empty.compute({}) == make(*rows).compute({})


def test_a_sample_stays_as_it_was_when_its_array_is_used_again():
    buffer, metrics = np.zeros(()), make()
    for width in (1.0, 4.0):
        buffer[()] = width
        metrics.add(widths=buffer, labels=0)
        metrics.add_batch(widths=(tensor := paddle.to_tensor([width + 1])), labels=paddle.to_tensor([0]))
        tensor.zero_()
    assert metrics.per_sample()[0].tolist() == [1.0, 2.0, 4.0, 5.0]


def test_other_columns_and_unknown_kinds_are_refused():
    metrics = make((1.5, 2))
    with pytest.raises(ValueError, match=r"columns \['labels', 'widths'\] after \['widths', 'labels'\]"):
        metrics.add(labels=2, widths=1.5)
    with pytest.raises(ValueError, match=r"shapes \{'widths': \(2,\), 'labels': \(1,\)\}: expected \(batch"):
        metrics.add_batch(widths=np.array([4.0, 2.5]), labels=np.array([0]))
    with pytest.raises(ValueError, match=r"'labels': \(\)"):
        metrics.add_batch(widths=paddle.to_tensor(1.5), labels=paddle.to_tensor(2))
    with pytest.raises(UserError, match="no kind of scores 'lengths' is registered: call register_score_kind"):
        TableMetrics("lengths")
    with pytest.raises(
        UserError, match="is not the name of a kind of scores: expected the text of register_score_kind"
    ):
        metrics.score_by(Widths)
    with pytest.raises(UserError, match=r"Nothing needs the method compute\(self, arrays, weights\)"):
        register_score_kind("nothing", type("Nothing", (ScoreKind,), {}))


@pytest.mark.parametrize(
    "result, told",
    [
        (1.5, r"'width' has shape \(\), expected \(1,\)"),
        (None, r"'width' is None, expected an array \(1,\), a value for each draw"),
        ("wide", r"'width' is 'wide', expected an array \(1,\), a value for each draw"),
        (paddle.ones([3]), r"'width' has shape \(3,\), expected \(1,\)"),
        (np.ones(3), r"'width' has shape \(3,\), expected \(1,\)"),
        (np.array(["1.5"]), r"'width' is ndarray <U3 \(1,\), expected real numbers$"),
        (["1.5"], r"'width' is list of 1 \('1.5'\), expected real numbers$"),
        (np.array([None]), r"'width' is ndarray object \(1,\), expected real numbers$"),
        (np.array([1 + 2j]), r"'width' is ndarray complex128 \(1,\), expected real numbers$"),
    ],
)
def test_a_score_without_a_value_for_each_draw_is_refused(monkeypatch, result, told):
    monkeypatch.setattr(Widths, "compute", lambda self, arrays, weights: {"width": result})
    with pytest.raises(UserError, match=f"compute of Widths: {told}"):
        make((1.5, 2)).compute({})


@pytest.mark.parametrize("name", [3, "", None])
def test_a_score_is_named_by_a_text(monkeypatch, name):
    monkeypatch.setattr(Widths, "compute", lambda self, arrays, weights: {name: np.ones(len(weights))})
    with pytest.raises(UserError, match=f"^scores of Widths: {re.escape(repr(name))} is not a name: expected a text"):
        make((1.5, 2)).compute({})


@pytest.mark.parametrize(
    "result", [[1.5], np.array([1.5], object), np.float32([1.5]), np.array([True]), (2,), paddle.to_tensor([1.5])]
)
def test_a_score_may_be_any_real_numbers(monkeypatch, result):
    monkeypatch.setattr(Widths, "compute", lambda self, arrays, weights: {"width": result})
    assert make((1.5, 2)).compute({}) == {"width": float(result[0]), "samples": 1}
