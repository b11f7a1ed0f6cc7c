"""Files of ``paddle.save`` are read as they were written; everything else in a pickle is rejected."""

import argparse
import builtins
import collections
import fractions
import functools
import operator
import os
import pickle
import struct
import subprocess
import tracemalloc

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import unpickling
from paddlevit_dist.core.checkpoint.unpickling import restricted_load


def written(folder, content, name="file.pdparams"):
    path = folder / name
    path.write_bytes(content)
    return path


def refused(folder, content, match):
    """The line about a file that is not read, and what reading it has taken in bytes."""
    path = written(folder, content)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=match) as caught:
            restricted_load(path)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    return taken


# Files of paddle.save


@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
@pytest.mark.parametrize("protocol", [2, 3])
def test_files_of_numpy_1_and_2_read_alike(tmp_path, module, protocol):
    array = np.arange(12, dtype=">f4").reshape(3, 4, order="F")
    content = pickle.dumps({"w": array, "s": np.float64(2.0)}, protocol)
    here = np.array(0).__reduce__()[0].__module__
    read = restricted_load(written(tmp_path, content.replace(f"c{here}\n".encode(), f"c{module}\n".encode())))
    np.testing.assert_array_equal(read["w"], array)
    assert read["s"] == 2.0


def test_ordered_dictionaries_of_python_2_are_read(tmp_path):
    pairs = b"](](U\x01aK\x05e](U\x01bK\x07ee"
    read = restricted_load(written(tmp_path, b"\x80\x02ccollections\nOrderedDict\n" + pairs + b"\x85R."))
    assert list(read.items()) == [("a", 5), ("b", 7)]
    wrong = b"\x80\x02ccollections\nOrderedDict\n](](]K\x05ee\x85R."  # a list is no name
    refused(tmp_path, wrong, "file.pdparams")


def test_an_array_that_is_filled_twice_is_refused(tmp_path):
    content = pickle.dumps(np.arange(3), 2)
    assert content[-5:-3] == b"tq" and content[-2:] == b"b."
    refused(tmp_path, content[:-1] + b"h" + content[-3:-2] + b"b.", "an array in it is not made as numpy makes it")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_keep_their_axes_and_byte_order(tmp_path, protocol):
    whole = np.arange(24.0, dtype="f4").reshape(2, 3, 4)
    arrays = [whole, whole.T, whole.transpose(1, 2, 0), whole[:, ::2], whole.astype(">f4"), whole[:0], np.array(3)]
    for array, read in zip(arrays, restricted_load(written(tmp_path, pickle.dumps(arrays, protocol))), strict=True):
        assert read.dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(read, array)


def test_parameters_stored_in_slices_are_put_together(tmp_path):
    whole = np.arange(10, dtype="float32").reshape(2, 5)
    stored = {
        "small": np.ones(3, "float32"),
        "big@@.0": whole.ravel()[:6],
        "big@@.1": whole.ravel()[6:],
        "UnpackBigParamInfor@@": {"big": {"OriginShape": (2, 5), "slices": ["big@@.0", "big@@.1"]}},
        "StructuredToParameterName@@": {"small": "linear_0.b_0"},
    }
    read = restricted_load(written(tmp_path, pickle.dumps(stored, 2)))
    assert sorted(read) == ["big", "small"]
    np.testing.assert_array_equal(read["big"], whole)


def test_an_open_file_is_read_from_its_position(tmp_path):
    path = written(tmp_path, b"header" + pickle.dumps({"w": np.ones(3)}, 4))
    with open(path, "rb") as stream:
        stream.seek(6)
        np.testing.assert_array_equal(restricted_load(stream)["w"], np.ones(3))


def test_an_array_that_occurs_twice_stays_one_array(tmp_path):
    array = np.arange(2000.0)
    read = restricted_load(written(tmp_path, pickle.dumps({"a": array, "b": array}, 4)))
    assert read["a"] is read["b"]
    np.testing.assert_array_equal(read["a"], array)


# Files that ask for something


