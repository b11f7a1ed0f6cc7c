"""Lets a process run out of the memory of its device with a batch of more than LARGEST_BATCH samples, or of more than
LARGEST_BATCH_OF_THE_LAST on the last rank. A module that ``-import`` names."""

import os
from typing import Any

from paddlevit_dist.core.distributed import rank, world_size
from paddlevit_dist.core.engine import batch_size, step
from support.trainings.full_gpus import no_memory

batch_size.has_own_memory = lambda device: True
_run_passes = step.TrainStep._run_passes


def _run_limited(self: Any, batches: list[dict[str, Any]], *arguments: Any) -> Any:
    largest = os.environ["LARGEST_BATCH"]
    if rank() == world_size() - 1:
        largest = os.environ.get("LARGEST_BATCH_OF_THE_LAST", largest)
    if max(len(batch["images"]) for batch in batches) > int(largest):
        no_memory()
    return _run_passes(self, batches, *arguments)


step.TrainStep._run_passes = _run_limited
