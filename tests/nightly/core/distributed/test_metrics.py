"""Average precision and intervals of three processes are those of one."""

from integration.core.distributed.test_metrics import (
    evaluate_with,
    require_intervals_of_one_process,
    require_values_of_one_process,
)


def test_three_ranks_get_the_values_of_one_process():
    group = evaluate_with(3)
    require_values_of_one_process(group, 3)
    require_intervals_of_one_process(group, 3)
