"""What enters a graph, and how a capture ends that failed."""

import contextlib
from typing import Any

import paddle
import pytest

from paddlevit_dist.core.runtime import device_graph, paddle_versions
from paddlevit_dist.core.runtime.device_graph import (
    DeviceGraph,
    EnteredValues,
    NotCapturable,
    enter_value,
    requiring_repeatable,
)
from paddlevit_dist.core.runtime.errors import UserError
from paddlevit_dist.core.runtime.transfers import constant, read, to_device


def make_list(*values: float) -> Any:
    import numpy as np

    return np.array(values, "float32")


def test_a_value_is_made_at_once_without_a_graph_and_written_anew_for_one():
    def passes(step: Any) -> Any:
        return enter_value(lambda now: paddle.full([1], float(now)), step)

    assert passes(3).item() == 3
    values = EnteredValues()
    with values.entering(5):
        first = passes(None)
    values.refresh(7)
    with values.entering(9):
        second = passes(None)
    assert second is first and first.item() == 7, "one made for the first pass has the value of the last refresh"


@pytest.mark.parametrize("action", [lambda: to_device(make_list(1.0)), lambda: read(paddle.ones([1]))])
def test_passes_of_a_graph_neither_read_from_the_device_nor_copy_to_it(action):
    action()
    with (
        EnteredValues().entering(0),
        pytest.raises(NotCapturable, match="passes (copy an array to|read from) the device"),
    ):
        action()


@pytest.mark.parametrize("is_3", [False, True])
def test_kernels_that_copy_sizes_from_freed_memory_are_refused_in_paddle_3(monkeypatch, is_3):
    monkeypatch.setattr(paddle_versions, "_IS_3", is_3)
    refused = pytest.raises(NotCapturable, match="use take_along_axis") if is_3 else contextlib.nullcontext()
    with refused, requiring_repeatable():
        paddle.take_along_axis(paddle.ones([2, 3]), paddle.zeros([2, 1], "int64"), 1)
    with requiring_repeatable():
        paddle.ones([2]).sum()


def test_a_constant_of_a_cache_lives_as_long_as_a_graph_that_reads_it():
    constant(make_list, 1.0, 2.0)
    values = EnteredValues()
    with values.entering(0):
        found = constant(make_list, 1.0, 2.0)
    assert [one is found for one in values.kept] == [True]


class PlainGraph:
    """Notes its calls; an end fails as often as it is told."""

    def __init__(self, failures: int) -> None:
        self.calls: list[str] = []
        self.failures = failures

    def capture_begin(self) -> None:
        self.calls.append("begin")

    def capture_end(self) -> None:
        self.calls.append("end")
        self.failures -= 1
        if self.failures >= 0:
            raise OSError("(External) CUDA error(901)")


@pytest.mark.parametrize(
    ("failures", "raises", "calls"),
    [
        (0, None, ["begin", "end"]),
        (0, NotCapturable, ["begin", "end"]),  # nothing that CUDA minds
        (1, OSError, ["begin", "end", "driver", "end"]),  # an operation made the capture invalid
        (2, None, ["begin", "end", "end", "driver", "end"]),  # that is noticed at the end
        (9, None, ["begin", "end", "end", "driver", "end"]),
    ],
)
def test_a_capture_that_failed_ends(monkeypatch, failures, raises, calls):
    graph = PlainGraph(failures)
    monkeypatch.setattr(device_graph, "_create", lambda: graph)
    monkeypatch.setattr(device_graph, "_begin_by_driver", lambda: graph.calls.append("driver"))

    def capture() -> None:
        with DeviceGraph().capturing():
            if raises is not None:
                raise raises("said")

    if raises is None and not failures:
        capture()
    else:
        said = "add TRAIN.CAPTURE False and -resume=auto" if failures == 9 else None
        with pytest.raises(UserError if failures == 9 else raises or OSError, match=said):
            capture()
    assert graph.calls == calls
