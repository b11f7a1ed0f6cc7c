"""Collectives whose result every rank gets: sums, gathered objects, broadcasts, barriers.

Every function here must be called by every rank, in the same order. With one process each returns at once.

On the CPU (gloo) a collective fails after 30 seconds if one rank is late, whatever timeout is requested; so the ranks
first synchronize where they can wait for as long as it takes (``exchange``).
"""

import functools
import io
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

_REDUCE_ON_HOST_BYTES = 16 * 1024  # smaller entries travel together in one gather and are summed by each rank

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")


def all_gather(data: Any) -> list[Any]:
    """The list of every rank's ``data``, in rank order, on every rank. Every rank must call this.

    Args:
        data: any picklable object; sizes may differ between ranks.
    Returns:
        ``world_size`` objects; this rank's own entry is a copy too, as on all other ranks. With one process, the
        object itself.
    """
    if world.world_size() == 1:
        return [data]
    return _exchange("all_gather", _pickle(data))


def broadcast_object(data: Any, source: int = 0) -> Any:
    """Rank ``source``'s ``data`` on every rank. Every rank must call this; other ranks' ``data`` is ignored."""
    if world.world_size() == 1:
        return data
    return _exchange("broadcast_object", _pickle(data if world.rank() == source else None))[source]


def reduce_dict(values: dict[Any, Any], average: bool = True) -> dict[Any, Any]:
    """Sum or average each entry over all ranks; the result is the same on every rank. Every rank must call this.

    Args:
        values: names to Python numbers, numpy arrays or paddle tensors of any shape and of float16, bfloat16,
            float32, float64, bool or integer dtype. All ranks need the same names with the same shapes and dtypes.
        average: divide by the number of processes. The mean over ranks weights all ranks equally; to average over
            samples, reduce sums and counts with ``average=False`` and divide once.
    Returns:
        A new dictionary with the same names in the same order and the same shapes. Sums keep their dtype (int64 is
        exact; bool counts in int64), averages of integers are float64. Numbers stay numbers, arrays stay arrays, and
        tensors stay tensors.
    Raises:
        ValueError: names, shapes or dtypes differ between ranks; raised on every rank.
        TypeError: an entry is none of the above.
    """
    entries = {name: _ValueSignature.of(name, value) for name, value in values.items()}
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
    columns = zip(*[message[1] for message in messages])  # added in the order of ranks, on each
    totals = {name: functools.reduce(operator.add, column) for name, column in zip(small, columns)}
    totals.update(zip(large, _reduce_on_device([values[name] for name in large])))
    count = world.world_size()
    return {name: entry.result(totals[name], count, average) for name, entry in entries.items()}


def all_reduce_sum(tensor: paddle.Tensor) -> paddle.Tensor:
    """Sum a float32, float64 or int64 tensor over all ranks in place, without checks and, but for float64 on a device
    whose collectives have none, without blocking the host: for use inside a training step, where every rank is known to
    call it. Every rank must call this."""
    if world.world_size() == 1:
        return tensor
    if tensor.dtype == paddle.float64 and not device_kinds.current().exchanges_float64:
        tensor.set_value(functools.reduce(operator.add, all_gather(tensor.numpy())))
    else:
        dist.all_reduce(tensor)
    return tensor


def gather_float64(tensor: paddle.Tensor) -> list[paddle.Tensor]:
    """Every rank's float64 tensor, all of one shape, in rank order; by way of the host where the device's collectives
    have no float64. Every rank must call this."""
    if not device_kinds.current().exchanges_float64:
        return [paddle.to_tensor(values) for values in all_gather(tensor.numpy())]
    gathered: list[paddle.Tensor] = []
    dist.all_gather(gathered, tensor)
    return gathered


def barrier(timeout: float | None = None) -> None:
    """Wait until every rank has reached this call. Every rank must call this.

    Args:
        timeout: seconds to wait; None waits for as long as it takes.
    Raises:
        TimeoutError: some ranks did not arrive in time; the message names them. The run is to end then: late ranks take
            the arrival of this one for that at their own call.
        ConnectionError: a rank's process ended before arriving (if ranks share a machine and no timeout is given).
    """
    if world.world_size() > 1:
        with status.during("in a barrier"):
            network_of_group().wait_for_all(timeout)


