"""Which tensor of a pass is the first that is not finite, in whatever a layer takes and returns."""

from types import SimpleNamespace

import paddle
import pytest

from paddlevit_dist.extensions.debug.layer_watch import BadTensor, LayerWatch, find_first_operation

NAN, INF = float("nan"), float("inf")


class Doubling(paddle.nn.Layer):
    """Doubles; the output is one value or several, in any wrapping."""

    def __init__(self, wrap=lambda value: value) -> None:
        super().__init__()
        self.wrap = wrap

    def forward(self, value):
        return self.wrap(value * 2)


class DoublingNetwork(paddle.nn.Layer):
    """Two layers, what is between them, and what comes last."""

    def __init__(self, wrap=lambda value: value, between=lambda value: value, last=lambda value: value) -> None:
        super().__init__()
        self.first, self.second = Doubling(wrap), Doubling()
        self.between, self.last = between, last

    def forward(self, value):
        return self.last(self.second(self.between(self.first(value))))


def run(network, values, samples=3) -> BadTensor | None:
    watch = LayerWatch(network, samples)
    network(paddle.to_tensor(values, dtype="float32"))
    watch.close()
    network(paddle.to_tensor([NAN]))  # no longer watched
    return watch.first_bad


FIRST, MODEL = "the output of layer 'first' (Doubling)", "the output of the model (DoublingNetwork)"


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, None),
        ({"wrap": lambda x: x * INF}, BadTensor(2, FIRST, 6, 6, [0, 1, 2])),
        (
            {"between": lambda x: x / (x - 4)},
            BadTensor(3, f"the input of layer 'second' (Doubling), computed after {FIRST},", 1, 6, [1]),
        ),
        ({"last": lambda x: x + paddle.to_tensor([[0.0], [NAN], [INF]])}, BadTensor(6, MODEL, 4, 6, [1, 2])),
        ({"last": lambda x: [(x, x), {"a": x, "b": (x / 0).sum()}]}, BadTensor(9, MODEL, 1, 1, None)),
        ({"last": lambda x: paddle.concat([x, x[:1] * NAN])}, BadTensor(6, MODEL, 2, 8, None)),
        ({"last": lambda x: SimpleNamespace(a=3, b=x, c=x[1:] * NAN)}, BadTensor(7, MODEL, 4, 4, None)),
        ({"last": lambda x: [x.astype("int64") * 0, Doubling()]}, None),
    ],
)
def test_the_first_output_or_input_that_is_not_finite_is_kept(changes, expected):
    assert run(DoublingNetwork(**changes), [[1, 5], [2, 3], [4, 6]]) == expected


def test_gradients_are_checked_from_the_last_parameter_to_the_first():
    network = paddle.nn.Sequential(paddle.nn.Linear(2, 2), paddle.nn.Linear(2, 1), paddle.nn.Linear(1, 1))
    network[1].weight.stop_gradient = True
    network(paddle.ones([3, 2])).sum().backward()
    for layer in (0, 1):
        network[layer].bias.grad.set_value(paddle.full_like(network[layer].bias, INF))
    watch = LayerWatch(network, 2)
    watch.check_gradients(network)
    assert watch.first_bad == (3, "the gradient of '1.bias'", 1, 1, None)
    watch.check(paddle.to_tensor([NAN]), "another")
    assert watch.first_bad.what == "the gradient of '1.bias'"


def test_the_gradient_of_an_output_is_checked_in_the_backward_pass():
    network = DoublingNetwork(
        wrap=lambda x: [x, x.detach(), x.astype("int64")], between=lambda parts: (parts[0] - 4).sqrt()
    )
    values = paddle.to_tensor([[2.0], [4.0]], stop_gradient=False)
    watch = LayerWatch(network, 2)
    loss = network(values).sum()
    assert watch.first_bad is None
    loss.backward()
    assert watch.first_bad[1:] == ("the gradient of the output of layer 'first' (Doubling)", 1, 2, [0])


def test_the_operation_is_told_that_fails_in_the_model_not_before_it():
    network = DoublingNetwork(between=lambda x: paddle.log(x - 4))

    def infer(values):
        return find_first_operation(network, lambda: network(paddle.to_tensor(values) / paddle.to_tensor([1.0, 0.0])))

    assert infer([3.0, 0.0]) is not None and paddle.get_flags(["FLAGS_check_nan_inf"]) == {"FLAGS_check_nan_inf": False}
    assert find_first_operation(network, lambda: paddle.log(paddle.zeros([1]))) is None  # outside of the model
    assert find_first_operation(network, lambda: network(paddle.to_tensor([2.0]))) == "log"
    assert find_first_operation(network, lambda: network(paddle.to_tensor([3.0]))) is None
    assert not network._forward_pre_hooks

    def fail():
        raise RuntimeError("of something else")

    assert find_first_operation(network, fail) is None
