"""What two ranks exchange in an update that is queued as on GPUs, counted on CPUs: messages, bytes and reads."""

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import paddle
import pytest
from support.processes import run_together
from support.trainings.small_runs import TINY
from support.waits import counted_waits

from paddlevit_dist import rank, world_size
from paddlevit_dist.core import settings
from paddlevit_dist.core.distributed import collectives, data_parallel
from paddlevit_dist.core.distributed.exchange import StoreChannel
from paddlevit_dist.core.distributed.stops import SyncPoint
from paddlevit_dist.core.engine import COUNTS, TrainStep
from paddlevit_dist.core.engine.low_rank_layers import add_low_rank_terms
from paddlevit_dist.core.engine.optimizer import build_optimizer
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.engine.sharding import Shards
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.step_types import StepPosition, TaskTraits

MODULE = "integration.core.distributed.test_exchanged_gradients"
MIB = 1 << 20
VIT_TI = ["MODEL.EMBED_DIM", "192", "MODEL.DEPTH", "12", "MODEL.NUM_HEADS", "3", "MODEL.PATCH_SIZE", "4"]
BUCKETS = (1, 10, 25)  # TRAIN.BUCKET_MEGABYTES
_TCP_INFO_BYTES = 256
_BYTES_SENT = 200  # where tcpi_bytes_sent is in struct tcp_info (linux/tcp.h), and after it tcpi_bytes_retrans


def count_sent_bytes() -> int:
    """Ask the kernel how many bytes this process has sent by all its TCP connections so far."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own, or one that is not a connection
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as connection:
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                    sent, again = struct.unpack_from("<QQ", info, _BYTES_SENT)
                    total += sent - again
    return total


@contextlib.contextmanager
def seen_messages() -> Iterator[list[tuple[int, float]]]:
    """The messages that Paddle's reducer sends in a backward pass of a model that is wrapped inside.

    Of each: its bytes, and the share of all gradients that has to be computed before it can leave.
    """
    messages: list[tuple[int, float]] = []
    reducer = paddle.base.core.EagerReducer

    def made(parameters: Any, indices: Any, *others: Any) -> Any:
        sizes = [parameter.size for parameter in parameters]
        for group in indices:
            # A backward pass computes the last parameters' gradients first.
            messages.append((4 * sum(sizes[i] for i in group), sum(sizes[min(group) :]) / sum(sizes)))
        return reducer(parameters, indices, *others)

    with mock.patch.object(paddle.base.core, "EagerReducer", made):
        yield messages


class CountedTask:
    """A task that knows the normalizer of its loss by its batches alone."""

    def __init__(self, task: Any) -> None:
        self._task = task
        self.traits = TaskTraits(normalizer_names=("loss",))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)


def build_updater(
    megabytes: int, words: list[str], counted: bool, rank_of_lora: int, sharded: bool
) -> tuple[Any, TrainStep, list[tuple[int, float]]]:
    """A model, its updates of float16 at O1, and the messages of its reducer."""
    plain = "MODEL.NUM_CLASSES 10 DATA.IMAGE_SIZE 16 TRAIN.MIXUP_ALPHA 0 TRAIN.CUTMIX_ALPHA 0 MODEL.DROPOUT 0".split()
    values = settings.load([*words, *plain]).values
    task = resolve("task", "classification")(values)
    paddle.seed(0)
    model = task.build_model()
    if rank_of_lora:
        add_low_rank_terms(model, rank_of_lora, 8.0, ["qkv", "proj", "mlp"], print)
    precision = TrainingPrecision(True, "float16", on_gpu=True)
    precision.enabled = False  # a CPU has no kernels for it; the scale is kept
    with seen_messages() as messages:
        wrapped = data_parallel(model, bucket_megabytes=megabytes)
    shards = Shards(model) if sharded else None
    updater = TrainStep(
        CountedTask(task) if counted else task,
        wrapped,
        build_optimizer(values.TRAIN.OPTIMIZER, model, None, 0.05, shards=shards),
        precision,
        seed=0,
        samples_per_update=2 * world_size(),
        accumulation_steps=1,
        gradient_clip=1.0,
        on_host=False,
    )
    return model, updater, messages


def noting(name: str, calls: list[tuple[str, int]], original: Any) -> Any:
    """The function, which adds its name and the bytes of its first tensor to ``calls``."""

    def call(*arguments: Any, **options: Any) -> Any:
        tensor = next((one for one in arguments if isinstance(one, paddle.Tensor)), None)
        calls.append((name, 0 if tensor is None else tensor.size * tensor.element_size()))
        return original(*arguments, **options)

    return call


def count_updates(
    megabytes: int, words: list[str], counted: bool = False, rank_of_lora: int = 0, sharded: bool = False
) -> dict[str, Any]:
    """What three updates exchange, the third counted."""
    model, updater, messages = build_updater(megabytes, words, counted, rank_of_lora, sharded)
    agreement = SyncPoint()

    def update(number: int) -> None:
        images = np.random.default_rng([number, rank()]).standard_normal((2, 3, 16, 16)).astype("float32")
        batch = {"images": paddle.to_tensor(images), "labels": paddle.to_tensor(np.arange(2))}
        if counted:
            batch[COUNTS] = paddle.to_tensor(np.array([2.0]))
        updater.launch([batch], StepPosition(1, number, 9), 1e-3)
        agreement.reached(number)

    calls: list[tuple[str, int]] = []
    owners = [(paddle.distributed, one) for one in ("all_reduce", "all_gather", "barrier", "broadcast")]
    with counted_waits() as waits, contextlib.ExitStack() as patches:
        for number in (1, 2):
            update(number)
        waits.list.clear()
        for owner, name in (*owners, (StoreChannel, "wait_for_all"), (StoreChannel, "_ask_store")):
            patches.enter_context(mock.patch.object(owner, name, noting(name, calls, getattr(owner, name))))
        patches.enter_context(mock.patch.object(collectives, "host_barrier", lambda: None))  # of no group of GPUs
        before = count_sent_bytes()
        update(3)
        sent = count_sent_bytes() - before
        reads = waits.of("read")
    is_queued = bool(updater.flush())
    return {
        "messages": messages,
        "sent": sent,
        "calls": calls,
        "reads": reads if is_queued else None,
        "bytes": 4 * sum(one.size for one in model.parameters() if not one.stop_gradient),
        "whole": 4 * sum(one.size for one in model.parameters()),
        "weights": [one.numpy() for one in model.parameters()],
    }


@pytest.fixture(scope="module")
def of_two() -> dict[str, list[dict[str, Any]]]:
    target = f"{MODULE}:count_updates"
    calls: dict[str, tuple] = {f"{megabytes} MiB": (target, (megabytes, VIT_TI)) for megabytes in BUCKETS}
    return run_together(
        {
            **calls,
            "known": (target, (25, TINY)),
            "counted": (target, (25, TINY, True)),
            "lora": (target, (25, VIT_TI, False, 4)),
            "sharded": (target, (25, TINY, False, 0, True)),
        }
    )


@pytest.mark.parametrize("megabytes, number, largest_after", [(1, 19, None), (10, 3, 0.94), (25, 2, 0.94)])
def test_gradients_travel_once_as_float32_in_messages_of_the_buckets_size(of_two, megabytes, number, largest_after):
    """The messages by what Paddle's reducer is told, the bytes by the kernel; a ring of two sends each byte once."""
    for found in of_two[f"{megabytes} MiB"]:
        messages, total = [size for size, _ in found["messages"]], found["bytes"]
        assert len(messages) == number and sum(messages) == total
        shares = [share for _, share in found["messages"]]
        assert shares == pytest.approx(np.cumsum(messages) / total), "one waits for layers that are not in it"
        assert largest_after is None or shares[np.argmax(messages)] == pytest.approx(largest_after, abs=0.01)
        assert total <= found["sent"] < 1.01 * total
        largest_gradient = 4 * 4 * 192 * 192  # bytes of a weight between a block's token width and four times that
        assert max(messages) < megabytes * MIB + largest_gradient
        assert MIB <= messages[-1] < MIB + largest_gradient, "the first layers', after which nothing can overlap"


