"""-selftest says where there is nothing to compare."""

from integration.core.distributed.selftests import GRAY, OTHERS, selftest
from support.trainings.runs import PLAIN, refusal


def test_where_nothing_is_compared_nothing_is_said_to_pass(tmp_path):
    ended = selftest(tmp_path / "output", PLAIN, *OTHERS, *GRAY, "MODEL.NAME", "WithBatchNorm", "NGPUS", "1")
    assert "a single process with batch norm cannot be compared with anything" in refusal(ended)
