"""Commands that start training runs: their runs save and stop with them, and die with them."""

from integration.extensions.compare.test_stopped_commands import (
    SEARCH,
    SEEDS,
    require_end_with_a_killed_command,
    require_stop_after_repeated_requests,
)


def test_repeated_requests_stop_the_run_and_the_command(tmp_path):
    require_stop_after_repeated_requests(*SEEDS, tmp_path)


def test_runs_are_killed_with_the_command(tmp_path):
    require_end_with_a_killed_command(*SEARCH, tmp_path)
