"""Collectives whose result every rank gets: sums, gathered objects, broadcasts, barriers.

Every rank must call each function here, in the same order. With one process, each returns at once. On CPUs, a gloo
collective fails after 30 seconds if one rank is late, so the ranks first wait at the store (``exchange``).
"""

import functools
import math
import operator
import pickle
from typing import Any, NamedTuple

import numpy as np
import paddle
import paddle.distributed as dist

from ..launch import secret, status
from ..runtime import device_kinds
from . import world
from .exchange import StoreChannel

_REDUCE_ON_HOST_BYTES = 16 * 1024  # smaller entries are gathered together and summed on each rank

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")


def all_gather(data: object) -> list[Any]:
    """Gather the ``data`` of every rank. Every rank must call this.

    Args:
        data: any picklable object; sizes may differ between ranks.

    Returns:
        The objects of all ranks in rank order, ``world_size`` entries. This rank's entry is a copy, too. With one
        process, it is the object itself.
    """
    if world.world_size() == 1:
        return [data]
    return _exchange("all_gather", _pickle(data))


def broadcast_object(data: Any, source: int = 0) -> Any:
    """Return rank ``source``'s ``data`` on every rank. Every rank must call this.

    Args:
        data: any picklable object; ignored on the other ranks.
        source: the sending rank.
    """
    if world.world_size() == 1:
        return data
    return _exchange("broadcast_object", _pickle(data if world.rank() == source else None))[source]


def reduce_dict(values: dict[Any, Any], average: bool = True) -> dict[Any, Any]:
    """Sum or average each entry over all ranks. Every rank must call this.

    Args:
        values: Python numbers, numpy arrays or paddle tensors by name, of any shape and of dtype float16, bfloat16,
            float32, float64, bool or integer. All ranks need the same names with the same shapes and dtypes.
        average: divide by the number of processes. The mean over ranks weights all ranks equally; to average over
            samples, reduce sums and counts with ``average=False`` and divide once.

    Returns:
        A new dictionary, equal on every rank, with the same names in the same order and the same shapes. Sums of floats
        keep their dtype, sums of integers and bool are int64, averages of these are float64. Numbers stay numbers,
        arrays stay arrays, and tensors stay tensors.

    Raises:
        ValueError: names, shapes or dtypes differ between ranks; on every rank.
        TypeError: an entry has another type or dtype.
    """
    entries = {name: _ValueSignature.from_value(name, value) for name, value in values.items()}
    if world.world_size() == 1:
        sums = [_to_host(value) for value in values.values()]
        return {name: entry.result(total, 1, average) for (name, entry), total in zip(entries.items(), sums)}
    ordered = sorted(entries, key=repr)
    signature = [(name, entries[name].kind, entries[name].dtype, entries[name].shape) for name in ordered]
    large = [name for name in ordered if entries[name].num_bytes > _REDUCE_ON_HOST_BYTES]
    small = [name for name in ordered if entries[name].num_bytes <= _REDUCE_ON_HOST_BYTES]
    payload = [_to_host(values[name]) for name in small]
    messages = _exchange("reduce_dict", _pickle((signature, payload)))
    _check_signatures([message[0] for message in messages])
    columns = zip(*[message[1] for message in messages])  # each rank adds in rank order
    totals = {name: functools.reduce(operator.add, column) for name, column in zip(small, columns)}
    totals.update(zip(large, _reduce_on_device([values[name] for name in large])))
    count = world.world_size()
    return {name: entry.result(totals[name], count, average) for name, entry in entries.items()}


def all_reduce_sum(tensor: paddle.Tensor) -> paddle.Tensor:
    """Sum a float32, float64 or int64 tensor over all ranks in place. Every rank must call this.

    It is meant for training steps: it checks nothing and does not block the host, except for float64 where the device's
    collectives do not support it.
    """
    if world.world_size() == 1:
        return tensor
    if tensor.dtype == paddle.float64 and not device_kinds.current().exchanges_float64:
        tensor.set_value(functools.reduce(operator.add, all_gather(tensor.numpy())))
    else:
        dist.all_reduce(tensor)
    return tensor


