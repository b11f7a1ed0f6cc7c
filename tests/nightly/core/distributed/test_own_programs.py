"""Collectives in a user's own program that Paddle's launcher starts."""

from integration.core.distributed.test_exchange import require_collectives


def test_collectives_in_a_program_that_paddles_launcher_starts(tmp_path, monkeypatch):
    # Where it is empty, Paddle's launcher takes it for one GPU without a name, and has none for the second rank.
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    require_collectives(tmp_path, ["-m", "paddle.distributed.launch", "--nproc_per_node", "2"])
