"""Small files that name one object many times: refused before anything is computed of it."""

import pickle
from contextlib import nullcontext

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.unpickling import restricted_load
from paddlevit_dist.core.checkpoint.weights import read_weights

DOUBLED = b"K\x01\x85q\x00" + b"".join(b"0h%ch%c\x86q%c" % (i, i, i + 1) for i in range(60))  # 2**60 ones
LISTS = b"]q\x00" + b"".join(b"0](h%ch%ceq%c" % (i, i, i + 1) for i in range(60))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"}(" + DOUBLED + b"K\x02u.", "it has a tuple as a key"),
        (b"}" + DOUBLED + b"K\x02s.", "it has a tuple as a key"),
        (b"(" + DOUBLED + b"K\x02d.", "it has a tuple as a key"),
        (b"}(X\x01\x00\x00\x00a" + DOUBLED + b"u.", "the same objects in more places"),
        (b"}(X\x01\x00\x00\x00a" + LISTS + b"u.", "the same objects in more places"),
    ],
    ids=["items", "item", "dict", "value", "lists"],
)
@pytest.mark.parametrize("suffix", [".pdparams", ".pth"])
def test_objects_that_hold_one_another_twice_are_refused(tmp_path, content, said, suffix):
    file = tmp_path / f"weights{suffix}"
    file.write_bytes(b"\x80\x02" + content)
    with pytest.raises(UserError, match=said):
        read_weights(file)


@pytest.mark.parametrize("side, is_refused", [(90, False), (110, True)])  # of 0.7 and 1.3 million places
def test_a_million_places_are_allowed_at_any_depth(tmp_path, side, is_refused):
    value = 7
    for _ in range(3):
        value = [value] * side
    (tmp_path / "file.pdparams").write_bytes(pickle.dumps(value, 4))
    told = pytest.raises(UserError, match="the same objects in more places than the file has bytes")
    with told if is_refused else nullcontext():
        assert restricted_load(tmp_path / "file.pdparams") == value


def test_a_set_of_tuples_is_refused(tmp_path):
    file = tmp_path / "weights.pdparams"
    file.write_bytes(b"\x80\x04\x8f(" + DOUBLED + b"\x90.")
    with pytest.raises(UserError, match="it has a tuple as a key"):
        restricted_load(file)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_tuples_sets_and_keys_of_every_protocol_are_read(tmp_path, protocol):
    pair = (1, "two")
    value = {"a": [pair, (pair, pair), ()], 3: {"b": {4, "five"}, "c": (6,)}, "d": [{}, {"e": None}, frozenset({7})]}
    file = tmp_path / "value.pdparams"
    file.write_bytes(pickle.dumps(value, protocol))
    if protocol < 4:
        value["d"].pop(), value[3].pop("b")  # sets are calls of functions there
        file.write_bytes(pickle.dumps(value, protocol))
    assert restricted_load(file) == value


def test_one_array_under_many_names_is_refused_before_it_is_converted(tmp_path):
    bits, wide = np.zeros(1 << 20, np.uint16), np.zeros(1 << 18)  # 2 MiB each, the first is 4 as float32
    for array, names, needed in ((bits, 2, None), (bits, 30, 126), (wide, 40, 84)):
        file = tmp_path / f"{names}.pdparams"
        file.write_bytes(pickle.dumps({f"layer{number}": array for number in range(names)}, 4))
        if needed is None:
            assert read_weights(file).state["layer1"].dtype == np.float32
        else:
            with pytest.raises(UserError, match=f"{names}.pdparams is rejected: its arrays need {needed} MB, far more"):
                read_weights(file)
