"""Networks whose initial weights are not looked at, or replaced at once: drawing them would take most of the time.
And those of whose gradients few are looked at."""

import contextlib
from collections.abc import Collection, Iterator
from unittest import mock

import paddle
from paddle.nn.initializer import Constant, KaimingNormal, Normal, TruncatedNormal, Uniform, XavierUniform


@contextlib.contextmanager
def weights_of_zero() -> Iterator[None]:
    """All that would be drawn is zero meanwhile."""
    with contextlib.ExitStack() as patches:
        for kind in (KaimingNormal, Normal, TruncatedNormal, Uniform, XavierUniform):
            patches.enter_context(mock.patch.object(kind, "forward", _zero))
        yield


def _zero(self, var, block=None):
    return Constant(0.0)(var, block)


def learn_only(network: paddle.nn.Layer, names: Collection[str]) -> None:
    """Compute no gradients of other matrices and kernels than these.

    Those of vectors stay: Paddle's layer norm on CPUs gives its input a wrong gradient where that of its weight is not
    asked for.
    """
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1 and name not in names:
            parameter.stop_gradient = True
