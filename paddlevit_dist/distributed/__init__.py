"""All communication between ranks. Only this package and ``launch`` import ``paddle.distributed``.

Importing this package does not import Paddle; each name below loads its module on first use.

- ``exchange``, ``collectives``, ``world``: messages between ranks
- ``wrapping``, ``batch_norm``: the data-parallel model
- ``stops``: all ranks stop, or save, after the same step
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "SyncPoint": "stops",
    "all_gather": "collectives",
    "all_reduce_sum": "collectives",
    "barrier": "collectives",
    "DistributedBatchNorm": "batch_norm",
    "batch_norm_kind": "wrapping",
    "broadcast_statistics": "batch_norm",
    "communicates_in_forward": "batch_norm",
    "running_statistics": "batch_norm",
    "convert_batch_norm": "batch_norm",
    "has_batch_norm": "batch_norm",
    "unbias_running_variance": "batch_norm",
    "set_batch_norm_momentum": "batch_norm",
    "build_zero": "wrapping",
    "broadcast_object": "collectives",
    "host_barrier": "collectives",
    "reduce_dict": "collectives",
    "data_parallel": "wrapping",
    "recompute_layers": "wrapping",
    "synchronize_only_last": "wrapping",
    "is_main": "world",
    "rank": "world",
    "StopRequested": "stops",
    "world_size": "world",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
