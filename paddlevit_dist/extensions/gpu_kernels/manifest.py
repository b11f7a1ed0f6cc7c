"""What fused kernels for GPUs bring: one key, and a hook that replaces layers where the GPU computes the same."""

from ...core.registry.manifest import Manifest

MANIFEST = Manifest(__package__, key_tables=(".settings:TABLE",), hooks={"GPU_KERNELS": ".hook:FusedKernelsHook"})
