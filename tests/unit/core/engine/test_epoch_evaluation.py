"""Which evaluations follow an epoch: what each is given, what is noted, compared, told and discarded."""

import contextlib
from types import SimpleNamespace

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.engine.epoch_evaluation import EpochEvaluator
from paddlevit_dist.core.intervals import ConfidenceInterval

FIRST, SECOND = {"top-1": 50.0, "loss": 0.5}, {"top-1": 40.0, "loss": 0.25}


class EvaluationParts:
    """Stand-ins for all that an evaluation uses; ``calls`` are what they were asked, in order."""

    def __init__(self, results, is_compared=None, patience=0):
        self.calls, self.results, self.undefined = [], list(results), set()
        self.intervals = {"top-1": ConfidenceInterval(40.0, 38.0, 42.0), "loss": ConfidenceInterval(0.2, 0.0, 9.0)}
        names = "evaluated", "shared", "scored", "discarded", "event", "line"
        evaluated, shared, scored, discarded, event, line = (self.note(name) for name in names)
        ema = SimpleNamespace(is_compared=is_compared, in_place=self.in_place)
        self.evaluate_epoch = EpochEvaluator(
            SimpleNamespace(TRAIN=SimpleNamespace(PATIENCE=patience)),
            SimpleNamespace(best_metric=("top-1", True)),
            SimpleNamespace(ema=None if is_compared is None else ema, share_statistics=shared),
            self,
            SimpleNamespace(note_scored=scored, discard_epoch=discarded),
            SimpleNamespace(event=event, log_and_print=line),
        )

    def note(self, name):
        return lambda *given: self.calls.append((name, *given))

    @contextlib.contextmanager
    def in_place(self):
        self.calls.append(("averaged",))
        yield
        self.calls.append(("own again",))

    def __call__(self, label, *, epoch, observers):
        self.calls.append(("evaluated", label, epoch, *observers))
        return self.results.pop(0), f"values of {label}"

    def build_event(self, values):
        return {**values, "samples": 9}

    def run(self, is_last):
        answers = (lambda last: f"a {last}", lambda last: None, lambda last: f"b {last}")
        return self.evaluate_epoch(3, is_last, [SimpleNamespace(before_evaluate=answer) for answer in answers])


@pytest.mark.parametrize("is_last, patience, is_scored", [(False, 0, 0), (True, 0, 1), (False, 2, 1), (True, 2, 1)])
def test_weights_are_evaluated_and_noted_if_the_run_may_end_with_them(is_last, patience, is_scored):
    parts = EvaluationParts([FIRST], patience=patience)
    assert parts.run(is_last) == (FIRST, "values of evaluation 3") and parts.evaluate_epoch.note == ""
    evaluated = ("evaluated", "evaluation 3", 3, f"a {is_last}", f"b {is_last}")
    assert parts.calls == [evaluated, *[("scored", 3)] * is_scored]


@pytest.mark.parametrize("is_last, patience, is_scored", [(False, 0, 0), (True, 0, 1), (False, 2, 1)])
@pytest.mark.parametrize("is_compared", [False, True])
def test_averaged_weights_are_evaluated_after_the_models_own(is_last, patience, is_scored, is_compared):
    parts = EvaluationParts([FIRST, SECOND] if is_compared else [SECOND], is_compared, patience)
    averaged = "evaluation 3 of averaged weights"
    assert parts.run(is_last) == (SECOND, f"values of {averaged}")
    own = [
        ("evaluated", "evaluation 3", 3, "a False", "b False"),
        ("event", "evaluation_without_average", {"epoch": 3, **FIRST, "samples": 9}),
        ("line", "epoch 3 evaluation without averaging: values of evaluation 3"),
    ]
    ending = [("evaluated", averaged, 3, f"a {is_last}", f"b {is_last}"), *[("scored", 3)] * is_scored]
    assert parts.calls == [*own * is_compared, ("averaged",), ("shared",), *ending, ("own again",)]
    told = "note: the averaged weights score worse than the model's own: top-1 40, where these have 50, outside"
    assert parts.evaluate_epoch.note[: len(told)] == told * is_compared


def test_an_average_within_the_interval_takes_the_note_back():
    parts = EvaluationParts([FIRST, SECOND, {**FIRST, "top-1": 41.0}, SECOND], True)
    parts.run(False)
    assert parts.evaluate_epoch.note
    parts.run(False)
    assert parts.evaluate_epoch.note == ""


@pytest.mark.parametrize("is_compared, when", [(None, ""), (False, "'s averaged weights"), (True, "")])
def test_an_epoch_whose_values_are_not_finite_is_discarded_and_told(is_compared, when):
    parts = EvaluationParts([{"top-1": 1.0, "loss": float("inf")}], is_compared, patience=1)
    said = f"^'loss' is inf in the evaluation of epoch 3{when}: training has diverged; .*; or its formula divides by"
    with pytest.raises(UserError, match=said):
        parts.run(True)
    assert parts.calls[-1] == ("discarded", 3) and ("scored", 3) not in parts.calls


def test_an_evaluation_without_the_value_that_chooses_is_told_and_keeps_its_checkpoint():
    parts = EvaluationParts([{"loss": 0.5}])
    with pytest.raises(UserError, match="^best_metric of SimpleNamespace is 'top-1', which compute does not return"):
        parts.run(True)
    assert [name for name, *_ in parts.calls] == ["evaluated"]


@pytest.mark.parametrize("results", [[{"loss": 0.5}, SECOND], [FIRST, {"loss": 0.25}], [{"loss": 0.5}] * 2])
def test_a_score_that_is_not_defined_ends_nothing_and_compares_nothing(results):
    parts = EvaluationParts([FIRST, SECOND, *results], True)
    parts.undefined = {"top-1"}
    parts.run(False)
    assert parts.evaluate_epoch.note
    assert parts.run(False)[0] == results[1] and parts.evaluate_epoch.note == ""
