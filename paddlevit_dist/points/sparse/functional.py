"""``paddle.nn.functional`` on sparse tensors: ``functional.gelu(x)`` applies the function to the features of ``x``.

Only for functions that treat rows independently; names and further arguments are Paddle's.
"""

from collections.abc import Callable
from typing import Any

import paddle.nn.functional

from .tensor import SparseTensor, require_sparse


def __getattr__(name: str) -> Callable[..., SparseTensor]:
    if name.startswith("_"):  # Python looks up such names in every module
        raise AttributeError(name)
    function = getattr(paddle.nn.functional, name)

    def on_features(x: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
        require_sparse(name, x)
        return x.with_features(function(x.features, *args, **kwargs) if x.features.shape[0] else x.features)

    return on_features
