"""Weights that are cast together are those that are cast one by one, bit for bit, with the same gradients."""

import itertools

import numpy as np
import paddle
import pytest
from support.forced_device import forced_device
from support.half_on_cpu import products_in
from support.networks.plain_layers import plain_layers
from support.thread_ranks import ThreadRanks

from paddlevit_dist.core.distributed import rank
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.runtime import autocast, half_weights
from paddlevit_dist.core.runtime.half_weights import HalfWeights, find, list_parameters, time_casts
from paddlevit_dist.images.models.layers import Linear, Mlp

SHAPES = [5, 128], [7, 128], [3], [300], [5, 3], [128], [2, 3, 4, 16], [4, 3, 4, 16], [192, 7], []


def parameters() -> list[paddle.Tensor]:
    generator = np.random.default_rng(0)
    arrays = [np.asarray(generator.standard_normal(shape) * 10.0 ** generator.integers(-9, 5)) for shape in SHAPES]
    return [paddle.to_tensor(array.astype("float32"), stop_gradient=False) for array in arrays]


def gradients_of(halves: list[paddle.Tensor], trained: list[paddle.Tensor], unused: int) -> list[np.ndarray | None]:
    """Gradients of a sum in which each value has another factor, and one tensor does not occur."""
    terms = [
        (half.astype("float32").flatten() * paddle.linspace(0.1, 3.3, max(1, half.size)).astype("float32")).sum()
        for number, half in enumerate(halves)
        if number != unused
    ]
    found = paddle.grad(paddle.add_n(terms), trained, allow_unused=True)
    return [None if each is None else each.numpy() for each in found]


@pytest.mark.parametrize("dtype", [paddle.float16, paddle.bfloat16])
@pytest.mark.parametrize("groups, unused", [(1, 99), (1, 3), (3, 5), (len(SHAPES), 0)])
def test_values_and_gradients_are_those_of_separate_casts(dtype, groups, unused):
    trained = parameters()
    with HalfWeights(trained, dtype, groups).in_use():
        halves = [find(parameter) for parameter in trained]
    separate = [parameter.astype(dtype) for parameter in trained]
    for one, other in zip(halves, separate, strict=True):
        assert one.dtype == dtype and one.shape == other.shape
        np.testing.assert_array_equal(one.astype("float32").numpy(), other.astype("float32").numpy())
        assert one.data_ptr() % 64 == 0
    expected, found = (gradients_of(each, trained, unused) for each in (separate, halves))
    for position, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert (one is None) == (other is None) == (position == unused)
        if one is not None:
            np.testing.assert_array_equal(one, other)


def test_parts_of_a_joined_tensor_start_where_separate_tensors_could():
    trained = [paddle.to_tensor(np.ones(size, "float32"), stop_gradient=False) for size in (3, 130, 128, 1)]
    with HalfWeights(trained, paddle.float16).in_use():
        addresses = [find(parameter).data_ptr() for parameter in trained]
    assert len({address % 256 for address in addresses}) == 1


def allocated(kind: str) -> int:
    """Bytes that Paddle's tensors take in host memory, now or at most."""
    return int(getattr(paddle.base.core, f"host_memory_stat_{kind}_value")("Allocated", 0))


def test_nothing_is_found_after_a_forward_pass_that_failed():
    trained = parameters()
    with pytest.raises(KeyError), HalfWeights(trained, paddle.float16).in_use():
        assert all(find(parameter) is not parameter for parameter in trained)
        raise KeyError
    assert all(find(parameter) is parameter for parameter in trained)


