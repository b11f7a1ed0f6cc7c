"""A rank that comes later than gloo would wait."""

import time

from support.processes import run_workers, succeeded

import paddlevit_dist

RANKS = 2


def late_rank(seconds: float):
    if paddlevit_dist.rank() == 1:
        time.sleep(seconds)
    return paddlevit_dist.reduce_dict({"value": 1.0}, average=False)


def test_a_rank_that_is_later_than_gloos_own_time_limit_is_waited_for():
    results = succeeded(run_workers("nightly.core.distributed.test_late_ranks:late_rank", 34.0)).results
    assert results == [{"value": 2.0}] * RANKS
