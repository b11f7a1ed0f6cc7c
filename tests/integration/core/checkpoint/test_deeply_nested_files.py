"""Files that are nested too deeply for the interpreter do not end it."""

import sys

import pytest
from support.processes import run_command
from unit.core.checkpoint.test_unpickling import written

READ_ONE = """
import sys
from paddlevit_dist.core.checkpoint.unpickling import restricted_load
try:
    restricted_load(sys.argv[1])
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04}" + b")" + b"\x85" * 300_000 + b"Ns.",
        b"\x80\x02}X\x15\x00\x00\x00UnpackBigParamInfor@@}X\x01\x00\x00\x00a}X\x06\x00\x00\x00slices]"
        + b")"
        + b"\x85" * 300_000
        + b"asss.",
    ],
    ids=["as a key", "as a slice"],
)
def test_deeply_nested_tuples_do_not_end_the_interpreter(tmp_path, content):
    path = written(tmp_path, content)
    ended = run_command([sys.executable, "-c", READ_ONE, str(path)], timeout=600)
    assert (ended.code, ended.out.strip()) == (0, "UserError")
