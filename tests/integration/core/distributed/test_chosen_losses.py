"""Ranks use one way to compute cross-entropy: the first that is right on each of their devices."""

import numpy as np
import paddle
import pytest
from support.processes import run_together

from paddlevit_dist import UserError
from paddlevit_dist.core.distributed import rank
from paddlevit_dist.core.losses import choose_cross_entropy, cross_entropies, cross_entropy

LOGITS, LABELS = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("float32"), np.array([[0, 4, 2], [1, 1, 3]])


def choose(wrong_on: dict[str, list[int]]) -> tuple[list[str], list[str], np.ndarray]:
    """The lines of the log, the ways that computed a loss then, and the loss. The ways are wrong on these ranks."""
    used = []

    def make(name, right):
        factor = 2.0 if rank() in wrong_on.get(name, []) else 1.0
        return lambda *given: used.append(name) or right(*given) * factor

    try:
        lines = choose_cross_entropy({name: make(name, way) for name, way in cross_entropy.CANDIDATES.items()})
    except UserError as error:
        return [str(error)], [], np.empty(0)
    used.clear()
    losses = cross_entropies(paddle.to_tensor(LOGITS), paddle.to_tensor(LABELS), -1, axis=1).numpy()
    return lines, used, losses


NAMES = list(cross_entropy.CANDIDATES)
# The number of the way that is chosen -> by the number of a way, the ranks on which it is wrong.
WRONG = {0: {}, 1: {0: [1]}, 2: {0: [0], 1: [1]}, None: {0: [0], 1: [1], 2: [0, 1]}}


@pytest.fixture(scope="module")
def seen():
    """What each rank sees, by the way that is chosen: one choice after the other."""
    calls = {chosen: {NAMES[number]: ranks for number, ranks in wrong_on.items()} for chosen, wrong_on in WRONG.items()}
    target = "integration.core.distributed.test_chosen_losses:choose"
    return run_together({chosen: (target, (given,)) for chosen, given in calls.items()})


@pytest.mark.parametrize("chosen", WRONG)
def test_the_ranks_use_the_first_way_that_is_right_on_all(seen, chosen):
    results = seen[chosen]
    (lines, *_), (other_lines, *_) = results
    assert lines == other_lines and len(lines) == (chosen != 0)
    exponents = np.exp(LOGITS.astype("float64"))
    expected = -np.log(np.take_along_axis(exponents / exponents.sum(1, keepdims=True), LABELS[:, None], 1))[:, 0]
    for _, used, losses in results:
        assert used == ([] if chosen is None else [NAMES[chosen]])
        if used:
            np.testing.assert_allclose(losses, expected, rtol=1e-5)
    if chosen is None:
        assert "this device computes no cross-entropy as NumPy does" in lines[0]
