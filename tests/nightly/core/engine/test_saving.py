"""A disk that is full for the main process ends all ranks."""

from support.processes import run_workers, succeeded


def test_a_write_that_fails_on_the_main_process_is_raised_on_every_rank(tmp_path):
    ended = succeeded(run_workers("support.trainings.full_disks:train_until_the_disk_is_full", str(tmp_path)))
    assert len(ended.results) == 2 and ended.results[0] == ended.results[1]
    assert "update_00000004: No space left on device; free space" in ended.results[0]
