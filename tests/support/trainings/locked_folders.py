"""Output folders that a test holds as a run does."""

import contextlib
from pathlib import Path

import pytest

from paddlevit_dist.core.launch.lock import lock_output_dir


@pytest.fixture
def take():
    """Locks folders, and gives them back at the end."""
    with contextlib.ExitStack() as locks:

        def taken(folder: Path) -> list[str]:
            said: list[str] = []
            locks.enter_context(lock_output_dir(folder, said.append, is_evaluation=False))
            return said

        yield taken
