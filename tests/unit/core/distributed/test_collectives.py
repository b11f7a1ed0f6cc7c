"""Collectives of a single process, of ranks whose messages are recorded, and values that none can have."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
from support.forced_device import forced_device
from support.thread_ranks import ThreadRanks, acting_as

import paddlevit_dist
from paddlevit_dist import UserError
from paddlevit_dist.core.distributed import collectives
from paddlevit_dist.core.launch import secret, status


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


# Three ranks: each in turn sends its message, then each reads those of all.


class Sent(Exception):
    """A rank has sent its message, and no answer is there yet."""


class Recorder:
    """A channel that notes what is sent, and answers once all have sent something."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def exchange(self, message: Any, read: Callable) -> list[Any]:
        if len(self.messages) < 3:
            self.messages.append(bytes(message))
            raise Sent
        return [read(rank, np.frombuffer(part, np.uint8)) for rank, part in enumerate(self.messages)]


@pytest.fixture
def on_ranks(fresh_rank) -> Callable:
    """Return a function that calls another for each rank, with the rank, and returns what each got."""
    secret.use(b"a secret of tests")

    def call(function: Callable[[int], Any], change: Callable[[list[bytes]], None] | None = None) -> list[Any]:
        recorder, results = Recorder(), []
        for turn in range(6):
            recorder.exchanges = 4
            with acting_as(turn % 3, 3, recorder):
                if turn < 3:
                    with pytest.raises(Sent):
                        function(turn)
                else:
                    if change is not None:
                        change(recorder.messages)
                    results.append(function(turn % 3))
        return results

    return call


def test_every_rank_gets_the_objects_of_all_in_order_and_a_copy_of_its_own(on_ranks):
    own = [{"rank": rank, "long": bytes(rank * 700)} for rank in range(3)]
    for rank, gathered in enumerate(on_ranks(lambda rank: collectives.all_gather(own[rank]))):
        assert gathered == own and gathered[rank] is not own[rank]


@pytest.mark.parametrize("source", [0, 2])
def test_every_rank_gets_what_the_source_has_and_the_others_send_nothing(on_ranks, source):
    sizes = []
    results = on_ranks(
        lambda rank: collectives.broadcast_object(f"of {rank}" * 900, source),
        lambda messages: sizes.append([len(message) > 900 for message in messages]),
    )
    assert results == [f"of {source}" * 900] * 3 and sizes[0] == [rank == source for rank in range(3)]


def test_a_message_of_another_rank_or_exchange_is_refused(on_ranks):
    def swap(messages: list[bytes]) -> None:
        messages[1], messages[2] = messages[2], messages[1]

    with pytest.raises(UserError, match=r"arrived as rank 1's \(all_gather 5\) is not signed with this run's secret"):
        on_ranks(collectives.all_gather, swap)


@pytest.mark.parametrize("average", [True, False])
def test_entries_are_summed_or_averaged_in_their_types(on_ranks, average):
    def reduce(rank: int) -> dict:
        values = {
            "tensor": paddle.to_tensor([[1.0, rank]], "float32"),
            "count": rank + 1,
            "loss": 0.5 * rank,
            "half": np.float16(rank),
            "bytes": np.full((2, 1), 100 * rank, np.uint8),
            "bfloat": paddle.to_tensor([2.0 * rank]).astype("bfloat16"),
        }
        if rank == 1:
            values = dict(reversed(values.items()))
        return collectives.reduce_dict(values, average=average)

    parts = 3 if average else 1
    for rank, reduced in enumerate(on_ranks(reduce)):
        names = ["tensor", "count", "loss", "half", "bytes", "bfloat"]
        assert list(reduced) == (names[::-1] if rank == 1 else names)
        assert (reduced["count"], reduced["loss"]) == (6 / parts, 1.5 / parts)
        np.testing.assert_allclose(reduced["tensor"].numpy(), [[3.0 / parts, 3.0 / parts]], rtol=1e-6)
        assert reduced["half"] == np.float16(3 / parts) and reduced["half"].dtype == np.float16
        assert reduced["bytes"].tolist() == [[300 / parts]] * 2
        assert reduced["bytes"].dtype == (np.float64 if average else np.int64)
        assert reduced["bfloat"].dtype == paddle.bfloat16 and reduced["bfloat"].astype("float32").tolist() == [
            6 / parts
        ]


