"""Processes: how many there are, what each starts with, how they meet, and who notices that one has failed.

Importing this package does not import Paddle; each name below loads its module on first use.

- ``devices``, ``tuning``, ``gpu``: how many processes there are, and what each starts with
- ``lock``: one run at a time in an output folder
- ``spawn``, ``failures``, ``stale_resources``: a parent starts workers, and learns how they end
- ``rendezvous``, ``secret``: ranks meet, and know one another
- ``status``, ``watchdog``, ``group_watch``: what each rank does, and who notices that one does nothing any more
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "ProcessPlan": "devices",
    "launch_workers": "spawn",
    "plan_processes": "devices",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
