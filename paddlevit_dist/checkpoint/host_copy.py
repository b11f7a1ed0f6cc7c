"""Copies of tensors in the host's memory, and the file that ``paddle.save`` would write of them."""

from __future__ import annotations

import pickle
from typing import Any, BinaryIO, Dict, Mapping, NamedTuple, Union

import numpy as np
import paddle

from .. import paddle_versions

_NAME_TABLE = "StructuredToParameterName@@"  # Paddle's entry for the automatic names
_PROTOCOL = 4  # of pickle: Paddle's default


class HostTensor(NamedTuple):
    """A tensor's values, and the name that Paddle has given it."""

    array: np.ndarray
    name: str


Tensors = Mapping[str, Union[paddle.Tensor, HostTensor]]


class HostCopies:
    """Copies tensors, into the memory of the copy before where there is one: new memory takes the system much longer to
    give than the copy takes."""

    def __init__(self) -> None:
        self._arrays: Dict[str, np.ndarray] = {}

    def of(self, part: str, tensors: Mapping[str, paddle.Tensor]) -> Dict[str, HostTensor]:
        """Copies of ``tensors``, which the next call for the same part overwrites.

        Args:
            part: tells tensors of the same names apart.
        """
        return {name: HostTensor(self._copy(f"{part}/{name}", tensor), tensor.name) for name, tensor in tensors.items()}

    def _copy(self, key: str, tensor: paddle.Tensor) -> np.ndarray:
        values = paddle_versions.values_in_place(tensor)
        if values is None:
            return tensor.numpy()
        copy = self._arrays.get(key)
        if copy is None or copy.shape != values.shape or copy.dtype != values.dtype:
            copy = self._arrays[key] = np.empty(values.shape, values.dtype)
        np.copyto(copy, values)
        return copy


def host_values(tensors: Mapping[str, paddle.Tensor]) -> Dict[str, np.ndarray]:
    """The values of tensors, to be read before the tensors change: not copied where they are in the host's memory."""
    in_place = {name: paddle_versions.values_in_place(tensor) for name, tensor in tensors.items()}
    return {name: tensors[name].numpy() if values is None else values for name, values in in_place.items()}


def write_tensors(file: BinaryIO, tensors: Tensors) -> None:
    """Write what ``paddle.save`` writes of a model's state."""
    content: Dict[str, Any] = {}
    names = {}
    for key, tensor in tensors.items():
        content[key] = tensor.array if isinstance(tensor, HostTensor) else tensor.numpy()
        names[key] = tensor.name
    content[_NAME_TABLE] = names
    pickle.dump(content, file, protocol=_PROTOCOL)
