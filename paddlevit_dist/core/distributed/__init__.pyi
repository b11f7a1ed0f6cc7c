"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .batch_norm import (
    DistributedBatchNorm,
    communicates_in_forward,
    convert_batch_norm,
    has_batch_norm,
    list_batch_norms,
    running_statistics,
    set_batch_norm_momentum,
    unbias_running_variance,
)
from .collectives import (
    all_gather,
    all_reduce_sum,
    barrier,
    broadcast_flat,
    broadcast_object,
    host_barrier,
    reduce_dict,
)
from .stops import StopRequested, SyncPoint
from .world import is_main, rank, world_size
from .wrapping import (
    batch_norm_kind,
    broadcast_statistics,
    build_zero,
    data_parallel,
    prepare_batch_norms,
    recompute_layers,
    without_synchronization,
)

__all__ = [
    "DistributedBatchNorm",
    "StopRequested",
    "SyncPoint",
    "all_gather",
    "all_reduce_sum",
    "barrier",
    "batch_norm_kind",
    "broadcast_flat",
    "broadcast_object",
    "broadcast_statistics",
    "build_zero",
    "communicates_in_forward",
    "convert_batch_norm",
    "data_parallel",
    "has_batch_norm",
    "host_barrier",
    "is_main",
    "list_batch_norms",
    "prepare_batch_norms",
    "rank",
    "recompute_layers",
    "reduce_dict",
    "running_statistics",
    "set_batch_norm_momentum",
    "unbias_running_variance",
    "without_synchronization",
    "world_size",
]
