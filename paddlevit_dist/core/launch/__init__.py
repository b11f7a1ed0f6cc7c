"""Processes: how many there are, how each starts, how they meet, and how a failed one is detected.

Importing this package does not import Paddle; each name below loads its module on first use.

- ``devices``, ``tuning``, ``gpu``: number of processes, and environment of each
- ``lock``: one run at a time in an output folder
- ``spawn``, ``failures``, ``stale_resources``: a parent starts workers and records how they end
- ``training_commands``: a command starts training runs as commands of their own
- ``rendezvous``, ``secret``: ranks connect and authenticate one another
- ``status``, ``watchdog``, ``group_watch``: the progress of each rank, and the detection of ranks that hang
"""

from ..runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
