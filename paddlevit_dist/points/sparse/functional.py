"""``paddle.nn.functional`` on sparse tensors: ``functional.gelu(x)`` is ``x`` with the function of its features.

For functions that treat rows apart; they have the names and further arguments that they have in Paddle.
"""

from collections.abc import Callable
from typing import Any

import paddle.nn.functional

from .tensor import SparseTensor, require_sparse


def __getattr__(name: str) -> Callable[..., SparseTensor]:
    if name.startswith("_"):  # what Python asks of a module
        raise AttributeError(name)
    function = getattr(paddle.nn.functional, name)

    def on_features(x: SparseTensor, *arguments: Any, **named: Any) -> SparseTensor:
        require_sparse(name, x)
        return x.with_features(function(x.features, *arguments, **named) if x.features.shape[0] else x.features)

    return on_features
