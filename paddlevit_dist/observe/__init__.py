"""What a run reports, on the terminal and in files.

- ``lock``: one run at a time in an output folder
- ``record``: the output folder, ``log.txt``, ``run.json``; ``history``: ``metrics.jsonl``
- ``meters``: windowed sums over all ranks; ``progress``: the bar, and what ``display`` has below it; ``heartbeat``:
  signs of life while nothing moves
- ``memory``: what a run takes; ``hints``: what would make it faster
"""
