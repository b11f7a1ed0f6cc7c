"""The mean of the probabilities of several views, against NumPy in float64."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.images.views import compute_logits, join_sigmoid, join_softmax


def softmax(logits):
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


@pytest.mark.parametrize(("join", "activation"), [(join_softmax, softmax), (join_sigmoid, sigmoid)])
@pytest.mark.parametrize("factor", [1, 30])
def test_the_activation_of_the_joined_logits_is_the_mean_of_the_views_activations(join, activation, factor):
    logits = factor * np.random.default_rng(0).standard_normal((3, 5, 7))
    joined = join([paddle.to_tensor(view.astype(np.float32)) for view in logits])
    assert joined.shape == [5, 7] and joined.dtype == paddle.float32
    expected = activation(logits.astype(np.float32).astype(np.float64)).mean(axis=0)
    np.testing.assert_allclose(activation(joined.numpy().astype(np.float64)), expected, rtol=2e-5)


@pytest.mark.parametrize("join", [join_softmax, join_sigmoid])
def test_equal_views_are_one_view_and_half_precision_is_widened(join):
    logits = paddle.to_tensor([[2.0, -1.5, 0.25], [0.0, 88.0, -60.0]])
    one = join([logits])
    np.testing.assert_allclose(join([logits] * 4).numpy(), one.numpy(), atol=1e-6)
    half = join([logits.astype("float16")] * 2)
    assert half.dtype == paddle.float32 and np.isfinite(half.numpy()).all()


def test_probabilities_near_zero_stay_finite_and_undefined_ones_undefined():
    logits = paddle.to_tensor([[0.0, 3e4], [np.nan, 0.0]])
    joined = join_softmax([logits, logits]).numpy()
    np.testing.assert_allclose(joined[0], [-3e4, 0.0])
    assert np.isnan(joined[1]).any()


def test_one_view_of_the_whole_batch_is_computed_at_a_time():
    seen = []

    def compute(images):
        seen.append(images.shape)
        return images.mean(axis=[1, 2, 3]).unsqueeze(1) * paddle.to_tensor([1.0, 2.0])

    images = paddle.to_tensor(np.random.default_rng(0).standard_normal((4, 6, 3, 5, 8)).astype(np.float32))
    compute_logits(compute, images, join_softmax)
    assert seen == [[4, 3, 5, 8]] * 6
    seen.clear()
    plain = compute_logits(compute, images[:, 1], join_softmax)
    np.testing.assert_array_equal(plain.numpy(), compute(images[:, 1]).numpy())
