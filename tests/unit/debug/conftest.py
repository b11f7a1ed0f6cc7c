"""What a test of checks sets for its whole process."""

from support.simulated import machine  # noqa: F401