def test_large_entries_are_summed_on_the_device_in_one_operation_for_each_type(on_ranks, other_paddle):
    buffers, sizes = [], []

    def sum_on_device(buffer: paddle.Tensor) -> paddle.Tensor:
        buffers.append((str(buffer.dtype).rpartition(".")[2], buffer.shape))
        return buffer.set_value(buffer * 3)

    other_paddle({"distributed.all_reduce": sum_on_device})
    many = 16 * 1024 // 8 + 1

    def reduce(rank: int) -> dict:
        return collectives.reduce_dict(
            {
                "half": np.full([many], 2.0, np.float16),
                "limit": np.full([many - 1], 5.0, np.float32),
                "single": paddle.arange(many, dtype="float32").reshape([1, many]),
                "double": np.arange(many, dtype=np.float64),
                "count": np.full([many], 7, np.int32),
            },
            average=False,
        )

    for reduced in on_ranks(reduce, lambda messages: sizes.extend(map(len, messages))):
        assert set(reduced["half"]) == {6.0} and reduced["half"].dtype == np.float16
        assert set(reduced["limit"]) == {15.0} and reduced["limit"].shape == (many - 1,)
        np.testing.assert_array_equal(reduced["single"].numpy(), 3.0 * np.arange(many)[None])
        np.testing.assert_array_equal(reduced["double"], 3.0 * np.arange(many))
        assert set(reduced["count"]) == {21} and reduced["count"].dtype == np.int64
    assert buffers == [("float32", [2 * many]), ("float64", [many]), ("int64", [many])] * 3
    assert 8 * many < min(sizes) and max(sizes) < 8 * many + 2000  # "limit" alone is sent to the other ranks


@pytest.mark.parametrize(
    ("values", "others", "message"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, r"only on rank 0: \[\], only on rank 2: \['b'\]$"),
        ({}, {"a": 1}, r"only on rank 0: \['a'\], only on rank 2: \[\]$"),
        (
            {"a": np.ones(2)},
            {"a": 1},
            r"'a' is \('number', '', \(\)\) on rank 0 and \('array', 'float64', \(2,\)\) on rank 2$",
        ),
        (
            {"a": 1, "b": np.ones(2, np.int64), "c": 1},
            {"a": 1, "b": 1, "c": 1},
            r"; 'b' is \('number', '', \(\)\) on rank 0 and \('array', 'int64', \(2,\)\) on rank 2$",
        ),
    ],
)
def test_entries_that_differ_between_ranks_are_named_on_all(on_ranks, values, others, message):
    for reader in range(3):

        def reduce(rank: int, reader: int = reader) -> Any:
            own = values if rank == 2 else others
            if rank < reader and len(collectives._channel.messages) == 3:
                return None
            return collectives.reduce_dict(own)

        with pytest.raises(ValueError, match=message):
            on_ranks(reduce)


def test_barriers_wait_at_the_store_and_say_so():
    calls = []
    channel = type(
        "Channel", (), {"wait_for_all": lambda self, *timeout: calls.append((timeout, status.get_status().text))}
    )
    for size in (1, 2):
        status.note("in epoch 3")
        with acting_as(0, size, channel()):
            collectives.barrier(2.5)
            collectives.barrier()
            collectives.host_barrier()
    waiting = "in epoch 3: in a barrier"
    assert calls == [((2.5,), waiting), ((None,), waiting), ((), "in epoch 3")]


def test_float64_passes_through_the_host_where_the_device_cannot_send_it(on_ranks):
    with forced_device("npu"):
        totals = on_ranks(lambda rank: collectives.all_reduce_sum(paddle.to_tensor([rank, 0.1], "float64")))
        gathered = on_ranks(lambda rank: collectives.gather_float64(paddle.to_tensor([rank, 0.1], "float64")))
    for total in totals:
        assert total.dtype == paddle.float64 and total.tolist() == [3.0, 0.1 + 0.1 + 0.1]
    assert [[part.tolist() for part in parts] for parts in gathered] == [[[0.0, 0.1], [1.0, 0.1], [2.0, 0.1]]] * 3


