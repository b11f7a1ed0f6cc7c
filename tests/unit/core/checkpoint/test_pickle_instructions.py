"""The check of a pickle's instructions before they run: lengths, positions and numbers at their limits."""

import io
import pickle
import struct

import pytest

from paddlevit_dist.core.checkpoint.pickle_instructions import require_plain_instructions

TUPLES = 50_000


@pytest.mark.parametrize(
    "content, told",
    [
        (b"N.", "it does not start like a pickle"),
        (b"\x80\x02\x80\x02N.", "it does not start like a pickle"),
        *(
            (b"\x80%cN." % protocol, None if 2 <= protocol <= 5 else f"protocol {protocol}, where")
            for protocol in range(1, 7)
        ),
        (b"\x80\x04\x95" + struct.pack("<Q", 2) + b"N.", None),
        (b"\x80\x04\x95" + struct.pack("<Q", 3) + b"N.", "^it ends 1 bytes too early$"),
        (b"\x80\x02Nq\x02.", None),  # at most the number of instructions before
        (b"\x80\x02Np2\n.", None),
        (b"\x80\x02Np3\n.", "it stores an object at a position far after the others"),
        (b"\x80\x02Nr\x03\0\0\0.", "it stores an object at a position far after the others"),
        (b"\x80\x02)" + b"\x85" * TUPLES + b".", None),
        (b"\x80\x02)" + b"\x85" * (TUPLES + 1) + b".", "^it has more than 50,000 tuples$"),
        (b"\x80\x02B\x05\0\0\0abcd..", None),
        (b"\x80\x02B\x06\0\0\0abcd.", "^it ends 1 bytes too early$"),
        (b"\x80\x02B\x00\x20\0\0" + b"a" * 8192 + b".", None),
        (b"\x80\x02B\x00\x20\0\0" + b"a" * 8191, "^it ends 1 bytes too early$"),
        (b"\x80\x02}N)s.", None),
        (b"\x80\x02})\x85Ns.", "it has a tuple as a key"),
        (b"\x80\x02}N)\x85s.", None),
        (b"\x80\x02}(NNN)\x85u.", None),
        (b"\x80\x02}(NN)\x85Nu.", "it has a tuple as a key"),
        (b"\x80\x02}()\x85q\x01NNh\x01u.", "it has a tuple as a key"),
        (b"\x80\x02}(NNh\x01Nu.", "1"),
    ],
)
def test_instructions_are_checked_with_their_arguments(content, told):
    stream = io.BytesIO(b"before" + content)
    stream.seek(6)
    if told is None:
        assert require_plain_instructions(stream) == len(content) and stream.tell() == 6
    else:
        with pytest.raises((ValueError, EOFError, LookupError), match=told):
            require_plain_instructions(stream)


def test_what_python_writes_passes_whole():
    value = {"a": [(1, 2), {"b": b"x" * 10_000}], 3: {4, "five"}}
    for protocol in range(2, 6):
        content = pickle.dumps(value, protocol)
        assert require_plain_instructions(io.BytesIO(content)) == len(content)
