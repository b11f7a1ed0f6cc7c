"""What a run tells: on the terminal, in files.

- ``record``: the output folder, ``log.txt``, ``run.json``; ``history``: ``metrics.jsonl``
- ``meters``: sums of a window over all ranks; ``progress``: the bar; ``heartbeat``: signs of life while nothing moves
"""
