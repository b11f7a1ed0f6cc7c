"""What a user's ``train_step`` may return, and the line about everything else."""

import re
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.refusals import refusal_of

from paddlevit_dist.core.tasks.loss_checks import (
    call_losses,
    list_constant_terms,
    list_missing_terms,
    read_normalizers,
    require_divisors,
    require_form,
    require_sums,
    require_terms,
    sum_losses,
)
from paddlevit_dist.core.tasks.step_types import LossTerm, TaskTraits


class Own:
    """A user's task."""


def losses():
    """Losses of three samples, with a gradient."""
    return paddle.to_tensor([1.0, 2.0, 3.0], stop_gradient=False) * 2


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (None, "returns NoneType: expected a dictionary of LossTerm"),
        ({}, "returns nothing: "),
        (losses().sum(), "returns Tensor: expected a dictionary of LossTerm"),
        ({"loss": losses().sum()}, r"returns \{'loss': Tensor\}: expected LossTerm\(sum, count\) for 'loss'"),
        ({"loss": LossTerm(losses(), 3)}, r"the loss term 'loss' is of shape \[3\]: .*; end it with .sum\(\)"),
        ({"loss": LossTerm(losses().sum().reshape([1]), 3)}, r"the loss term 'loss' is of shape \[1\]: "),
        ({"loss": LossTerm(losses().sum().item(), 3)}, "'loss' is of type float: .*without item"),
        ({"loss": LossTerm(losses().sum().numpy(), 3)}, "'loss' is of type ndarray: "),
        ({"loss": LossTerm(None, 3)}, "'loss' is of type NoneType: "),
        ({"loss": LossTerm(losses().sum().astype("int64"), 3)}, "'loss' is of type int64: .*convert it to float32"),
        ({"loss": LossTerm(losses().sum(), 3), "b": LossTerm(losses(), 3, 0.0)}, "the loss term 'b' is of shape "),
        ({"loss": LossTerm(losses().sum(), 3), "update": LossTerm(None, 3)}, ": 'update' is a field of the lines of "),
        ({"loss": LossTerm(losses().sum().detach(), 3)}, "no loss term has a gradient, "),
        (
            {"loss": LossTerm(losses().sum().detach(), 3), "shown": LossTerm(losses().sum(), 3, 0.0)},
            "no loss term has a gradient, ",
        ),
    ],
)
def test_what_is_no_loss_is_refused(terms, words):
    assert re.match(f"(loss terms of )?Own.train_step.*{words}", refusal_of(require_terms, terms, Own))


def test_a_term_may_be_constant_beside_one_that_is_learned():
    constant = LossTerm(paddle.to_tensor(np.float32(2)), 3)
    require_terms(
        {"loss": LossTerm(losses().sum(), 3), "constant": constant, "shown": constant._replace(weight=0)}, Own
    )


@pytest.mark.parametrize(
    "returned", [losses().mean(), losses().astype("int64"), losses().numpy(), losses()[:2], None, losses().unsqueeze(1)]
)
def test_losses_have_a_number_for_each_element_or_sample(returned):
    task = SimpleNamespace(losses=lambda outputs, batch: returned)
    refusal = refusal_of(call_losses, task, None, {}, [3, 2], [3])
    assert refusal.startswith("SimpleNamespace.losses returns ") and "(3, 2) or (3,)" in refusal


def test_losses_of_elements_count_where_there_is_a_label_and_those_of_samples_once():
    each = paddle.to_tensor([[1.0, np.nan], [2.0, 4.0], [8.0, np.inf]])
    task = SimpleNamespace(losses=lambda outputs, batch: each)
    term = sum_losses(call_losses(task, None, {}, [3, 2], [3]), paddle.isfinite(each))
    assert (float(term.sum), int(term.count), term.is_local) == (15, 4, False)
    term = sum_losses(losses(), paddle.isfinite(each))
    assert (float(term.sum), term.count, term.is_local) == (12, 3, True)


class Counted:
    """A user's task with ``loss_normalizers``."""

    traits = TaskTraits(normalizer_names=("loss", "dice"))

    def train_step(self):
        """Return terms; never called."""


class CountedBySamples(Counted):
    traits = TaskTraits(normalizers_per_sample={"loss": 1})


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"brier": LossTerm(losses().sum(), 5)}, "no number for the loss term 'brier', only for loss, dice, so gradie"),
        ({"loss": LossTerm(losses().sum(), 5), "brier": LossTerm(losses().sum(), 5, 0.1)}, "the loss term 'brier', "),
        ({"loss": LossTerm(losses().sum(), 3)}, "'loss' declares 3 as its divisor, but .* is 5: return LossTerm"),
        ({"loss": LossTerm(losses().sum(), paddle.to_tensor(5.1))}, "'loss' declares 5.1 as its divisor"),
    ],
)
def test_a_divisor_that_the_engine_does_not_take_is_refused(terms, words):
    line = refusal_of(require_divisors, terms, Counted(), {"loss": 5.0, "dice": 2.0})
    assert re.match(f"Counted.train_step: .*{words}", line)