def host_barrier() -> None:
    """Wait until every rank is here, as a ``barrier`` does, but cheaply enough for every update. Every rank must call
    this.

    For groups on CPUs, right before they exchange tensors: a late rank is waited for here, for as long as it takes.

    Raises:
        ConnectionError: a rank's process ended before arriving (if ranks share a machine).
    """
    if world.world_size() > 1:
        network_of_group().wait_for_all()


_network: StoreChannel | None = None


def network_of_group() -> StoreChannel:
    """The group's channel, created on the first collective call, whoever started the processes."""
    global _network
    if _network is None:
        _network = StoreChannel()
    return _network


_exchanges = 0


def _exchange(purpose: str, message: memoryview) -> list[Any]:
    """The object of every rank's message, in rank order, once its signature is verified. This rank's begins with room
    for its own."""
    global _exchanges
    way = network_of_group()
    _exchanges += 1  # every rank counts alike: a message of another exchange is not valid in this one
    number, own_rank, own = _exchanges, world.rank(), message[secret.SIGNATURE_BYTES :]

    def read(rank: int, received: Any) -> Any:
        if rank == own_rank:  # no way led outside: nothing to verify
            return pickle.loads(own)
        # Views, as slicing a map of memory would copy it; released before the map is closed.
        with memoryview(received) as whole, secret.verify(whole, purpose, number, rank) as content:
            return pickle.loads(content)

    with status.during("in an exchange of values"):
        return way.exchange(secret.sign(message, purpose, number, own_rank), read)


class _ValueSignature(NamedTuple):
    """The signature of one value of ``reduce_dict``, without its content."""

    kind: str  # "number", "array" or "tensor"
    dtype: str
    shape: tuple

    @classmethod
    def of(cls, name: Any, value: Any) -> "_ValueSignature":
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
        return 8 * int(np.prod(self.shape, dtype=np.int64))

    def result(self, total: Any, count: int, average: bool) -> Any:
        """Turn the sum, a host value or a tensor, back into the type the caller passed."""
        if self.kind == "number":
            return total / count if average else total
        is_integer = self.dtype in _INTEGERS
        dtype = "int64" if self.dtype == "bool" else self.dtype
        if average:
            dtype = "float64" if is_integer else self.dtype
            wide = "float64" if is_integer else None
            total = (total.astype(wide) if wide else total) / count
        if self.kind == "array":
            total = total.numpy() if isinstance(total, paddle.Tensor) else np.asarray(total)
            return total.reshape(self.shape).astype(dtype)
        if not isinstance(total, paddle.Tensor):
            total = paddle.to_tensor(np.asarray(total))
        return total.reshape(list(self.shape)).astype(dtype)


def _to_host(value: Any) -> Any:
    """A Python number, or an array wide enough that sums over ranks are exact (int64) or rounded once (float64)."""
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
        members = [i for i, name in enumerate(carriers) if name == carrier]
        flat = [tensors[i].reshape([-1]).astype(carrier) for i in members]
        buffer = paddle.concat(flat)  # (total elements in this carrier,)
        if buffer.shape[0]:  # gloo aborts the process on an empty tensor
            all_reduce_sum(buffer)
        start = 0
        for i, part in zip(members, flat):
            sums[i] = buffer[start : start + part.shape[0]]
            start += part.shape[0]
    return sums


def _check_signatures(signatures: list[list]) -> None:
    """Raise, on every rank alike, if the ranks did not pass the same entries."""
    reference = signatures[0]
    for number, signature in enumerate(signatures):
        if signature == reference:
            continue
        ours, theirs = ({entry[0]: entry[1:] for entry in s} for s in (reference, signature))
        only_first = [name for name in ours if name not in theirs]
        only_other = [name for name in theirs if name not in ours]
        if only_first or only_other:
            what = f"only on rank 0: {only_first}, only on rank {number}: {only_other}"
        else:
            name = next(name for name in ours if ours[name] != theirs[name])
            what = f"'{name}' is {ours[name]} on rank 0 and {theirs[name]} on rank {number}"
        raise ValueError(f"reduce_dict needs the same entries on every rank; {what}")


def _pickle(data: Any) -> memoryview:
    """The pickle of ``data`` after room for a signature: put before it later, that would copy a large message."""
    content = io.BytesIO()
    content.write(bytes(secret.SIGNATURE_BYTES))
    pickle.dump(data, content, protocol=pickle.HIGHEST_PROTOCOL)
    return content.getbuffer()
