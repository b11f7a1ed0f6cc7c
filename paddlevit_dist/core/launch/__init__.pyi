"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .devices import ProcessPlan, plan_processes
from .spawn import launch_workers

__all__ = [
    "ProcessPlan",
    "launch_workers",
    "plan_processes",
]