def broadcast_flat(values: paddle.Tensor | None, size: int, owner: int) -> paddle.Tensor:
    """Return the owner's values, float32 (size,) and None elsewhere, on every rank. Every rank must call this.

    It is meant for training steps: on a GPU the host does not wait. On CPUs it waits for late ranks first.
    """
    flat = paddle.empty([size], "float32") if values is None else values
    if flat.place.is_cpu_place():
        host_barrier()
    dist.broadcast(flat, src=owner)
    return flat


def gather_float64(tensor: paddle.Tensor) -> list[paddle.Tensor]:
    """Return every rank's float64 tensor, all of one shape, in rank order. Every rank must call this.

    The tensors pass through the host if the device's collectives do not support float64.
    """
    if not device_kinds.current().exchanges_float64:
        return [paddle.to_tensor(values) for values in all_gather(tensor.numpy())]
    gathered: list[paddle.Tensor] = []
    dist.all_gather(gathered, tensor)
    return gathered


def barrier(timeout: float | None = None) -> None:
    """Wait until every rank has called this. Every rank must call this.

    Args:
        timeout: seconds to wait; None: no limit.

    Raises:
        TimeoutError: some ranks did not arrive in time; the message names them. The run must end then, because late
            ranks count this rank as arrived at their own call.
        ConnectionError: a rank's process ended before arriving (if ranks share a machine and ``timeout`` is None).
    """
    if world.world_size() > 1:
        with status.during("in a barrier"):
            get_channel().wait_for_all(timeout)


def host_barrier() -> None:
    """Wait until every rank has called this, cheaply enough for every step. Every rank must call this.

    Groups on CPUs call it right before they exchange tensors, so that a late rank is waited for here without a time
    limit. Raises ConnectionError if a rank's process ended before arriving (if ranks share a machine).
    """
    if world.world_size() > 1:
        get_channel().wait_for_all()


_channel: StoreChannel | None = None


def get_channel() -> StoreChannel:
    """Return the group's channel, created on the first collective call of any program."""
    global _channel
    if _channel is None:
        _channel = StoreChannel(paddle.base.core.create_or_get_global_tcp_store(), *world.place())
    return _channel


def _exchange(purpose: str, message: memoryview) -> list[Any]:
    """Return the object of every rank's message in rank order, after its signature is verified.

    ``purpose``: name of the collective, which is signed; ``message``: from ``_pickle``, with room for the signature.
    """
    channel = get_channel()
    channel.exchanges += 1  # equal on all ranks; a message of another exchange has an invalid signature
    number, this_rank, content_here = channel.exchanges, world.rank(), message[secret.SIGNATURE_BYTES :]

    def read(rank: int, received: Any) -> Any:
        if rank == this_rank:  # never sent, so nothing to verify
            return pickle.loads(content_here)
        # Views, because slicing a memory map would copy it; released before the map is closed.
        with memoryview(received) as whole, secret.verify(whole, purpose, number, rank) as content:
            return pickle.loads(content)

    with status.during("in an exchange of values"):
        return channel.exchange(secret.sign(message, purpose, number, this_rank), read)


