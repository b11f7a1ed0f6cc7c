"""What a run reports, on the terminal and in files.

- ``lock``: one run at a time in an output folder
- ``record``: the output folder, ``log.txt``, ``run.json``; ``history``: ``metrics.jsonl``
- ``report``: one HTML file about runs
- ``meters``: windowed sums over all ranks; ``progress``: the bar, and what ``display`` has below it; ``heartbeat``:
  signs of life while nothing moves
- ``observer``: what watches a run; ``event_logs``: TensorBoard and VisualDL; ``services``: those on the network
- ``memory``: what a run takes; ``hints``: what would make it faster
"""
