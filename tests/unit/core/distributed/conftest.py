"""A simulated time, and what a process is for others."""

from support.simulated import act_as, fresh_rank, fresh_status, simulated_time, store  # noqa: F401
