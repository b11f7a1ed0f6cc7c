"""Ranks of several machines: one that is gone or cannot join ends the others, which name it."""

import signal

from integration.launch.machines import LIMIT, clear_away, require_named, start_rank
from support.processes import free_ports


def test_a_killed_rank_is_named_by_those_that_wait_for_it(tmp_path):
    (port,) = free_ports(1)
    words = ["train", str(tmp_path), "1", str(int(signal.SIGKILL)), "in its forward pass"]
    ranks = [start_rank(each, port, *words) for each in range(2)]
    try:
        _, err = ranks[0].communicate(timeout=LIMIT)
        assert "Traceback" not in err
        assert err.splitlines()[-1].startswith("error: rank 1 failed: no message for ")
    finally:
        clear_away(ranks)


def test_a_rank_that_fails_before_it_joins_is_named_at_once(tmp_path):
    require_named(tmp_path, "secret", "PADDLEVIT_DIST_SECRET_FILE={} can be read by", mode=0o644)
