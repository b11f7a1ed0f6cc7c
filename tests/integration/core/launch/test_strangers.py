"""Whoever does not have the run's secret gets nothing executed, and does not disturb the run."""

from integration.core.launch.separate_ranks import EXPECTED, SECRET, TO_BE_ENDURED, finish, garbage
from support.hosts.garbage import KINDS


def test_strangers_are_neither_believed_nor_waited_for(ranks):
    """Garbage of all kinds on the run's port, before all ranks are there and after, and a process that tries to join as
    rank 1 before the real one."""
    first = ranks.start(0, "--wait", **SECRET)
    ranks.wait_for_store()
    ranks.start(1, "--evil")
    ranks.wait_for("came")
    held = garbage(ranks.ports[0], KINDS)
    second = ranks.start(1, **SECRET)
    ranks.wait_for("joined")
    held += garbage(ranks.ports[0], TO_BE_ENDURED)
    (ranks.folder / "go").touch()
    assert finish(first, second) == [(0, ""), (0, "")]
    assert ranks.gathered() == [EXPECTED] * 2
    assert not (ranks.folder / "executed").exists()
    for connection in held:
        connection.close()
