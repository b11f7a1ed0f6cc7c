"""Masks of a few logits each at the size of a stored image."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.images.mask_queries.mask_logits import encode_logits, resize
from paddlevit_dist.images.run_lengths import decode


@pytest.mark.parametrize("size", [(31, 50), (9, 12), (5, 7)])
def test_masks_are_inside_where_the_resized_logit_is_above_0(size):
    random = np.random.default_rng(0)
    logits = random.standard_normal((6, 9, 12)).astype("float32")
    logits[0], logits[1], logits[2, :, 3:] = -1, 1, -1  # nothing, everything, the left only
    logits[3, :, :9] = -1
    resized = paddle.nn.functional.interpolate(paddle.to_tensor(logits)[None], size, mode="bilinear")[0].numpy()
    np.testing.assert_allclose(resize(paddle.to_tensor(logits), size).numpy(), resized, rtol=0, atol=1e-5)
    found = np.array([decode(mask, *size) for mask in encode_logits(logits, size)])
    is_clear = np.abs(resized) > 1e-5
    np.testing.assert_array_equal(found[is_clear], (resized > 0)[is_clear])
    assert found[0].sum() == 0 and found[1].all() and 0 < found[2].sum() < found[2].size
