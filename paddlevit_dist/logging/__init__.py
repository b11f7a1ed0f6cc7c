"""Reports of a run, on the terminal and in files.

- ``record``: the output folder, ``log.txt``, ``run.json``, ``metrics.jsonl``; what of it a resumed run repeats
- ``meters``: windowed sums over all ranks, memory, waiting for data
- ``progress``: the bar, and the values below it; ``heartbeat``: signs of life while nothing moves
- ``callbacks``: who is told of a run; ``event_logs``: TensorBoard and VisualDL; ``services``: those on the network
"""
