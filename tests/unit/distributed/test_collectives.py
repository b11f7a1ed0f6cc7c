"""Collectives of a single process, and values that none can have."""

import numpy as np
import paddle
import pytest

import paddlevit_dist


def test_one_process_returns_at_once():
    assert paddlevit_dist.all_gather({"a": 1}) == [{"a": 1}]
    reduced = paddlevit_dist.reduce_dict({"n": 3, "x": np.float32(2.0), "t": paddle.ones([2], dtype="int32")})
    assert reduced["n"] == 3.0 and isinstance(reduced["n"], float)
    assert str(reduced["t"].dtype).endswith("float64") and reduced["t"].tolist() == [1.0, 1.0]
    assert paddlevit_dist.reduce_dict({"n": 3}, average=False) == {"n": 3}
    assert paddlevit_dist.reduce_dict({"n": np.ones(2, np.uint8)}, average=False)["n"].dtype == np.int64
    assert paddlevit_dist.broadcast_object("x") == "x"
    paddlevit_dist.barrier(timeout=0.0)


def test_values_that_cannot_be_added_are_named():
    with pytest.raises(TypeError, match="'name' is a str"):
        paddlevit_dist.reduce_dict({"name": "text"})
    with pytest.raises(TypeError, match="complex64"):
        paddlevit_dist.reduce_dict({"z": np.zeros(2, dtype=np.complex64)})
