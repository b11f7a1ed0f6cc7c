"""What crosses between the host and the device, on a CPU and with the GPU's branches forced."""

import numpy as np
import paddle
import pytest
from support.waits import counted_waits

from paddlevit_dist.core.runtime import transfers
from paddlevit_dist.core.runtime.transfers import constant, read, read_later, to_device, to_device_together

_ARRAYS = {
    "pixels": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "labels": np.array([3, -1], dtype=np.int64),
    "weights": np.array(0.25, dtype=np.float64),
    "boxes": np.ones((4, 2), dtype=np.float32).T,
    "flags": np.array([True, False]),
    "nothing": np.zeros((0, 4), dtype=np.float32),
    "no labels": np.zeros((0,), dtype=np.int64),
}


@pytest.mark.parametrize("name", _ARRAYS)
@pytest.mark.parametrize("on_gpu", [False, True])
def test_an_array_keeps_values_shape_and_dtype_both_ways(name, on_gpu):
    def there_and_back():
        tensor = to_device(_ARRAYS[name])
        return tensor.shape, tensor.stop_gradient, read(tensor)[0]

    if on_gpu:
        with counted_waits() as waits:
            shape, is_constant, back = there_and_back()
        assert len(waits) == 1 and waits.transfers == (1 if _ARRAYS[name].size else 0), str(waits)
    else:
        shape, is_constant, back = there_and_back()
    assert shape == list(_ARRAYS[name].shape) and is_constant
    assert back.dtype == _ARRAYS[name].dtype
    np.testing.assert_array_equal(back, _ARRAYS[name], strict=True)


def test_several_arrays_cross_in_one_transfer():
    arrays = [np.arange(start, 5, dtype=np.int32) for start in (0, 4, 2)]
    with counted_waits() as waits:
        tensors = to_device_together(*arrays)
    assert len(waits) == 0 and waits.transfers == 1
    assert [tensor.numpy().tolist() for tensor in tensors] == [array.tolist() for array in arrays]
    assert {tensor.dtype for tensor in tensors} == {paddle.int32}


@pytest.mark.parametrize("on_gpu", [False, True])
def test_reading_later_gives_the_values_of_the_time_it_began(on_gpu):
    def values():
        tensors = [paddle.ones([3]), paddle.full([2], 5, dtype="int64")]
        later = read_later(*tensors)
        for tensor in tensors:
            paddle.assign(paddle.zeros_like(tensor), output=tensor)
        return later()

    if on_gpu:
        with counted_waits() as waits:
            ones, fives = values()
        assert len(waits) == 1, str(waits)
    else:
        ones, fives = values()
    assert ones.tolist() == [1, 1, 1] and fives.tolist() == [5, 5]


def test_a_constant_is_made_once_and_crosses_without_a_wait():
    made = []

    def ramp(start, number):
        made.append(start)
        return np.arange(start, start + number, dtype=np.float32)

    with counted_waits() as waits:
        first, again, other = constant(ramp, 1, 3), constant(ramp, 1, 3), constant(ramp, 2, 3)
    assert len(waits) == 0 and waits.transfers == 2
    assert first is again and made == [1, 2]
    assert first.tolist() == [1, 2, 3] and other.tolist() == [2, 3, 4]


def test_in_a_traced_program_a_constant_belongs_to_the_program():
    class Adds(paddle.nn.Layer):
        def forward(self, x):
            return x + constant(np.arange, 3, None, 1, "float32")

    plain = Adds()
    traced = paddle.jit.to_static(Adds(), full_graph=True, input_spec=[paddle.static.InputSpec([3], "float32")])
    x = paddle.ones([3])
    for _ in range(2):
        assert plain(x).tolist() == traced(x).tolist() == [1, 2, 3]


