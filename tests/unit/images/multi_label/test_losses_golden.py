"""Losses of several labels against torch's and the asymmetric loss of its authors."""

import re

import numpy as np
import paddle
import pytest
from support.networks import golden

from paddlevit_dist.images.multi_label.losses import asymmetric_loss, binary_cross_entropy, smooth_labels

STORED = golden.description("multilabel")
NAMES = [name for name in STORED["losses"] if not name.endswith("_full_gradient")]
ARRAYS = golden.arrays("multilabel")


def compute(name, logits, targets, known):
    if name.startswith("bce_smoothing_"):
        return binary_cross_entropy(logits, smooth_labels(targets, float(name.rpartition("_")[2])), known)
    if name.startswith("bce"):
        weights = STORED["positive_weight"] if name == "bce_positive_weight" else None
        return binary_cross_entropy(logits, targets, known, weights and paddle.to_tensor(weights, "float64"))
    gammas = re.fullmatch(r"asymmetric_([\d.]+)_([\d.]+)_([\d.]+)", name)
    return asymmetric_loss(logits, targets, known, *map(float, gammas.groups()))


@pytest.mark.parametrize("name", NAMES)
def test_golden_losses_and_gradients_in_float64(name):
    logits = paddle.to_tensor(ARRAYS["logits"], stop_gradient=False)
    targets = paddle.to_tensor(ARRAYS["truth"].astype(np.float64))
    counted = ARRAYS["known"] if name.endswith("_known") else np.ones_like(ARRAYS["known"])
    loss = compute(name, logits, targets, paddle.to_tensor(counted.astype(np.float64))) / int(counted.sum())
    loss.backward()
    value, norm = STORED["losses"][name]
    gradient = logits.grad.numpy()
    np.testing.assert_allclose(float(loss), value, rtol=1e-10)
    np.testing.assert_allclose(np.sqrt((gradient**2).sum()), norm, rtol=1e-10)
    np.testing.assert_allclose(gradient, ARRAYS[f"gradient/{name}"], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", [name for name in STORED["losses"] if name.endswith("_full_gradient")])
def test_golden_full_gradient_is_another_one_of_the_same_loss(name):
    """The authors' default has no gradient through the focusing weight: what differs is that alone."""
    plain = name.removesuffix("_full_gradient")
    assert STORED["losses"][name][0] == pytest.approx(STORED["losses"][plain][0], rel=1e-12)
    assert not np.allclose(ARRAYS[f"gradient/{name}"], ARRAYS[f"gradient/{plain}"], rtol=1e-3)
