"""A network that returns a sparse tensor trains under ``paddle.DataParallel`` with two processes."""

import numpy as np
from support.processes import run_together


def train():
    import paddle

    from paddlevit_dist.points.sparse import BatchNorm, Convolution, ReLU, SparseTensor

    paddle.seed(0)
    network = paddle.nn.Sequential(Convolution(1, 4, 3), BatchNorm(4), ReLU(), Convolution(4, 2, 1))
    model = paddle.DataParallel(network)
    places = np.c_[np.zeros(50, np.int32), np.arange(150).reshape(50, 3) % 7 + np.arange(50)[:, None]]
    for _ in range(2):
        model(SparseTensor(np.ones((50, 1), np.float32), places)).F.square().sum().backward()
    return [parameter.grad.numpy() for parameter in network.parameters() if not parameter.stop_gradient]


def test_every_parameter_has_the_same_gradient_on_both_ranks():
    one, other = run_together({"train": ("integration.points.test_sparse_outputs:train", ())})["train"]
    for first, second in zip(one, other):
        np.testing.assert_array_equal(first, second)
    assert all(np.abs(gradient).max() > 0 for gradient in (one[0], one[-1]))