_WAITING = {
    "numpy": (lambda x: x.numpy(), 1),
    "item": (lambda x: x.sum().item(), 1),
    "tolist": (lambda x: x.tolist(), 1),
    "truth": (lambda x: bool(x.sum() > 0), 1),
    "whole number": (lambda x: int(x.sum()), 1),
    "number": (lambda x: float(x.sum()), 1),
    "array": (lambda x: np.asarray(x), 1),
    "finite": (lambda x: paddle.isfinite(x), 2),
    "finite as a method": (lambda x: x.isfinite(), 2),
    "nonzero": (lambda x: paddle.nonzero(x), 1),
    "places": (lambda x: paddle.where(x > 0), 1),
    "mask": (lambda x: paddle.masked_select(x, x > 0), 1),
    "mask as an index": (lambda x: x[x > 0], 1),
    "list as an index": (lambda x: x[[0, 2]], 1),
    "slice to a tensor": (lambda x: x[: paddle.full([], 2, dtype="int64")], 1),
    "unique": (lambda x: paddle.unique(x), 1),
    "order of a row": (lambda x: paddle.argsort(x), 1),
    "sums of a row": (lambda x: paddle.cumsum(x), 1),
    "order in rows": (lambda x: paddle.argsort(paddle.stack([x, x])), 0),
    "best of a row": (lambda x: paddle.topk(x, 2), 0),
    "host data": (lambda x: paddle.to_tensor([1.0]), 1),
    "set_value": (lambda x: x.set_value(x + 1), 1),
    "blocking copy": (lambda x: x._copy_to(paddle.CPUPlace(), True), 1),
    "selection": (lambda x: paddle.where(x > 0, x, -x), 0),
    "arange": (lambda x: paddle.arange(3), 0),
    "rows": (lambda x: x[1:2], 0),
    "tensor as an index": (lambda x: x[paddle.arange(2)], 0),
    "sums": (lambda x: (x * 2).sum(), 0),
}


@pytest.mark.parametrize("name", _WAITING)
def test_the_counter_knows_what_waits(name):
    call, number = _WAITING[name]
    x = paddle.to_tensor([1.0, 0.0, 2.0])
    with counted_waits() as waits:
        call(x)
    assert len(waits) == number, str(waits)
    assert all("test_transfers.py" in wait.place for wait in waits.list)


def test_the_counter_leaves_nothing_behind():
    before = {name: getattr(paddle.Tensor, name) for name in ("numpy", "__getitem__", "_copy_to")}
    with counted_waits() as waits:
        pass
    paddle.ones([2]).numpy()
    assert len(waits) == 0
    assert {name: getattr(paddle.Tensor, name) for name in before} == before


@pytest.mark.parametrize("index, waits_once", [(1, False), ("number", True), ("row", False), (slice(0, 2), False)])
def test_a_number_on_the_device_that_indexes_is_counted_as_read(index, waits_once):
    table, number = paddle.arange(6).reshape([3, 2]), paddle.to_tensor(1)
    tensors = {"number": number, "row": number.reshape([1])}
    with counted_waits() as waits:
        found = table[tensors[index] if isinstance(index, str) else index]
        table[0] = number
    assert [wait.kind for wait in waits.list] == ["read"] * waits_once, str(waits)
    assert found.flatten()[-1].item() == 3


def test_what_only_a_gpu_has_is_asked_for_as_it_needs(monkeypatch, other_paddle):
    """The thin functions that a test on a CPU replaces elsewhere, with devices that note their calls."""
    calls, array = [], np.array([3, 4])

    class Device:
        """A tensor and an event."""

        def _copy_to(self, *words):
            calls.append(("copy", *words))
            return "the copy"

        def record(self):
            calls.append("record")

        def synchronize(self):
            calls.append("wait")

    assert transfers._begin_copy(Device(), "a place") == "the copy"
    other_paddle({"device.Event": Device})
    wait = transfers._after_this()
    assert calls == [("copy", "a place", False), "record"]
    wait()
    monkeypatch.setattr(transfers, "_pinned_place", lambda: calls.append("pinned") or paddle.CPUPlace())
    assert transfers._pin(array).tolist() == [3, 4] and calls[2:] == ["wait", "pinned"]
    assert transfers.is_on_gpu() is False
