"""Output of a run, on the terminal and in files.

- ``record``: the output folder, ``log.txt``, ``run.json``, ``metrics.jsonl``, and their use by a resumed run
- ``restarts``: whether a training run that was lost is started again
- ``meters``: windowed sums over all ranks, memory, waiting for data
- ``progress``: the progress bar, the values below it, and lines while nothing else is printed
- ``callbacks``: calls the users' callbacks; ``event_logs``: TensorBoard and VisualDL; ``services``: network services
"""
