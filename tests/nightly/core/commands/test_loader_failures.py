"""A loader process that is killed ends a run of one process."""

from integration.core.commands.loader_processes import require_end_after_a_kill


def test_a_killed_loader_process_ends_the_run_with_the_signal(tmp_path):
    require_end_after_a_kill(tmp_path, 1, "error: ")