class Group:
    """Notes what Paddle's group is asked for, and answers as three ranks with equal tensors would."""

    def __init__(self) -> None:
        self.calls = []

    def broadcast(self, tensor, src) -> None:
        self.calls.append(("broadcast", tensor.shape, src))

    def all_reduce(self, tensor) -> None:
        self.calls.append(("all_reduce", tensor.tolist()))
        tensor.set_value(tensor * 3)

    def all_gather(self, gathered, tensor) -> None:
        self.calls.append(("all_gather", tensor.tolist()))
        gathered.extend([tensor] * 3)

    def wait_for_all(self) -> None:
        self.calls.append("barrier")


@pytest.fixture
def group(other_paddle) -> Group:
    group = Group()
    other_paddle({f"distributed.{name}": getattr(group, name) for name in ("broadcast", "all_reduce", "all_gather")})
    with acting_as(0, 3, group):
        yield group


def test_values_of_an_owner_are_broadcast_once_all_have_arrived(group):
    values = paddle.arange(4, dtype="float32")
    assert collectives.broadcast_flat(values, 4, 2) is values
    received = collectives.broadcast_flat(None, 5, 1)
    assert received.shape == [5] and received.dtype == paddle.float32
    assert group.calls == ["barrier", ("broadcast", [4], 2), "barrier", ("broadcast", [5], 1)]


def test_tensors_are_summed_and_gathered_where_they_are(group):
    tensor = paddle.to_tensor([1.5, 2.0], "float64")
    assert collectives.all_reduce_sum(tensor) is tensor and tensor.tolist() == [4.5, 6.0]
    assert [part.tolist() for part in collectives.gather_float64(tensor)] == [[4.5, 6.0]] * 3
    number = paddle.to_tensor([3], "int64")
    with forced_device("npu"):
        assert collectives.all_reduce_sum(number) is number and number.tolist() == [9]
    assert group.calls == [("all_reduce", [1.5, 2.0]), ("all_gather", [4.5, 6.0]), ("all_reduce", [3])]
    with acting_as(0, 1):
        assert collectives.all_reduce_sum(number) is number and number.tolist() == [9] and len(group.calls) == 3


def test_the_channel_is_made_by_the_first_call(fresh_rank, other_paddle):
    texts = {}  # the store of one rank
    made = [SimpleNamespace(add=lambda name, number: 1, set=texts.__setitem__, get=lambda name: texts[name])]
    other_paddle({"base.core.create_or_get_global_tcp_store": made.pop})
    with acting_as(0, 1):
        assert collectives.get_channel() is collectives.get_channel() and made == []


def test_a_rank_says_that_it_exchanges_values_and_counts_its_exchanges(fresh_rank, fresh_status):
    class NotedRanks(ThreadRanks):
        def exchange(self, *words) -> list[Any]:
            texts.append((status.get_status().text, self.exchanges))
            return super().exchange(*words)

    texts = []
    NotedRanks(3).run(collectives.all_gather)
    found = [(text.rpartition(": ")[2], number) for text, number in texts]
    assert found == [("in an exchange of values", 1)] * 3


@pytest.mark.parametrize("kind", [paddle.to_tensor, np.asarray])
def test_averages_of_large_integers_lose_no_digits(on_ranks, kind):
    number = 2**40 + 1
    for average, dtype, value in ((True, "float64", float(number)), (False, "int64", 3 * number)):
        results = on_ranks(lambda rank, average=average: collectives.reduce_dict({"n": kind([[number]])}, average))
        for reduced in results:
            assert reduced["n"].tolist() == [[value]] and str(reduced["n"].dtype).rpartition(".")[2] == dtype
    summed = on_ranks(lambda rank: collectives.reduce_dict({"n": kind([[True]])}, average=False))
    assert [each["n"].tolist() for each in summed] == [[[3]]] * 3
    assert {str(each["n"].dtype).rpartition(".")[2] for each in summed} == {"int64"}
