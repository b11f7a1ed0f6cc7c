"""Preparations that are interrupted or ended in other ways go on, too."""

from integration.core.commands.preparations import require_continuation_after_ctrl_c, require_continuation_after_kills


def test_ctrl_c_to_the_main_process_alone(tmp_path):
    require_continuation_after_ctrl_c(False, tmp_path)


def test_the_end_by_a_batch_system(tmp_path):
    require_continuation_after_kills("SIGTERM", tmp_path)
