"""Ranks of several machines: one that is gone or cannot join ends the others, which name it."""

import os
import signal
import subprocess

import pytest
from integration.core.launch.machines import LIMIT, clear_away, require_named, start_rank
from support.processes import ROOT, free_ports


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


@pytest.mark.parametrize("codes", [(0, 0), (9, 0), (0, 7)])
def test_the_example_of_two_launchers_fails_if_one_of_them_does(tmp_path, codes):
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\n[ "$1" = -c ] && exit; [ "$6" = 0 ] && exit {}; exit {}\n'.format(*codes))
    program.chmod(0o755)
    variables = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    example = str(ROOT / "examples" / "cluster" / "two_nodes.sh")
    assert subprocess.run(["bash", example], cwd=tmp_path, env=variables).returncode == max(codes)