class _ValueSignature(NamedTuple):
    """Type, dtype and shape of one value of ``reduce_dict``."""

    kind: str  # "number", "array" or "tensor"
    dtype: str
    shape: tuple

    @classmethod
    def from_value(cls, name: object, value: object) -> "_ValueSignature":
        """Return the signature of a value, or raise TypeError if ``reduce_dict`` does not take it."""
        if isinstance(value, (bool, int, float)):
            return cls("number", "", ())  # one rank may have 0 where another has 0.5
        if isinstance(value, paddle.Tensor):
            kind, dtype = "tensor", str(value.dtype).rpartition(".")[2]
        elif isinstance(value, (np.ndarray, np.generic)):
            kind, dtype = "array", str(value.dtype)
        else:
            raise TypeError(f"reduce_dict takes numbers, arrays and tensors; '{name}' is a {type(value).__name__}")
        if dtype not in _FLOATS + _INTEGERS:
            raise TypeError(f"reduce_dict cannot add dtype {dtype} of '{name}'; use one of {_FLOATS + _INTEGERS}")
        return cls(kind, dtype, tuple(value.shape))

    @property
    def num_bytes(self) -> int:
        return 8 * math.prod(self.shape)

    def result(self, total: Any, count: int, average: bool) -> Any:
        """Convert the sum, a host value or a tensor, to the type of the caller's value."""
        if self.kind == "number":
            return total / count if average else total
        is_integer = self.dtype in _INTEGERS
        dtype = "int64" if is_integer else self.dtype
        if average:
            dtype = "float64" if is_integer else self.dtype
            total = (total.astype("float64") if is_integer else total) / count
        if self.kind == "array":
            total = total.numpy() if isinstance(total, paddle.Tensor) else np.asarray(total)
            return total.reshape(self.shape).astype(dtype)
        if not isinstance(total, paddle.Tensor):
            total = paddle.to_tensor(np.asarray(total))
        return total.reshape(list(self.shape)).astype(dtype)


def _to_host(value: Any) -> Any:
    """Convert to a Python number, or to an array wide enough for exact (int64) or once rounded (float64) sums."""
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float):
        return value
    if isinstance(value, paddle.Tensor):
        # numpy has no bfloat16: widen on the device first.
        value = value.detach()
        value = (value.astype("float32") if value.dtype == paddle.bfloat16 else value).numpy()
    return np.asarray(value).astype(np.float64 if np.asarray(value).dtype.kind == "f" else np.int64)


def _reduce_on_device(values: list[Any]) -> list[paddle.Tensor]:
    """Sum large values with one all-reduce per carrier dtype: float32, float64 and int64."""
    tensors = [value.detach() if isinstance(value, paddle.Tensor) else paddle.to_tensor(value) for value in values]
    wide = {"float16": "float32", "bfloat16": "float32", "float32": "float32", "float64": "float64"}
    carriers = [wide.get(str(tensor.dtype).rpartition(".")[2], "int64") for tensor in tensors]
    sums: list[paddle.Tensor | None] = [None] * len(tensors)
    for carrier in sorted(set(carriers)):
        members = [index for index, name in enumerate(carriers) if name == carrier]
        flat = [tensors[index].reshape([-1]).astype(carrier) for index in members]
        buffer = paddle.concat(flat)  # (total elements in this carrier,)
        if buffer.shape[0]:  # gloo aborts the process on an empty tensor
            all_reduce_sum(buffer)
        start = 0
        for i, part in zip(members, flat):
            sums[i] = buffer[start : start + part.shape[0]]
            start += part.shape[0]
    return sums


def _check_signatures(signatures: list[list]) -> None:
    """Check that all ranks passed the same entries. Raises ValueError if they did not; on every rank."""
    reference = signatures[0]
    for number, signature in enumerate(signatures):
        if signature == reference:
            continue
        entries, other_entries = ({entry[0]: entry[1:] for entry in s} for s in (reference, signature))
        only_first = [entry for entry in entries if entry not in other_entries]
        only_other = [entry for entry in other_entries if entry not in entries]
        if only_first or only_other:
            what = f"only on rank 0: {only_first}, only on rank {number}: {only_other}"
        else:
            name = next(entry for entry in entries if entries[entry] != other_entries[entry])
            what = f"'{name}' is {entries[name]} on rank 0 and {other_entries[name]} on rank {number}"
        raise ValueError(f"reduce_dict needs the same entries on every rank; {what}")


def _pickle(data: object) -> memoryview:
    """Pickle ``data`` after room for a signature, because prepending one later would copy a large message."""
    content = _Message(secret.SIGNATURE_BYTES)
    pickle.dump(data, content, protocol=pickle.HIGHEST_PROTOCOL)
    return memoryview(content)


class _Message(bytearray):
    """Bytes that grow as a file does. Python 3.12 crashes where its garbage collector ends a view of io.BytesIO."""

    __slots__ = ()
    write = bytearray.extend
