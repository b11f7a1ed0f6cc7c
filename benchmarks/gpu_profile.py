"""How long a GPU is busy, and how often the host waits for it, by Paddle's profiler.

A profiler costs the host time in each call, so nothing else is measured meanwhile.
"""

import os
from collections.abc import Mapping
from typing import Any

import clock

# Of the CUDA runtime, which return when the device is done; a version may follow the name.
WAITS = {"cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cudaMemcpy"}


class Profile:
    """Records from its creation to ``end``. Raises what Paddle's profiler does where it does not start."""

    def __init__(self) -> None:
        from paddle import profiler

        clock.synchronize_device()
        targets = [profiler.ProfilerTarget.CPU, profiler.ProfilerTarget.GPU]
        self._profiler = profiler.Profiler(targets=targets, on_trace_ready=lambda ended: None)
        self._profiler.start()

    def end(self) -> dict[str, float]:
        """Return the seconds that the GPU was busy, and the waits, of which one is the first line's."""
        clock.synchronize_device()
        self._profiler.stop()
        return busy_and_waits(self._profiler.profiler_result.get_data(), os.getpid())


def busy_and_waits(trees: Mapping[int, Any], main_thread: int) -> dict[str, float]:
    """Return ``busy_seconds``, the ``waits`` of the main thread, and ``other_waits``, which delay no launch of its.

    The thread of Paddle that copies batches to the device waits once for each array, and once for each batch.

    Args:
        trees: host events by the thread's number in the system: in each, children, calls of CUDA's runtime, and what
            these have started on the device, in nanoseconds.
        main_thread: number of the thread that trains.
    """
    spans, waits = [], {True: 0, False: 0}
    nodes = [(tree, thread == main_thread) for thread, tree in trees.items()]
    while nodes:
        node, is_main = nodes.pop()
        nodes += [(child, is_main) for child in node.children_node]
        for call in node.runtime_node:
            waits[is_main] += call.name.split("_")[0] in WAITS
            spans += [(one.start_ns, one.end_ns) for one in call.device_node]
    busy, reached = 0, 0
    for begin, end in sorted(spans):  # of several streams, which overlap
        busy += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return {"busy_seconds": busy / 1e9, "waits": waits[True], "other_waits": waits[False]}
