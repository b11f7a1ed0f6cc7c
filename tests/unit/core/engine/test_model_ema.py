"""Averaged weights: the formula, swapping with the model's own, saving and restoring."""

import re
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.waits import counted_waits

from paddlevit_dist.core.engine.model_ema import ModelEma, describe_worse_average
from paddlevit_dist.core.intervals import ConfidenceInterval

DECAY = 0.75


class Counted(paddle.nn.Layer):
    """A weight, a batch normalization with running statistics, and an integer buffer."""

    def __init__(self):
        super().__init__()
        self.norm = paddle.nn.BatchNorm1D(2)
        self.register_buffer("steps", paddle.zeros([1], dtype="int64"))


def trained(steps: int = 5):
    """The model after some updates, its average, and its states at the start and after every update."""
    paddle.seed(0)
    model = Counted()
    averaged = ModelEma(model, DECAY)
    states = [{name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}]
    for _ in range(steps):
        for name, tensor in model.state_dict().items():
            tensor.set_value(tensor + 1 if name == "steps" else paddle.randn(tensor.shape))
        averaged.update()
        states.append({name: tensor.numpy().copy() for name, tensor in model.state_dict().items()})
    return model, averaged, states


def test_the_average_is_the_weighted_sum_of_all_states():
    _, averaged, states = trained()
    shares = [DECAY**5] + [(1 - DECAY) * DECAY ** (5 - step) for step in range(1, 6)]
    for name, average in averaged.state_dict().items():
        expected = states[-1][name] if name == "steps" else sum(share * s[name] for share, s in zip(shares, states))
        np.testing.assert_allclose(average.numpy(), expected, rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_share_that_is_kept_rises_with_the_updates_made_wherever_these_began():
    model, made = paddle.nn.Linear(1, 1), 3
    averaged, expected = ModelEma(model, 0.9, warmup=4, made=lambda: made), model.weight.item()
    for made in range(3, 8):
        kept = 0.9 * (1 - np.exp(-(made + 1) / 4))
        model.weight.set_value(np.full((1, 1), made, np.float32))
        averaged.update()
        expected = kept * expected + (1 - kept) * made
        np.testing.assert_allclose(averaged.state_dict()["weight"].item(), expected, rtol=1e-5)


def test_the_model_has_the_average_inside_and_its_own_weights_afterwards():
    model, averaged, states = trained()
    expected = {name: tensor.numpy().copy() for name, tensor in averaged.state_dict().items()}
    with pytest.raises(KeyError), averaged.in_place():
        for name, tensor in model.state_dict().items():
            assert np.array_equal(tensor.numpy(), expected[name])
        raise KeyError
    for name, tensor in model.state_dict().items():
        assert np.array_equal(tensor.numpy(), states[-1][name])
        assert np.array_equal(averaged.state_dict()[name].numpy(), expected[name])


def test_a_saved_average_goes_on_bit_for_bit():
    _, straight, _ = trained(5)
    model, averaged, states = trained(3)
    saved = {name: tensor.numpy().copy() for name, tensor in averaged.state_dict().items()}
    other = ModelEma(Counted(), DECAY)
    other.load_state_dict(saved)
    other.model = model
    paddle.seed(0)
    _, _, all_states = trained(5)
    for state in all_states[4:]:
        for name, tensor in model.state_dict().items():
            tensor.set_value(state[name])
        other.update()
    for name, average in straight.state_dict().items():
        assert np.array_equal(average.numpy(), other.state_dict()[name].numpy())


def test_an_average_of_another_model_is_refused():
    averaged = ModelEma(Counted(), DECAY)
    with pytest.raises(ValueError, match="do not fit: weight"):
        averaged.load_state_dict({**{k: v.numpy() for k, v in averaged.state_dict().items()}, "weight": np.zeros(1)})
    with pytest.raises(ValueError, match="norm.bias is"):
        averaged.load_state_dict(
            {k: np.zeros(7) if k == "norm.bias" else v.numpy() for k, v in averaged.state_dict().items()}
        )
    with pytest.raises(ValueError, match="do not fit: more"):
        averaged.load_state_dict({**{k: v.numpy() for k, v in averaged.state_dict().items()}, "more": np.zeros(1)})


def test_exchanging_and_averaging_make_the_host_wait_for_no_gpu():
    _, averaged, _ = trained()
    with counted_waits() as waits:
        averaged.update()
        with averaged.in_place():
            averaged.state_dict()
    assert len(waits) == 0, waits


class Replacing(paddle.nn.Layer):
    """A model of somebody else's: a buffer that is another tensor after each step, and one of float64."""

    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([3, 2])
        self.register_buffer("seen", paddle.zeros([2]))
        self.register_buffer("exact", paddle.zeros([2], dtype="float64"))
        self.register_buffer("passing", paddle.zeros([2]), persistable=False)


class Renaming(Replacing):
    """With a state that is made of copies."""

    def state_dict(self, *arguments, **options):
        return {name: tensor * 1 for name, tensor in super().state_dict(*arguments, **options).items()}


def test_of_shards_only_this_rank_s_and_what_is_no_float32_are_averaged():
    averaged = ModelEma(Counted(), DECAY, shards=SimpleNamespace(owned={"norm.bias", "steps"}))
    assert list(averaged.state_dict()) == ["steps", "norm.bias"]
    whole = {name: tensor.numpy() + 3 for name, tensor in Counted().state_dict().items()}
    averaged.load_state_dict(whole)
    assert all((average.numpy() == whole[name]).all() for name, average in averaged.state_dict().items())


def test_with_shards_the_other_ranks_averages_come_from_them_inside_and_their_weights_afterwards():
    """The shares of another rank, which sends its averages, then its weights."""
    model, sent = Counted(), []
    values = {"norm.weight": iter([7.0, 3.0])}

    def exchange_state():
        sent.append({name: tensor.numpy().copy() for name, tensor in model.state_dict().items()})
        for name, numbers in values.items():
            model.state_dict()[name].set_value(np.full(2, next(numbers), np.float32))

    averaged = ModelEma(model, DECAY, shards=SimpleNamespace(owned={"norm.bias"}, exchange_state=exchange_state))
    model.norm.bias.set_value(np.array([1.0, 2.0], np.float32))
    averaged.update()
    with averaged.in_place():
        assert model.norm.weight.tolist() == [7.0, 7.0]
        np.testing.assert_allclose(model.norm.bias.numpy(), (1 - DECAY) * np.array([1.0, 2.0]), rtol=1e-5)
    assert model.norm.weight.tolist() == [3.0, 3.0] and model.norm.bias.tolist() == [1.0, 2.0]
    assert [state["norm.bias"].tolist() == [1.0, 2.0] for state in sent] == [False, True]  # what this rank sends


def test_the_state_of_a_model_is_read_once_and_then_its_own_tables():
    model = Replacing()
    averaged = ModelEma(model, DECAY)
    averaged.update()
    model.state_dict = None
    averaged.update()


def test_the_first_name_that_differs_is_told():
    names = [f"layer{number}" for number in range(8)]
    with pytest.raises(ValueError, match="^the averaged weights do not fit: bias and 9 more differ$"):
        ModelEma(paddle.nn.Linear(1, 1), DECAY).load_state_dict(dict.fromkeys(names, np.zeros(1)))


@pytest.mark.parametrize("kind", [Replacing, Renaming])
def test_buffers_that_are_replaced_are_averaged_and_kept_in_the_order_of_the_state(kind):
    model = kind()
    averaged = ModelEma(model, DECAY)
    for _ in range(3):
        model.seen = model.seen + 1
        model.exact = model.exact + 1
        averaged.update()
    averages = averaged.state_dict()
    assert list(averages) == ["weight", "seen", "exact"]
    expected = sum((1 - DECAY) * DECAY ** (3 - step) * step for step in (1, 2, 3))
    np.testing.assert_allclose(averages["seen"].numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(averages["exact"].numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(averages["weight"].numpy(), model.weight.numpy(), rtol=1e-6)
    assert averages["exact"].dtype == paddle.float64


def test_a_model_without_float32_is_copied():
    model = paddle.nn.Layer()
    model.register_buffer("steps", paddle.zeros([1], dtype="int64"))
    averaged = ModelEma(model, DECAY)
    model.steps.add_(paddle.ones([1], dtype="int64"))
    averaged.update()
    saved = {name: tensor.numpy() for name, tensor in averaged.state_dict().items()}
    averaged.load_state_dict(saved)
    assert saved["steps"].tolist() == averaged.state_dict()["steps"].tolist() == [1]


@pytest.mark.parametrize("decay, updates", [(0.99996, 150), (0.99996, 57_000), (0.9, 21), (0.5, 1), (0.5, 3)])
def test_an_average_that_keeps_more_than_a_tenth_of_the_first_weights_is_told_with_a_decay_that_fits(decay, updates):
    line = ModelEma(paddle.nn.Linear(1, 1), decay).describe_first_weights(updates)
    assert f"MODEL_EMA_DECAY {decay:g} is too slow for {updates:,} update(s): {decay**updates:.0%}" in line
    fitting = float(re.search(r"([\d.]+) fits", line).group(1))
    assert fitting**updates < 0.04 < decay**updates
    assert ModelEma(paddle.nn.Linear(1, 1), fitting).describe_first_weights(updates) == ""


@pytest.mark.parametrize(
    "decay, warmup, updates", [(0.99996, 0, 58_000), (0.9, 0, 22), (0.5, 0, 4), (0.9999, 2000, 10)]
)
def test_an_average_that_has_left_its_first_weights_is_not(decay, warmup, updates):
    assert ModelEma(paddle.nn.Linear(1, 1), decay, warmup).describe_first_weights(updates) == ""


def test_the_updates_before_an_average_began_do_not_count_and_those_before_it_was_restored_do():
    made = 30
    averaged = ModelEma(paddle.nn.Linear(1, 1), 0.9, made=lambda: made)
    assert "for 10 update(s): 35%" in averaged.describe_first_weights(40)
    averaged.load_state_dict({name: tensor.numpy() for name, tensor in averaged.state_dict().items()})
    assert averaged.describe_first_weights(40) == ""


@pytest.mark.parametrize(
    "more_is_better, raw, averaged, interval, is_told",
    [
        (True, 94.4, 9.4, (6.0, 14.0), True),
        (True, 94.4, 93.9, (91.0, 96.0), False),
        (True, 94.4, 95.0, (94.9, 95.1), False),
        (False, 1.2, 7.5, (7.0, 8.0), True),
        (False, 7.5, 1.2, (1.0, 1.4), False),
        (True, 94.4, 9.4, None, False),
    ],
)
def test_an_average_that_scores_worse_by_more_than_its_interval_is_told(
    more_is_better, raw, averaged, interval, is_told
):
    ends = None if interval is None else ConfidenceInterval(averaged, *interval)
    line = describe_worse_average(("top-1", more_is_better), raw, averaged, ends)
    assert (f"top-1 {averaged:.4g}, where these have {raw:.4g}, outside" in line) == is_told == bool(line)
