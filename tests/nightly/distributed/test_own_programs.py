"""Collectives in a user's own program that Paddle's launcher starts."""

from integration.distributed.test_exchange import require_collectives


def test_collectives_in_a_program_that_paddles_launcher_starts(tmp_path):
    require_collectives(tmp_path, ["-m", "paddle.distributed.launch", "--nproc_per_node", "2"])