class Call:
    """Pickles as a call of ``function(*arguments)``."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def touch(path):
    return f"open({str(path)!r}, 'w').close()"


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "call, name",
    [
        (lambda p: Call(os.system, f"touch {p}"), "system"),
        (lambda p: Call(builtins.eval, touch(p)), "eval"),
        (lambda p: Call(builtins.exec, touch(p)), "exec"),
        (lambda p: Call(builtins.open, str(p), "w"), "open"),
        (lambda p: Call(builtins.getattr, os, "system"), "getattr"),
        (lambda p: Call(builtins.__import__, "antigravity"), "__import__"),
        (lambda p: Call(subprocess.Popen, ["touch", str(p)]), "Popen"),
        (lambda p: Call(functools.partial, os.system, f"touch {p}"), "functools.partial"),
        (lambda p: Call(operator.attrgetter, "system"), "operator.attrgetter"),
        (lambda p: Call(np.load, str(p)), "load"),
        (lambda p: Call(np.fromfile, str(p)), "fromfile"),
        (lambda p: Call(np.save, str(p), np.ones(2)), "numpy"),
        (lambda p: Call(bytearray, 1 << 45), "bytearray"),
        (lambda p: Call(collections.deque, [1]), "collections.deque"),
        (lambda p: np.array([Call(os.system, f"touch {p}")], dtype=object), ""),
        (lambda p: {"a": [({"b": Call(os.system, f"touch {p}")},)]}, "system"),
    ],
)
def test_a_file_that_calls_a_function_is_refused_and_nothing_runs(tmp_path, call, name, protocol):
    traces = tmp_path / "trace"
    try:
        content = pickle.dumps({"w": call(traces)}, protocol)
    except TypeError:  # a module among the arguments
        content = pickle.dumps({"w": Call(builtins.getattr, "os", "system")}, protocol)
    refused(tmp_path, content, f"file.pdparams is rejected: .*{name}")
    assert not traces.exists()


OBJECTS = {
    "INST with text": b"(S'true'\nios\nsystem\n.",
    "INST": b"(ios\nsystem\n.",
    "OBJ": b"(cnumpy\nndarray\no.",
    "NEWOBJ of a Counter": b"ccollections\nCounter\n)\x81.",
    "NEWOBJ": b"cnumpy\nndarray\n)\x81.",
    "NEWOBJ_EX": b"cnumpy\nndarray\n)}\x92.",
    "PERSID": b"Pname\n.",
    "BINPERSID": b"X\x01\x00\x00\x00aQ.",
    "EXT1": b"\x82\x01.",
}


@pytest.mark.parametrize("content", OBJECTS.values(), ids=OBJECTS)
def test_other_ways_to_make_an_object_are_refused(tmp_path, content):
    refused(tmp_path, b"\x80\x02" + content, "is rejected: |is damaged")


def stack_global(module, attribute):
    def text(value):
        return b"\x8c" + bytes([len(value)]) + value.encode()

    return b"\x80\x04" + text(module) + text(attribute) + b"\x93"


@pytest.mark.parametrize(
    "module, attribute",
    [
        ("numpy", "core.multiarray._reconstruct"),
        ("numpy", "f2py.os.system"),
        ("numpy", "load"),
        ("numpy.core.multiarray", "_reconstruct.__globals__"),
        ("collections", "OrderedDict.__init__"),
        ("collections", "_sys.modules"),
        ("builtins", "tuple.__class__"),
        ("_codecs", "encode.__self__"),
        ("paddle", "load"),
    ],
)
def test_dotted_and_neighboring_names_are_refused(tmp_path, module, attribute):
    refused(tmp_path, stack_global(module, attribute) + b")R.", "is rejected: it names")


RECONSTRUCT = np.array(0).__reduce__()[0]
HUGE = 1 << 40


class Built:
    """Pickles as a call followed by the setting of a state."""

    def __init__(self, call, state):
        self.call, self.state = call, state

    def __reduce__(self):
        return self.call.function, self.call.arguments, self.state


SINGLE = Call(np.dtype, "f4", False, True)


def array_with(state):
    return Built(Call(RECONSTRUCT, np.ndarray, (0,), b"b"), state)


@pytest.mark.parametrize(
    "value",
    [
        Call(collections.OrderedDict, 1, 2, 3),
        Call(tuple, [1, 2]),
        Call(tuple, ("name", "no array")),
        Call(bytes, HUGE),
        Call(np.ndarray, (HUGE,)),
        Call(RECONSTRUCT, np.ndarray, (HUGE,), b"b"),
        Call(RECONSTRUCT, collections.OrderedDict, (0,), b"b"),
        Call(np.dtype, "O8", False, True),
        Call(np.dtype, "V1000000000", False, True),
        Call(np.dtype, [("a", "f4")], False, True),
        Call(np.dtype, "M8", False, True),
        Call(np.dtype, "f4,f4", False, True),
        Built(SINGLE, (3, "<", None, ("a",), {"a": (np.dtype("f4"), 0)}, 4, 1, 0)),
        Built(SINGLE, (3, "?", None, None, None, -1, -1, 0)),
        Built(SINGLE, (4, "<", None, None, None, -1, -1, 0)),
        array_with((1, (1,), Built(SINGLE, (4, "<", *[None] * 3, -1, -1, 0)), False, b"1234")),
        array_with((1, (HUGE,), np.dtype("f4"), False, b"1234")),
        array_with((1, (2**62, 2**62), np.dtype("f4"), False, b"")),
        array_with((1, (-1,), np.dtype("f4"), False, b"1234")),
        array_with((1, (True,), np.dtype("f4"), False, b"1234")),
        array_with((1, (1.0,), np.dtype("f4"), False, b"1234")),
        array_with((1, 1, np.dtype("f4"), False, b"1234")),
        array_with((1, (1,) * 40, np.dtype("f4"), False, b"1234")),
        array_with((1, (1,), np.dtype("f4"), False, [object])),
        array_with((1, (1,), "f4", False, b"1234")),
        array_with((1, (2,), np.dtype("f4"), False, b"1234")),
        array_with(()),
        array_with({"shape": (1,)}),
        Call(np.float32(1).__reduce__()[0], np.dtype("f8"), b"1234"),
        Call(np.float32(1).__reduce__()[0], np.dtype("O"), b"12345678"),
        {(1, 2): np.ones(1)},
        {b"bytes": np.ones(1)},
    ],
)
def test_hostile_arguments_of_allowed_names_are_refused_without_allocating(tmp_path, value):
    for protocol in (2, 4):
        assert refused(tmp_path, pickle.dumps({"w": value}, protocol), "is rejected|is damaged") < 2**20


def test_shared_objects_may_be_in_as_many_places_as_the_file_has_room_for(tmp_path):
    shared = list(range(1000))
    for times, is_read in ((1100, True), (1500, False)):  # of a file of about 5,000 bytes
        content = pickle.dumps([shared] * times, 4)
        if is_read:
            assert restricted_load(written(tmp_path, content)) == [shared] * times
        else:
            refused(tmp_path, content, "the same objects in more places than the file has bytes")


FROM_BUFFER, F4 = np.ones(2).__reduce_ex__(5)[0], np.dtype("f4")  # how protocol 5 stores arrays


@pytest.mark.parametrize(
    "arguments, told",
    [
        ((b"1234", "f4", (1,), "C"), "rejected: it holds an array of objects"),
        (("1234", F4, (1,), "C"), "rejected: it holds an array of objects"),
        ((b"1234", F4, 1, "C"), "an array in it has no valid shape"),
        ((b"1234", F4, (-1,), "C"), "an array in it has no valid shape"),
        ((b"1234", F4, (True,), "C"), "an array in it has no valid shape"),
        ((b"1234", F4, (1,) * 33, "C"), "an array in it has no valid shape"),
        ((b"1234", F4, (HUGE,), "C"), "an array in it has 4 bytes, which is not what its shape and type need"),
    ],
)
def test_arrays_of_protocol_5_are_checked_before_they_are_made(tmp_path, arguments, told):
    assert refused(tmp_path, pickle.dumps({"w": Call(FROM_BUFFER, *arguments)}, 5), told) < 2**20
    whole = Call(FROM_BUFFER, b"12345678", F4, (2, 1), "C")
    assert restricted_load(written(tmp_path, pickle.dumps({"w": whole}, 5)))["w"].tobytes() == b"12345678"


EMPTY_ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02c_codecs\nencode\nN}X\x0c\x00\x00\x00__defaults__)s\x86b.",
        b"\x80\x02cnumpy\nndarray\n}X\x04\x00\x00\x00nameNsb.",
        b"\x80\x03" + EMPTY_ARRAY + b"K\x00K\x01s.",
        b"\x80\x03" + EMPTY_ARRAY + b"K\x01a.",
        b"\x80\x02}cnumpy\nndarray\nNs.",
        b"\x80\x04](X\x01\x00\x00\x00aq\x02)" + b"\x85" * 200_000 + b"\x94}h\x01Nse.",
    ],
    ids=["function", "name", "item of an array", "end of an array", "name as a key", "key by its place"],
)
def test_a_file_changes_nothing_but_its_own_lists_and_dictionaries(tmp_path, content):
    refused(tmp_path, content, "is damaged")


def test_attributes_of_a_dictionary_are_left_out(tmp_path):
    content = b"\x80\x02ccollections\nOrderedDict\n)R}(X\x05\x00\x00\x00itemsNX\x09\x00\x00\x00__class__Nub."
    read = restricted_load(written(tmp_path, content))
    assert read == {} and list(read.items()) == [] and not hasattr(read, "__dict__")


def test_the_class_of_an_object_is_named_in_every_protocol(tmp_path):
    for protocol in (2, 3, 4, 5):
        refused(tmp_path, pickle.dumps({"a": fractions.Fraction(1)}, protocol), "it names 'fractions.Fraction'")


def test_parsed_arguments_are_dropped_in_every_protocol(tmp_path):
    for protocol in (2, 3, 4, 5):
        content = pickle.dumps({"args": argparse.Namespace(lr=1), "a": 2}, protocol)
        assert restricted_load(written(tmp_path, content)) == {"args": None, "a": 2}


@pytest.mark.parametrize(
    "instructions",
    [
        b".",  # the class itself
        b"K\x01\x85R.",  # called with an argument
        b"K\x01\x85\x81.",  # made with an argument
        b")R]b.",  # another state than a dictionary
        b"}b.",  # a state of the class
    ],
    ids=["class", "call", "new", "state", "state of the class"],
)
def test_the_stand_in_of_parsed_arguments_is_good_for_nothing_else(tmp_path, instructions):
    refused(tmp_path, b"\x80\x02cargparse\nNamespace\n" + instructions, "is damaged")


def test_parsed_arguments_cannot_be_a_key(tmp_path):
    refused(tmp_path, b"\x80\x02}cargparse\nNamespace\n)\x81K\x01s.", "is damaged")
    refused(tmp_path, b"\x80\x02}cargparse\nNamespace\nK\x01s.", "is damaged")


def encode_call(text, encoding):
    return (
        b"\x80\x02c_codecs\nencode\nX"
        + struct.pack("<I", len(text))
        + text
        + b"X"
        + (struct.pack("<I", len(encoding)) + encoding + b"\x86R.")
    )


def test_codecs_encode_serves_only_the_bytes_of_arrays(tmp_path):
    assert restricted_load(written(tmp_path, encode_call("ä".encode(), b"latin1"))) == b"\xe4"
    for text, encoding in ((b"abc", b"rot13"), (b"abc", b"zlib"), (b"abc", b"latin-1"), ("€".encode(), b"latin1")):
        with pytest.raises(UserError):
            restricted_load(written(tmp_path, encode_call(text, encoding)))


# Damage


@pytest.mark.parametrize(
    "content", [b"", b"\x80", b"\x80\x04", b"PK\x03\x04 a zip", b"just text", b"\x80\x06N.", b"\x80\x01N."]
)
def test_what_is_no_file_of_paddle_save_is_said_to_be_none(tmp_path, content):
    refused(tmp_path, content, "file.pdparams is damaged or is not a paddle.save file")


def test_every_truncation_of_a_state_is_refused(tmp_path):
    whole = pickle.dumps({"w": np.arange(30.0), "b": np.float32(1), "n": [1, "a"]}, 4)
    for length in range(len(whole)):
        with pytest.raises(UserError, match="damaged"):
            restricted_load(written(tmp_path, whole[:length]))


def test_a_file_that_cannot_be_opened_is_an_error_of_the_user(tmp_path):
    with pytest.raises(UserError, match="cannot be read: No such file"):
        restricted_load(tmp_path / "absent.pdparams")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        restricted_load(tmp_path)


@pytest.mark.parametrize(
    "value, is_plain",
    [
        *((value, True) for value in (None, "a", 1, 0.5, True, [], {}, [1, "a", None], (0.5, 2))),
        *(([0] * 16, True), ([0] * 17, False), ([1, []], False), (([], 1), False), (object(), False)),
        *(({str(n): n for n in range(16)}, True), ({str(n): n for n in range(17)}, False)),
        *(({"a": 1, "b": []}, False), ({(1,): 1, "b": 2}, False)),
    ],
)
def test_plain_arguments_are_numbers_texts_and_short_lists_of_them(value, is_plain):
    assert unpickling._is_plain(value) is is_plain
