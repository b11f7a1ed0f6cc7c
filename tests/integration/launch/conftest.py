"""What a process is for others, and a simulated time."""

from support.simulated import fresh_rank, simulated_time, store  # noqa: F401
