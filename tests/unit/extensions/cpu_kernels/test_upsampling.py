"""Cross-entropy at the size of the labels, without logits of that size, is that of the plain function."""

import contextlib

import numpy as np
import paddle
import pytest
from support.networks.fast_layers import assert_close
from support.networks.plain_layers import plain_layers

from paddlevit_dist.core.losses import resized_cross_entropy
from paddlevit_dist.extensions.cpu_kernels.accelerate import is_available

pytestmark = pytest.mark.skipif(not is_available(), reason="Paddle has no MKL here")


@pytest.mark.parametrize("size, large", [((3, 5), (13, 20)), ((7, 9), (7, 9)), ((12, 9), (5, 4)), ((1, 1), (3, 2))])
@pytest.mark.parametrize("weights", [None, (0.5, 2.0, 0.0, *[1.0] * 16)])
def test_cross_entropy_at_the_size_of_the_labels(size, large, weights):
    random = np.random.default_rng(0)
    logits, labels = random.standard_normal((2, 19, *size)).astype(np.float32), random.integers(0, 19, (2, *large))
    labels[random.random(labels.shape) < 0.3] = 255
    found = []
    for _ in range(2):
        given = paddle.to_tensor(4 * logits, stop_gradient=False)
        loss = resized_cross_entropy(given, paddle.to_tensor(labels), 255, weights)
        with paddle.no_grad():
            alone = resized_cross_entropy(given, paddle.to_tensor(labels), 255, weights)
        (0.3 * loss).backward()
        found.append({"loss": loss.numpy(), "alone": alone.numpy(), "gradient": given.grad.numpy()})
        if len(found) == 1:
            stack = contextlib.ExitStack()
            stack.enter_context(plain_layers())
    stack.close()
    assert_close(*found)
    assert (found[0]["gradient"] != found[1]["gradient"]).any()


def test_a_label_that_is_no_class_is_refused():
    for label in (-1, 3, 254):
        with pytest.raises(ValueError, match=f"^label {label} is neither one of 3 classes nor 255"):
            resized_cross_entropy(paddle.zeros([1, 3, 2, 2]), paddle.full([1, 4, 4], label, "int64"), 255)