@pytest.mark.parametrize("kind", ["known", "counted"])
def test_between_ranks_a_step_has_no_barrier_and_the_host_reads_nothing_but_the_norm_before(of_two, kind):
    """The norm is of averaged gradients: each rank computes it by itself. Normalizers that a batch alone knows are
    added up on the device, before the forward pass. Whether to stop, ranks read in memory that they share."""
    for found in of_two[kind]:
        assert found["calls"] == ([("all_reduce", 8)] if kind == "counted" else [])
        assert found["reads"] == 1
        assert found["bytes"] <= found["sent"] < found["bytes"] + 4096
    first, second = (found["weights"] for found in of_two[kind])
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_sharded_step_sends_each_share_of_the_weights_once_and_the_host_reads_nothing_but_the_norm(of_two):
    for found in of_two["sharded"]:
        assert [name for name, _ in found["calls"]] == ["broadcast", "broadcast"]
        assert sum(size for _, size in found["calls"]) == found["bytes"] == sum(size for size, _ in found["messages"])
        assert 1.4 * found["bytes"] < found["sent"] < 1.6 * found["bytes"] + 4096
        assert found["reads"] == 1
    first, second = (found["weights"] for found in of_two["sharded"])
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_with_lora_only_the_gradients_of_trained_parameters_travel(of_two):
    for found in of_two["lora"]:
        assert found["bytes"] <= found["sent"] < 1.02 * found["bytes"] < 0.06 * found["whole"]


def test_a_weight_that_is_cast_to_half_precision_has_a_gradient_of_float32():
    """So 16 bits on the way would be a rounding that one process does not make."""
    weight = paddle.create_parameter([3], "float32")
    weight.astype("float16").astype("float32").sum().backward()
    assert weight.grad.dtype == paddle.float32
