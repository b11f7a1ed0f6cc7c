"""Three processes train by sorted points and evaluate as two do."""

from integration.core.distributed.test_point_clouds import require_equal_evaluations, require_equal_training, run_all


def test_two_processes_and_three_train_and_evaluate_alike(tmp_path):
    two, three = (run_all(processes, tmp_path) for processes in (2, 3))
    require_equal_evaluations("whole", {2: two, 3: three})
    require_equal_training(two["sorted"], three["sorted"])