def test_a_network_computes_the_same_with_them():
    """Float64 stands for half precision, which no CPU multiplies in; Paddle's autocast would cast what is not yet."""

    def fused_linear(x, weight, bias):
        seen.append((weight.dtype, bias.dtype))
        x, weight, bias = (
            each if each.dtype == paddle.float64 else each.astype("float64") for each in (x, weight, bias)
        )
        return (paddle.matmul(x, weight) + bias).astype("float32")

    paddle.seed(0)
    seen: list = []
    with plain_layers(), products_in("float64", fused_linear):
        network, x = Mlp(8, 16), paddle.rand([3, 8])
        listed = list_parameters(network)
        assert [id(each) for each in listed] == [id(each) for each in network.parameters()]
        expected = paddle.grad(network(x).sum(), listed)
        with HalfWeights(listed, paddle.float64).in_use():
            found = paddle.grad(network(x).sum(), listed)
    assert seen == [(paddle.float32, paddle.float32)] * 2 + [(paddle.float64, paddle.float64)] * 2
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    network.fc1.bias.stop_gradient = True
    assert len(list_parameters(network)) == 2  # a layer with a frozen part is left to Paddle


def fail(*_):
    raise RuntimeError("no kernel")


@pytest.mark.parametrize("apart, together, is_used", [(2e-3, 1e-3, True), (1e-3, 2e-3, False), (1e-3, np.inf, False)])
def test_the_device_chooses_what_takes_it_less_time(simulated_time, other_paddle, apart, together, is_used):
    network, precision = Mlp(8, 16), TrainingPrecision(True, "bfloat16", on_gpu=True)
    assert precision.choose_casts(network) == [] and precision.half_weights is None  # a CPU
    simulated_time.take(itertools.cycle([apart, together]))
    if together == np.inf:
        other_paddle({"_C_ops.concat": fail})
    with forced_device():
        (line,) = precision.choose_casts(network)
    how = "together" if is_used else "one by one"
    assert line.startswith(f"weights of 4 tensors are cast to half precision {how}: ")
    assert ("computes something else" in line) == (together == np.inf)
    assert (precision.half_weights is not None) == is_used
    with precision.autocast():
        assert (find(network.fc1.weight) is not network.fc1.weight) == is_used


def test_both_ways_are_timed():
    assert all(0 < seconds < 60 for seconds in time_casts(parameters(), paddle.float16))


def test_a_device_that_joins_wrongly_or_not_at_all_casts_one_by_one(other_paddle):
    right = paddle._C_ops.split

    def wrong(joined, lengths, axis):  # of gradients
        parts = right(joined, lengths, axis)
        return [parts[0] * 1.01, *parts[1:]] if joined.dtype == paddle.float32 else parts

    for split in (wrong, fail):
        other_paddle({"_C_ops.split": split})
        apart, together = time_casts(parameters(), paddle.bfloat16)
        assert 0 < apart < together == float("inf")


def test_all_ranks_cast_together_or_none_does(monkeypatch):
    def choose(number):
        precision = TrainingPrecision(True, "bfloat16", on_gpu=True)
        (line,) = precision.choose_casts(Mlp(8, 16))
        return line.partition(": ")[2], precision.half_weights

    # Paddle computes no gradients in two threads at once.
    monkeypatch.setattr(half_weights, "time_casts", lambda *_: (3e-3, 4e-3) if rank() else (2e-3, 1e-3))
    with forced_device():
        chosen = ThreadRanks(2).run(choose)
    assert chosen == [("4.00 ms together, 3.00 ms one by one on this GPU", None)] * 2


def test_a_layer_without_bias_stays_in_float32_where_autocast_is_off():
    x, layer = paddle.rand([2, 8]), Linear(8, 4, bias_attr=False)
    with HalfWeights([layer.weight], paddle.float16).in_use(), autocast.off():
        found = layer(x)
    np.testing.assert_array_equal(found.numpy(), paddle.matmul(x, layer.weight).numpy())


def test_a_weight_that_is_computed_from_others_is_not_cast_ahead():
    layer = paddle.nn.utils.weight_norm(Linear(8, 4))
    assert list_parameters(layer) == list_parameters(paddle.nn.Sequential(layer)) == []
