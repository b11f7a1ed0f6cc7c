"""Data loading: from samples to batches on the device, independent of the number of processes.

- ``sampler``: which samples each rank reads; ``loader``: loader processes, the cause if one fails;
  ``loader_watchdog``: the time limit for a batch
- ``checked_files``: cached files with a checksum
- ``path_index``, ``shared_arrays``: lists and batches that processes share without copies
- ``prepare_workers``: processes that prepare a dataset once
"""
