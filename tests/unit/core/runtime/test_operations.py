"""Operations without Paddle's functions around them have their results, also in a static graph."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.runtime import operations

X = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype("float32"))
CALLS = {
    "reshape": (lambda x: operations.reshape(x, [-1, 3, 24]), lambda x: x.reshape([-1, 3, 24])),
    "transpose": (lambda x: operations.transpose(x, [0, 2, 1, 3]), lambda x: x.transpose([0, 2, 1, 3])),
    "matmul": (
        lambda x: operations.matmul(x, x, transpose_y=True),
        lambda x: paddle.matmul(x, x, transpose_y=True),
    ),
    "softmax": (operations.softmax, lambda x: paddle.nn.functional.softmax(x, axis=-1)),
    "split": (lambda x: operations.split(x, 3, 3)[1], lambda x: x.split(3, axis=3)[1]),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_and_gradients_are_paddles(name):
    found, expected = [], []
    for values, function in zip((found, expected), CALLS[name]):
        x = X.clone().detach()
        x.stop_gradient = False
        result = function(x)
        values.extend([result, *paddle.grad((result * result).sum(), [x])])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_a_static_graph_computes_the_same():
    class Network(paddle.nn.Layer):
        def forward(self, x):
            for ours, _ in CALLS.values():
                result = ours(x)
            return result + operations.call(self.inner, x)[..., :2]

    network = Network()
    network.inner = paddle.nn.Softmax()
    expected = network(X).numpy()
    graph = paddle.jit.to_static(network, full_graph=True, backend=None)
    np.testing.assert_allclose(graph(X).numpy(), expected, rtol=1e-6)


def test_a_layer_with_hooks_is_called_with_them():
    layer, seen = paddle.nn.ReLU(), []
    assert operations.call(layer, X).min() >= 0
    layer.register_forward_post_hook(lambda *_: seen.append("after"))
    layer.register_forward_pre_hook(lambda *_: seen.append("before"))
    operations.call(layer, X)
    assert seen == ["before", "after"]


def test_a_layer_that_does_more_than_its_class_is_changed():
    layers = [paddle.nn.ReLU() for _ in range(4)]
    layers[1].register_forward_pre_hook(lambda *_: None)
    layers[2].register_forward_post_hook(lambda *_: None)
    layers[3].forward = lambda x: x
    assert [operations.is_changed(layer) for layer in layers] == [False, True, True, True]
