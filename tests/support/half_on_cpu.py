"""Products in another precision than their inputs', on a CPU, where Paddle leaves autocast off."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import paddle
import pytest

from paddlevit_dist.core.runtime import biases

OWN = ("_amp_level", "_amp_dtype")


class AutocastTracer:
    """Paddle's tracer as it is on a device with half precision; it computes as ever."""

    def __init__(self, tracer: Any, dtype: str) -> None:
        vars(self).update(_tracer=tracer, _amp_level=paddle.base.core.AmpLevel.O1, _amp_dtype=dtype)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_tracer"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self).update({name: value}) if name in OWN else setattr(vars(self)["_tracer"], name, value)


@contextlib.contextmanager
def products_in(dtype: str, fused_linear: Callable | None = None) -> Iterator[None]:
    """Let products be in ``dtype``, such as "float64"; ``fused_linear`` computes those that add their bias themselves.

    Without it, the device has none.
    """
    tracer, framework = AutocastTracer(paddle.base.framework._dygraph_tracer(), dtype), paddle.base.framework
    stand_ins: list[tuple[Any, str, Callable]] = [(framework, "_dygraph_tracer", lambda: tracer)]
    if fused_linear is not None:
        has_epilogue = lambda weight, bias, products: products == getattr(paddle, dtype)  # noqa: E731
        stand_ins += [(biases, "has_epilogue", has_epilogue), (biases, "fused_linear", fused_linear)]
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, stand_in in stand_ins:
            patch.setattr(owner, name, stand_in)
        yield
