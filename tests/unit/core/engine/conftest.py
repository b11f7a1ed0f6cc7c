"""What a test of trainings sets for its whole process."""

from support.trainings.stand_in_workers import workers  # noqa: F401