def test_what_divides_as_declared_passes():
    total = losses().sum()
    terms = {
        "loss": LossTerm(total, paddle.to_tensor(5.0)),
        "hard": LossTerm(total, 2, is_local=True),
        "top-1": LossTerm(total, 9, 0.0),
        "dice": LossTerm(total, 1),  # of no class: the engine takes 1 for 0
    }
    require_divisors(terms, Counted(), {"loss": 5.0, "dice": 0.0})
    require_divisors({"loss": LossTerm(total, 4), "other": LossTerm(total, 4)}, CountedBySamples(), {"loss": 4.0})
    assert "declares 3 " in refusal_of(
        require_divisors, {"loss": LossTerm(total, 3)}, CountedBySamples(), {"loss": 4.0}
    )


def test_keys_whose_terms_a_users_step_drops_are_told():
    task = Own()
    task.config = SimpleNamespace(TRAIN=SimpleNamespace(DICE_WEIGHT=0.5, LOVASZ_WEIGHT=2.0))
    (line,) = list_missing_terms({"loss": None, "dice": None}, task)
    assert line.startswith("note: TRAIN.LOVASZ_WEIGHT is 2, but Own.train_step returns no loss term 'lovasz': ")
    task.config.TRAIN.LOVASZ_WEIGHT = 0.0
    assert list_missing_terms({"loss": None, "dice": None}, task) == []
    task.config = SimpleNamespace(TRAIN=SimpleNamespace())
    assert list_missing_terms({"loss": None}, task) == []


def test_a_constant_term_beside_a_learned_one_is_told_by_name():
    total = losses().sum()
    terms = {
        "loss": LossTerm(total, 3),
        "tversky": LossTerm(total.detach(), 3),
        "none": LossTerm(paddle.zeros([]), 3),  # of a micro-batch without objects
        "shown": LossTerm(total.detach(), 3, 0.0),
    }
    (line,) = list_constant_terms(terms, Own())
    assert line.startswith("note: Own.train_step: the loss term 'tversky' has no gradient, so it ")


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"loss": 5}, r"returns dict of 1 \('loss'\), expected a number for 'dice' too, which is in traits.normalizer"),
        (None, "returns None, expected a dictionary of numbers"),
        ({"loss": "five", "dice": 1}, "returns 'five' as 'loss', expected a number of at least 0"),
        ({"loss": np.ones(2), "dice": 1}, r"returns ndarray float64 \(2,\) as 'loss', expected a number"),
        ({"loss": 1, "dice": np.nan}, "returns nan as 'dice', expected a number of at least 0"),
        ({"loss": 1, "dice": -1.0}, "returns -1.0 as 'dice', expected a number of at least 0"),
    ],
)
def test_divisors_without_a_number_for_each_name_are_refused(counts, said):
    assert re.match(f"Counted.loss_normalizers {said}", refusal_of(read_normalizers, counts, Counted()))
    assert read_normalizers({"dice": np.float32(0.5), "loss": paddle.to_tensor(0), "more": "x"}, Counted()) == [0, 0.5]


def squares(outputs, truth):
    """Losses of samples, (samples,)."""
    return (outputs - truth).square().mean(axis=1)


MEANS = {
    "of samples": lambda outputs, truth: LossTerm(squares(outputs, truth).mean(), len(truth)),
    "of values": lambda outputs, truth: LossTerm((outputs - truth).square().mean(), truth.size),
    "below zero": lambda outputs, truth: LossTerm(-squares(outputs, truth).mean(), len(truth)),
}
SUMS = {
    "of samples": lambda outputs, truth: LossTerm(squares(outputs, truth).sum(), len(truth)),
    "of one number a batch": lambda outputs, truth: LossTerm(squares(outputs, truth).max(), 1),
    "of pairs": lambda outputs, truth: LossTerm((outputs @ outputs.T).square().sum(), len(truth)),
    "of nothing": lambda outputs, truth: LossTerm(0 * squares(outputs, truth).mean(), len(truth)),
}


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_a_mean_over_samples_is_told_from_a_sum(samples):
    generator = np.random.default_rng(samples)
    rows = tuple(paddle.to_tensor(generator.normal(size=(samples, 4)).astype("float32")) for _ in range(2))
    for compute in MEANS.values():
        line = refusal_of(require_sums, lambda *parts: {"own": compute(*parts)}, rows, Own, "terms")  # noqa: B023
        assert line.startswith("Own.terms returns a mean over samples as 'own': expected the sum, ")
    for compute in SUMS.values():
        require_sums(lambda *parts: {"own": compute(*parts)}, rows, Own, "terms")  # noqa: B023


def test_no_further_terms_are_a_form_and_nothing_is_none():
    require_form({}, Own, "further_terms")
    assert refusal_of(require_form, None, Own, "further_terms").startswith("Own.further_terms returns NoneType: ")
