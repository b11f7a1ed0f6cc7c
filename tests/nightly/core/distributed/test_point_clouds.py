"""An evaluation of point clouds by three processes is that of two."""

from integration.core.distributed.test_point_clouds import require_equal_evaluations, run_all


def test_evaluation_is_equal_for_two_processes_and_three(tmp_path):
    require_equal_evaluations("whole", {processes: run_all(processes, tmp_path) for processes in (2, 3)})
