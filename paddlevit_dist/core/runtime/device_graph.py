"""CUDA graphs: what the host has launched once on a GPU, it launches again by one call.

A graph repeats its launches with the addresses and the numbers that they had. Nothing that Python computes is computed
again: neither the learning rate nor, with Paddle, a random number outside of dropout. So what differs between passes
enters a graph by ``enter_value``, in a tensor that is written before each launch. A layer of another module says by
``is_capturable`` that its passes do so, and that they read nothing from the device; a task does so by an aspect.
"""

import contextlib
import ctypes
import gc
from collections.abc import Callable, Iterator
from typing import Any

import paddle

from . import device_kinds, paddle_versions
from .errors import UserError

Make = Callable[[Any], paddle.Tensor]  # of the position in the run


class NotCapturable(Exception):
    """Says what passes do that no graph can repeat."""


_PACKAGE = __name__.partition(".")[0] + "."


def may_be_captured(layer: paddle.nn.Layer) -> bool:
    """Return whether the passes of a layer may be captured.

    Layers of this package may, unless their ``is_capturable`` is false: what they draw enters by ``enter_value``, and
    the comparison of a graph with the passes refuses what a graph would freeze. A class of another module may compute
    anything in Python, such as a factor that falls from update 20 on, which no comparison sees. So that class itself
    has to say ``is_capturable``; its subclasses do not inherit that.
    """
    if type(layer).__module__.startswith(_PACKAGE):
        return bool(getattr(layer, "is_capturable", True))
    return "is_capturable" in vars(type(layer)) and bool(layer.is_capturable)


class EnteredValues:
    """The values that enter passes, each in a separate tensor, in the order in which the passes ask for them.

    Attributes:
        kept: other tensors that the passes read, which must live as long as a graph.
    """

    def __init__(self) -> None:
        self._makes: list[Make] = []
        self._tensors: list[paddle.Tensor] = []
        self.kept: list[paddle.Tensor] = []
        self._position = 0
        self._step: Any = None

    @contextlib.contextmanager
    def entering(self, step: Any) -> Iterator[None]:
        """Let ``enter_value`` return these tensors inside the block; new ones are made for ``step``."""
        self._position, self._step = 0, step
        with _opened(self):
            yield

    def enter(self, make: Make) -> paddle.Tensor:
        """Return the next tensor."""
        if self._position == len(self._tensors):
            with _opened(None):
                self._tensors.append(make(self._step).detach().clone())
            self._makes.append(make)
        self._position += 1
        return self._tensors[self._position - 1]

    @paddle.no_grad()
    def refresh(self, step: Any) -> None:
        """Write the values of another position in the run."""
        for make, tensor in zip(self._makes, self._tensors):
            paddle.assign(make(step), output=tensor)


_open: EnteredValues | None = None


@contextlib.contextmanager
def _opened(values: EnteredValues | None) -> Iterator[None]:
    global _open
    before, _open = _open, values
    try:
        yield
    finally:
        _open = before


def is_entering() -> bool:
    """Return whether these are passes of a graph, or passes that a graph will repeat."""
    return _open is not None


def enter_value(make: Make, step: Any = None) -> paddle.Tensor:
    """Return ``make(step)``, without gradient; a graph gets it anew for each launch.

    Args:
        make: computes a tensor that always has the same shape, for the position in the run that it is given. It must
            read nothing else that changes from step to step.
        step: the position that passes without a graph have; in others it is unknown, and ``make`` is given it later.
    """
    return make(step) if _open is None else _open.enter(make)


def keep(tensor: paddle.Tensor) -> paddle.Tensor:
    """Return a tensor of a cache, which a graph that reads it keeps from being freed."""
    if _open is not None:
        _open.kept.append(tensor)
    return tensor


def require_outside(action: str) -> None:
    """Raise NotCapturable if passes of a graph do this, which is told as a verb with its object."""
    if _open is not None:
        raise NotCapturable(f"passes {action}")


def reason_against() -> str:
    """Return why this device has no graphs, or an empty text."""
    if device_kinds.current().name != device_kinds.GPU or not device_kinds.is_built_for_cuda():
        return "only CUDA GPUs have graphs"
    return ""


@contextlib.contextmanager
def requiring_repeatable() -> Iterator[None]:
    """Raise NotCapturable after the block if it has used operations that no graph repeats."""
    name, core = "FLAGS_low_precision_op_list", paddle.base.core
    before = paddle.get_flags(name)
    core.clear_low_precision_op_list()
    paddle.set_flags({name: 1})
    try:
        yield
        used = sorted(paddle_versions.list_unrepeatable() & core.get_low_precision_op_list().keys())
    finally:
        paddle.set_flags(before)
    if used:
        raise NotCapturable(f"passes use {used[0]}, which no graph of Paddle {paddle.__version__} repeats")


class DeviceGraph:
    """Launches that are captured, and then repeated. Its results are in the tensors that the captured passes made."""

    def __init__(self) -> None:
        self._graph: Any = None

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """Capture what is launched inside the block, which computes nothing yet.

        What raises inside, or cannot be captured, is raised; nothing is captured then.
        """
        graph = _create()
        gc.collect()  # to free pinned memory or an event in between would end the capture
        collects = gc.isenabled()
        gc.disable()
        try:
            graph.capture_begin()
            try:
                yield
            except BaseException:
                _abandon(graph)
                raise
            try:
                graph.capture_end()
            except Exception:
                _abandon(graph)
                raise
        finally:
            if collects:
                gc.enable()
        self._graph = graph

    def replay(self) -> None:
        """Launch all of it again."""
        self._graph.replay()


def _create() -> Any:  # a test on a CPU replaces it
    from paddle.device.cuda.graphs import CUDAGraph

    index = int(paddle.get_device().partition(":")[2])
    paddle.device.cuda.synchronize()
    # Loaders' threads may allocate in the meantime.
    return CUDAGraph(paddle.CUDAPlace(index), mode="thread_local")


def _abandon(graph: Any) -> None:
    """End a capture that failed, so that Paddle captures no longer; a UserError ends the run if that fails, too.

    Runs capture in their first updates, so what is lost are minutes. A process in place of this one would meet its GPU
    memory, its loader processes and the lock of its folder.

    Tried on an H200 with CUDA's runtime alone: ending an invalid capture fails with 901; one that the driver begins
    ends well and empty, and launches work again. But the runtime keeps the error of the failed call until
    ``cudaGetLastError`` reads it, and the first operation that checks it fails. Paddle has a separate runtime, which
    nothing here can read, so whether its next operations check is not known.
    """
    with contextlib.suppress(Exception):  # of an invalid one: CUDA has ended it, but Paddle still captures
        graph.capture_end()
        return
    try:
        _begin_by_driver()
        graph.capture_end()  # of an empty one
    except Exception as error:
        raise UserError(
            "TRAIN.CAPTURE: the capture of passes failed, and this Paddle cannot end it: add TRAIN.CAPTURE False and "
            "-resume=auto to the command, which continues from the last checkpoint, or begins again"
        ) from error


def _begin_by_driver() -> None:
    """Let the CUDA driver begin a capture in Paddle's stream without telling Paddle."""
    index = int(paddle.get_device().partition(":")[2])
    stream = paddle.base.core._get_current_stream(index).cuda_stream
    thread_local = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    ctypes.CDLL("libcuda.so.1").cuStreamBeginCapture_v2(ctypes.c_void_p(stream), ctypes.c_int(thread_local))
