"""A process that is killed at any line of a save leaves a good checkpoint, and the next start cleans up after it."""

import os

import pytest
from integration.core.checkpoint.test_killed_saves import killed_at_lines


@pytest.mark.parametrize("way", ["another epoch", "the same epoch"])
def test_after_a_kill_at_200_lines_there_is_a_good_checkpoint(tmp_path, monkeypatch, way):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # takes most of the time, and only matters without power
    killed_at_lines(tmp_path, way, 200)
