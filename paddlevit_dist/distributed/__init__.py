"""All communication between ranks. Only this package and ``launch`` import ``paddle.distributed``.

Importing this package does not import Paddle; each name below loads its module on first use.

- ``exchange``, ``collectives``, ``world``: messages between ranks
- ``wrapping``, ``batch_norm``: the data-parallel model
- ``stops``: all ranks stop, or save, after the same step
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "DistributedBatchNorm": "batch_norm",
    "StopRequested": "stops",
    "SyncPoint": "stops",
    "all_gather": "collectives",
    "all_reduce_sum": "collectives",
    "barrier": "collectives",
    "batch_norm_kind": "wrapping",
    "broadcast_flat": "collectives",
    "broadcast_object": "collectives",
    "broadcast_statistics": "wrapping",
    "build_zero": "wrapping",
    "communicates_in_forward": "batch_norm",
    "convert_batch_norm": "batch_norm",
    "data_parallel": "wrapping",
    "has_batch_norm": "batch_norm",
    "host_barrier": "collectives",
    "is_main": "world",
    "list_batch_norms": "batch_norm",
    "rank": "world",
    "recompute_layers": "wrapping",
    "reduce_dict": "collectives",
    "running_statistics": "batch_norm",
    "set_batch_norm_momentum": "batch_norm",
    "unbias_running_variance": "batch_norm",
    "without_synchronization": "wrapping",
    "world_size": "world",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
