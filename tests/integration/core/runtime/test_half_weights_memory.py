"""Weights are cast to half precision in little memory."""

import paddle
import pytest
from unit.core.runtime.test_half_weights import allocated

from paddlevit_dist.core.runtime.half_weights import HalfWeights, find


@pytest.mark.skipif(
    not hasattr(paddle.base.core, "host_memory_stat_reset_peak_value"), reason="Paddle 2.6 keeps the peak of a process"
)
def test_little_memory_is_taken_to_join_large_weights():
    """By all of these together it would be 240 MB."""
    trained = [paddle.zeros([1 << 23], "float32") for _ in range(5)]
    for parameter in trained:
        parameter.stop_gradient = False
    paddle.base.core.host_memory_stat_reset_peak_value("Allocated", 0)
    before, result = allocated("current"), 2 * sum(parameter.size for parameter in trained)
    with HalfWeights(trained, paddle.float16).in_use():
        halves = [find(parameter) for parameter in trained]
    assert allocated("current") - before == pytest.approx(result, rel=0.01)
    assert allocated("peak") - before < result + 80e6
    del halves
