"""Pickles of Python 2, as in published data sets: their 8-bit strings are text, or the bytes of an array."""

import io
import struct

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.unpickling import restricted_load

ARRAY = np.arange(256, dtype=np.uint8).reshape(2, 128)
DTYPE = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
EMPTY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"


def load(body: bytes):
    return restricted_load(io.BytesIO(b"\x80\x02" + body + b"."))


def array(data: bytes) -> bytes:
    shape = b"K\x02M" + struct.pack("<H", 128) + b"\x86"
    return EMPTY + b"(K\x01" + shape + DTYPE + b"\x89T" + struct.pack("<I", len(data)) + data + b"tb"


def test_strings_are_latin1():
    assert load(b"(U\x03a\xe9zT\x02\x00\x00\x00\xff\x00t") == ("a\xe9z", "\xff\x00")


def test_arrays_have_their_bytes():
    state = load(b"}U\x04data" + array(ARRAY.tobytes()) + b"s")
    assert list(state) == ["data"]
    np.testing.assert_array_equal(state["data"], ARRAY)


@pytest.mark.parametrize(
    "body",
    [
        b"T\xff\xff\xff\x7fabc",
        b"T\xff\xff\xff\xffabc",
        b"U\x05abc",
        array(ARRAY.tobytes()[:-1]),
        array(b""),
    ],
    ids=["long string", "negative length", "short string", "array too short", "array empty"],
)
def test_lengths_that_do_not_fit_are_damage(body):
    with pytest.raises(UserError, match="is damaged"):
        load(body)


def test_the_bytes_of_one_string_do_not_become_many_arrays():
    shared = b"T" + struct.pack("<I", 256) + ARRAY.tobytes() + b"q\x00"
    again = EMPTY + b"(K\x01K\x02M\x80\x00\x86" + DTYPE + b"\x89h\x00tb"
    with pytest.raises(UserError, match="larger than the file"):
        load(b"(" + shared + again * 40 + b"t")


def test_a_call_by_an_8_bit_name_is_refused():
    with pytest.raises(UserError, match="rejected: it names 'os.system'"):
        load(b"U\x02osU\x06system\x93U\x04true\x85R")
