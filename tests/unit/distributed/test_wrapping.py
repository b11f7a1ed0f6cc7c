"""The data-parallel model: what is wrapped and converted, gradients that are views, and statistics of rank 0."""

import contextlib

import numpy as np
import paddle
import pytest

from paddlevit_dist.distributed import world, wrapping
from paddlevit_dist.distributed.batch_norm import DistributedBatchNorm

STRIDES = "FLAGS_use_stride_kernel"


def make_model():
    return paddle.nn.Sequential(paddle.nn.Linear(2, 3), paddle.nn.BatchNorm1D(3))


@pytest.fixture
def views():
    """Return a function that switches views on or off; they are as before afterwards."""
    before = paddle.get_flags([STRIDES])
    yield lambda has_views: paddle.set_flags({STRIDES: has_views})
    paddle.set_flags(before)


def test_one_process_keeps_its_model(monkeypatch):
    model = make_model()
    assert wrapping.data_parallel(model, "sync") is model and not isinstance(model[1], DistributedBatchNorm)
    assert type(model[1]) is not paddle.nn.BatchNorm1D  # its running variance is unbiased


@pytest.mark.parametrize(
    "kind, options", [("local", {}), ("sync", {"find_unused_parameters": True, "bucket_megabytes": 7})]
)
def test_several_processes_wait_convert_and_wrap(monkeypatch, kind, options, act_as):
    calls, model = [], make_model()
    act_as(0, 2)
    monkeypatch.setattr(wrapping, "barrier", lambda: calls.append("barrier"))
    monkeypatch.setattr(wrapping, "make_gradients_contiguous", lambda parameters: calls.append(len(list(parameters))))
    monkeypatch.setattr(paddle, "DataParallel", lambda *words, **named: calls.append((words, named)) or "wrapped")
    assert wrapping.data_parallel(model, kind, **options) == "wrapped"
    named = {"comm_buffer_size": options.get("bucket_megabytes", 25), "find_unused_parameters": bool(options)}
    assert calls == ["barrier", 6, ((model,), named)]
    assert isinstance(model[1], DistributedBatchNorm) is (kind == "sync")


class Parameter:
    """Notes the hooks of its gradient."""

    def __init__(self, stop_gradient: bool) -> None:
        self.stop_gradient, self.hooks = stop_gradient, []
        self.register_hook = self.hooks.append


@pytest.mark.parametrize("has_views", [True, False])
def test_gradients_of_what_is_trained_are_copied_where_there_are_views(views, has_views):
    views(has_views)
    parameters = [Parameter(False), Parameter(True), Parameter(False)]
    wrapping.make_gradients_contiguous(parameters)
    hook = [wrapping.as_contiguous] if has_views else []
    assert [parameter.hooks for parameter in parameters] == [hook, [], hook]


def test_a_view_becomes_a_copy_and_others_stay(views):
    views(True)
    tensor = paddle.arange(6, dtype="float32").reshape([2, 3])
    view = tensor.t()
    assert not view.is_contiguous() and wrapping.as_contiguous(tensor) is None
    copy = wrapping.as_contiguous(view)
    assert copy.is_contiguous() and np.array_equal(copy.numpy(), [[0, 3], [1, 4], [2, 5]])


def test_only_a_wrapped_model_communicates():
    events = []

    class Wrapped(paddle.DataParallel):
        """A wrapped model without a group."""

        def __init__(self) -> None:
            pass

        @contextlib.contextmanager
        def no_sync(self):
            events.append("begin")
            yield
            events.append("end")

    with wrapping.without_synchronization(make_model()):
        assert events == []
    with wrapping.without_synchronization(Wrapped()):
        assert events == ["begin"]
    assert events == ["begin", "end"]


def test_zero_depends_on_tensors_with_zero_gradients():
    weight, frozen = paddle.ones([2, 3]), paddle.ones([3])
    weight.stop_gradient = False
    zero = wrapping.build_zero(weight * 2.0, frozen)
    assert zero.item() == 0.0 and zero.shape == [] and zero.dtype == paddle.float32
    (zero + (weight * 3.0).sum()).backward()
    assert weight.grad.tolist() == [[3.0] * 3] * 2 and frozen.grad is None
    assert wrapping.build_zero().item() == 0.0


@pytest.mark.parametrize("rank", [0, 1])
def test_statistics_of_rank_0_replace_those_of_others(monkeypatch, rank, act_as):
    model, sent = make_model(), []

    def broadcast(values):
        sent.append(values)
        return [np.full([3], 5.0, np.float32), np.full([3], 7.0, np.float32)]

    monkeypatch.setattr(wrapping, "broadcast_object", broadcast)
    wrapping.broadcast_statistics(model)
    assert sent == []  # one process
    act_as(rank, 2)
    wrapping.broadcast_statistics(paddle.nn.Linear(2, 3))
    assert sent == []  # nothing to send
    wrapping.broadcast_statistics(model)
    assert model[1]._mean.tolist() == [5.0] * 3 and model[1]._variance.tolist() == [7.0] * 3
    if rank:
        assert sent == [None]
    else:
        assert [values.tolist() for values in sent[0]] == [[0.0] * 3, [1.0] * 3]


@pytest.mark.parametrize(
    "default, processes, batch, on_gpu, kind, why",
    [
        ("local", 2, 31, True, "sync", "the default for several devices with fewer than 32 samples each"),
        ("local", 2, 32, True, "local", "the default for such batches"),
        ("local", 1, 8, True, "local", "the default for such batches"),
        ("local", 2, 8, False, "local", "the default for this task"),
        ("sync", 2, 8, True, "sync", "the default for this task"),
        ("local", 2, 8, None, "local", "the default for this task"),
    ],
)
def test_the_reason_for_a_kind_of_batch_norm_is_told(default, processes, batch, on_gpu, kind, why):
    assert wrapping.batch_norm_kind(None, default, processes, batch, on_gpu) == (kind, why)
    assert wrapping.batch_norm_kind("sync", default, processes, batch, on_gpu) == ("sync", "TRAIN.BATCH_NORM")


def test_the_device_is_asked_for_if_it_is_not_given(monkeypatch):
    monkeypatch.setattr(paddle, "get_device", lambda: "gpu:1")
    assert wrapping.batch_norm_kind(None, "local", 2, 8)[0] == "sync"


def test_layers_to_recompute_are_counted():
    model = make_model()
    assert wrapping.recompute_layers(iter([model[0]])) == 1 and wrapping.recompute_layers([]) == 0


def test_a_process_without_a_group_is_the_main_one(monkeypatch):
    monkeypatch.setattr(world.dist, "get_rank", lambda: 1)  # not asked for
    assert (world.rank(), world.world_size(), world.is_main()) == (0, 1, True)
    monkeypatch.setattr(world.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(world.dist, "get_world_size", lambda: 2)
    for rank in (0, 1):
        monkeypatch.setattr(world.dist, "get_rank", lambda rank=rank: rank)
        assert (world.rank(), world.world_size(), world.is_main()) == (rank, 2, rank == 0)


def test_recomputing_leaves_the_random_numbers_that_follow():
    following = []
    for is_recomputed in (False, True):
        paddle.seed(3)
        layer = paddle.nn.Sequential(paddle.nn.Linear(2, 3), paddle.nn.Dropout(0.5))
        if is_recomputed:
            wrapping.recompute_layers([layer])
        loss = layer(paddle.ones([4, 2])).sum()
        paddle.rand([5])  # of later layers
        loss.backward()
        following.append(paddle.rand([3]).tolist())
    assert following[0] == following[1]
