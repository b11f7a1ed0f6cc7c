"""The data-parallel model: what is wrapped and converted, gradients that are views, and statistics of rank 0."""

import contextlib

import numpy as np
import paddle
import pytest
from support.thread_ranks import ThreadRanks

from paddlevit_dist.core.distributed import running_statistics, world, wrapping
from paddlevit_dist.core.distributed.batch_norm import DistributedBatchNorm

STRIDES = "FLAGS_use_stride_kernel"


class TransposedLinear(paddle.nn.Layer):
    """The gradient of its weight is a view where operations return views."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([2, 3])

    def forward(self, x):
        return paddle.matmul(x, self.weight.t())


def make_model():
    return paddle.nn.Sequential(paddle.nn.Linear(2, 3), paddle.nn.BatchNorm1D(3))


@pytest.fixture
def views():
    """Return a function that switches views on or off; they are as before afterwards."""
    before = paddle.get_flags([STRIDES])
    yield lambda has_views: paddle.set_flags({STRIDES: has_views})
    paddle.set_flags(before)


def test_one_process_keeps_its_model():
    model = make_model()
    assert wrapping.data_parallel(model, "sync") is model and not isinstance(model[1], DistributedBatchNorm)
    assert type(model[1]) is not paddle.nn.BatchNorm1D  # its running variance is unbiased


@pytest.mark.parametrize(
    "kind, options", [("local", {}), ("sync", {"find_unused_parameters": True, "bucket_megabytes": 7})]
)
def test_several_processes_wait_convert_and_wrap(kind, options, other_paddle, fresh_rank, views):
    views(True)
    calls, models = [], [paddle.nn.Sequential(*make_model(), TransposedLinear()) for _ in range(2)]

    class NotedRanks(ThreadRanks):
        def wait_for_all(self, timeout: float | None = None) -> None:
            super().wait_for_all(timeout)
            calls.append("met")

    def wrap(model: paddle.nn.Layer, **named) -> str:
        calls.append((model, named))
        model[2].weight.register_hook(lambda gradient: calls.append(gradient.is_contiguous()))
        return "wrapped"

    other_paddle({"DataParallel": wrap})
    ranks = NotedRanks(2)
    assert ranks.run(lambda rank: wrapping.data_parallel(models[rank], kind, **options)) == ["wrapped"] * 2
    named = {"comm_buffer_size": options.get("bucket_megabytes", 25), "find_unused_parameters": bool(options)}
    for model in models:
        assert calls.index("met") < calls.index((model, named))
        assert isinstance(model[1], DistributedBatchNorm) is (kind == "sync")
        model.eval()
        model(paddle.ones([4, 2])).sum().backward()
    assert calls[-2:] == [True, True]  # hooks after ours, as of Paddle's reducer, see copies


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


def test_statistics_of_rank_0_replace_those_of_others(fresh_rank):
    models = [make_model() for _ in range(2)]
    for number, model in enumerate(models):
        for tensor, value in zip(running_statistics(model), (5.0, 7.0)):
            tensor.set_value(np.full([3], value + number, np.float32))
    wrapping.broadcast_statistics(models[1])
    assert running_statistics(models[1])[0].tolist() == [6.0] * 3  # one process

    def broadcast(rank: int) -> tuple[int, list]:
        wrapping.broadcast_statistics(paddle.nn.Linear(2, 3))  # which has nothing to send
        before = ranks.exchanges
        wrapping.broadcast_statistics(models[rank])
        return before, [tensor.tolist() for tensor in running_statistics(models[rank])]

    ranks = ThreadRanks(2)
    assert ranks.run(broadcast) == [(0, [[5.0] * 3, [7.0] * 3])] * 2


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


def test_the_device_is_asked_for_if_it_is_not_given(other_paddle):
    other_paddle({"get_device": "gpu:1"})
    assert wrapping.batch_norm_kind(None, "local", 2, 8)[0] == "sync"


def test_layers_to_recompute_are_counted():
    model = make_model()
    assert wrapping.recompute_layers(iter([model[0]])) == 1 and wrapping.recompute_layers([]) == 0


def test_a_process_without_a_group_is_the_main_one(other_paddle):
    other_paddle({"distributed.get_rank": 1})  # not asked for
    assert (world.rank(), world.world_size(), world.is_main()) == (0, 1, True)
    for rank in (0, 1):
        functions = {"is_initialized": True, "get_world_size": 2, "get_rank": rank}
        other_paddle({f"distributed.{name}": answer for name, answer in functions.items()})
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
