"""The channel between ranks: Paddle's own store, with the ranks as threads of this process."""

import contextlib
import multiprocessing.util
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.distributed import exchange, world
from paddlevit_dist.launch import rendezvous, secret, status
from paddlevit_dist.launch.failures import PeerGone

SIZE = 3


@pytest.fixture(scope="module")
def stores() -> list[Any]:
    """A store of each rank; the first serves."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    built = [paddle.base.core.TCPStore("127.0.0.1", port, rank == 0, 1, 60) for rank in range(SIZE)]
    rendezvous.send_small_messages_at_once()
    return built


@pytest.fixture
def build(stores, monkeypatch, request) -> Callable[[], list[exchange.StoreChannel]]:
    """Return a function that builds the channels of all ranks."""
    here = threading.local()
    finalizers = []
    monkeypatch.setattr(exchange, "_PREFIX", f"{request.node.name}/")
    monkeypatch.setattr(world, "world_size", lambda: SIZE)
    monkeypatch.setattr(world, "rank", lambda: here.rank)
    monkeypatch.setattr(paddle.base.core, "create_or_get_global_tcp_store", lambda: stores[here.rank])
    monkeypatch.setattr(multiprocessing.util, "Finalize", lambda *words, **options: finalizers.append((words, options)))
    monkeypatch.setattr(rendezvous, "has_met", lambda: True)

    def build_one(rank: int) -> exchange.StoreChannel:
        here.rank = rank
        return exchange.StoreChannel()

    def build_all() -> list[exchange.StoreChannel]:
        channels = together(build_one, range(SIZE))
        assert [(words[0], options) for words, options in finalizers] == [(None, {"exitpriority": 0})] * SIZE
        return channels

    return build_all


def together(call: Callable[[Any], Any], of_ranks: Any) -> list[Any]:
    """Call a function for each rank in a thread of its own."""
    with ThreadPoolExecutor(SIZE) as threads:
        return [future.result(60) for future in [threads.submit(call, of_rank) for of_rank in of_ranks]]


def test_the_last_number_and_all_requests_are_seen_by_all(build):
    first, second, third = build()
    assert [channel.posted() for channel in (first, third)] == [0, 0]
    for number in (7, -2, 5):
        first.post(number)
        assert second.posted() == third.posted() == number
    for channel, stop in ((second, True), (third, False), (second, False), (first, False)):
        channel.send_request(stop)
    assert first.count_requests() == third.count_requests() == (1, 3)


def test_all_wait_for_the_last_as_often_as_they_meet(build):
    channels, arrived = build(), []

    def meet(channel: exchange.StoreChannel) -> list[int]:
        seen = []
        for _ in range(4):
            arrived.append(channel._rank)
            channel.wait_for_all(60.0)
            seen.append(len(arrived))
        return seen

    for seen in together(meet, channels):
        assert all(count >= SIZE * (turn + 1) for turn, count in enumerate(seen))


def test_those_that_do_not_come_are_named(build):
    channels = build()
    together(lambda channel: channel.wait_for_all(60.0), channels)
    with pytest.raises(TimeoutError, match=r"^rank 1 waited 0 s at a barrier for rank\(s\) \[0, 2\]$"):
        channels[1].wait_for_all(0.0)
    with pytest.raises(TimeoutError, match=r"^rank 0 waited 0.01 s at a barrier for rank\(s\) \[2\]$"):
        channels[0].wait_for_all(0.01)


def test_a_rank_whose_process_has_ended_is_not_waited_for(build, monkeypatch):
    channels = build()
    together(lambda channel: channel.wait_for_all(60.0), channels)
    boot, namespace, _, start = exchange._this_process().split(" ")
    ended = f"{boot} {namespace} {os.getpid()} {int(start) + 1}"
    channels[2].store.set(channels[0]._process_key(2), ended)
    channels[2].store.set(channels[0]._process_key(1), ended)  # after it has arrived
    with pytest.raises(TimeoutError):
        channels[1].wait_for_all(0.0)
    monkeypatch.setattr(exchange.StoreChannel, "_CHECK_SECONDS", 0.0)
    with pytest.raises(PeerGone, match=r"^rank 0 waits at a barrier for rank\(s\) \[2\], whose process has ended$"):
        channels[0].wait_for_all()


def test_a_process_is_the_same_only_with_its_start_boot_and_namespace():
    this = exchange._this_process()
    boot, namespace, number, start = this.split(" ")
    assert int(number) == os.getpid() and len(boot) == 36 and namespace.startswith("pid:[")
    assert not exchange._has_ended(this) and not exchange._has_ended("")
    assert exchange._has_ended(f"{boot} {namespace} {number} {int(start) - 1}")
    assert exchange._has_ended(f"{boot} {namespace} {2**22 + 1} {start}")
    assert not exchange._has_ended(f"{boot} pid:[1] {number} 1") and not exchange._has_ended(
        f"x {namespace} {number} 1"
    )


def test_rank_0_stays_until_the_others_have_left_but_not_for_ever(build, monkeypatch):
    channels = build()
    monkeypatch.setattr(exchange.StoreChannel, "_LEAVE_SECONDS", 60.0)

    def leave(channel: exchange.StoreChannel) -> int:
        channel._leave()
        return channel._add("left", 0)

    counts = together(leave, channels)
    assert counts[0] == SIZE and all(1 <= count <= SIZE for count in counts)


def test_rank_0_leaves_in_time_or_once_the_others_have_ended(build, monkeypatch):
    channels = build()
    monkeypatch.setattr(exchange.StoreChannel, "_LEAVE_SECONDS", 0.02)
    channels[0]._leave()
    monkeypatch.setattr(exchange.StoreChannel, "_LEAVE_SECONDS", 1000.0)
    boot, namespace, number, start = exchange._this_process().split(" ")
    channels[0]._processes = [f"{boot} {namespace} {number} {start}", *[f"{boot} {namespace} {number} 1"] * 2]
    channels[0]._leave()
    assert channels[0]._add("left", 0) == 2


# Messages


def exchange_all(channels: list, messages: list[bytes], monkeypatch) -> list[list[Any]]:
    """Let each rank exchange its message; Paddle's gather is replaced by memory, since one process has no group."""
    gate, sent = threading.Barrier(SIZE), {}

    def gather_of(channel: exchange.StoreChannel) -> Callable:
        def gather(content, size):
            assert len(content) <= size
            sent[channel._rank] = bytes(content).ljust(size, b"\0")
            gate.wait(60)
            parts = [memoryview(sent[rank]) for rank in range(SIZE)]
            gate.wait(60)
            return parts

        return gather

    for channel in channels:
        monkeypatch.setattr(channel, "_gather", gather_of(channel), raising=False)
    pairs = list(zip(channels, messages))
    return together(lambda pair: pair[0].exchange(pair[1], lambda rank, part: (rank, bytes(part))), pairs)


@pytest.mark.parametrize("sizes", [(0, 5, 1016), (1, 1017, 3), (5000, 0, 1024)])
def test_each_rank_reads_every_message_whatever_its_length(build, monkeypatch, sizes):
    messages = [bytes([65 + rank]) * size for rank, size in enumerate(sizes)]
    for received in exchange_all(build(), messages, monkeypatch):
        assert received == list(enumerate(messages))


def test_programs_of_users_agree_on_a_session_and_refuse_another_secret(build, monkeypatch, capsys):
    monkeypatch.setattr(rendezvous, "has_met", lambda: False)
    sessions, prints = [], {}
    numbers = iter(range(2, 100))
    at_once = []
    monkeypatch.setattr(rendezvous, "send_small_messages_at_once", lambda: at_once.append(1))
    monkeypatch.setattr(secret, "begin_session", lambda *nonces: sessions.append(nonces))
    monkeypatch.setattr(secret, "print_missing_protection", lambda: print("unprotected"))
    monkeypatch.setattr(secret, "fingerprint", lambda: 7)
    build()
    assert len(sessions) == SIZE and len(set(sessions)) == 1 and len(set(sessions[0])) == SIZE
    assert capsys.readouterr().out == "unprotected\n" and len(at_once) == SIZE
    monkeypatch.setattr(exchange, "_PREFIX", "others/")
    monkeypatch.setattr(secret, "fingerprint", lambda: prints.setdefault(threading.get_ident(), next(numbers)))
    monkeypatch.setattr(secret, "describe_mismatch", lambda rank, others: f"{rank} is not like {sorted(others)}")
    with pytest.raises(UserError, match=r"^0 is not like \[1, 2\]$"):
        build()


# Waiting, by a clock of the test


class Counters(exchange.StoreChannel):
    """Rank 1 of 3, with counters in place of the store; the others arrive at some time."""

    def __init__(self, clock: Any, arrive_at: float = 1e9) -> None:
        self._rank, self._size, self._meetings, self._waited_in = 1, 3, 4, 2
        self.clock, self.arrive_at, self.calls, self.checks = clock, arrive_at, [], []

    def _add(self, name: str, number: int) -> int:
        if (name, number) != ("arrived", 0):
            self.calls.append((name, number))
        return 15 if self.clock.now >= self.arrive_at else 14

    def _check_missing(self, expected: int) -> None:
        self.checks.append((round(self.clock.now, 3), expected))

    def _missing(self) -> list[int]:
        return [2]


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    state = SimpleNamespace(now=100.0, step=0.7, sleeps=[], waits=[])

    def sleep(seconds: float) -> None:
        state.sleeps.append(round(seconds, 6))
        state.waits.append(status.get_status().waits)
        state.now += state.step

    monkeypatch.setattr(exchange, "time", SimpleNamespace(monotonic=lambda: state.now, sleep=sleep))
    monkeypatch.setattr(status, "_notes", status._StatusNotes())
    return state


def test_missing_ranks_are_looked_at_once_a_second_while_a_rank_waits(clock):
    channel = Counters(clock, 104.0)
    channel.wait_for_all()
    assert channel.calls == [("arrived", 1), ("waits/1", 3)] and (channel._meetings, channel._waited_in) == (5, 5)
    assert channel.checks == [(101.4, 15), (102.8, 15)]
    assert clock.sleeps == [0.0001, 0.021875, 0.04375, 0.05, 0.05, 0.05] and clock.waits == [True] * 6
    assert not status.get_status().waits
    later = Counters(clock, 0.0)
    later.wait_for_all()
    assert later.calls == [("arrived", 1)] and later._waited_in == 2


def test_a_limit_is_waited_for_and_no_longer(clock):
    clock.step = 1.0
    channel = Counters(clock)
    with pytest.raises(TimeoutError, match=r"^rank 1 waited 2 s at a barrier for rank\(s\) \[2\]$"):
        channel.wait_for_all(2.0)
    assert clock.now == 103.0 and channel.checks == []


def test_messages_are_padded_and_put_in_the_order_of_ranks(monkeypatch):
    sent = []

    def all_gather(gathered: list, tensor: paddle.Tensor) -> None:
        sent.append((str(tensor.dtype).rpartition(".")[2], tensor.tolist()))
        gathered.extend([paddle.to_tensor([7] * tensor.shape[0], "uint8"), tensor, tensor + 1])

    monkeypatch.setattr(exchange, "dist", SimpleNamespace(all_gather=all_gather))
    channel = exchange.StoreChannel.__new__(exchange.StoreChannel)
    channel._rank = 1
    first, own, last = channel._gather(b"\1\2\3", 5)
    assert (first.tolist(), own.tolist(), last.tolist()) == ([7] * 5, [1, 2, 3, 0, 0], [2, 3, 4, 1, 1])
    assert [part.tolist() for part in channel._gather(memoryview(b"\5\6"), 2)] == [[7, 7], [5, 6], [6, 7]]
    assert sent == [("uint8", [1, 2, 3, 0, 0]), ("uint8", [5, 6])]


def test_the_start_of_a_process_is_a_field_after_its_name(tmp_path, monkeypatch):
    paths, fields = [], " ".join(map(str, range(4, 53)))

    def open_ours(path: str, **options: Any) -> Any:
        paths.append(path)
        return (tmp_path / "stat").open(**options)

    monkeypatch.setattr(exchange, "open", open_ours, raising=False)
    for state, start in (("S", "22"), ("Z", ""), ("X", "")):
        (tmp_path / "stat").write_bytes(b"41 (a) \xff) " + f"{state} {fields}".encode())
        assert exchange._read_start(41) == start and paths[-1] == "/proc/41/stat"
    (tmp_path / "stat").unlink()
    assert exchange._read_start(41) == exchange._this_process() == ""


def test_a_request_to_save_counts_apart_from_those_to_stop(clock):
    channel = Counters(clock)
    channel._add = lambda name, number: channel.calls.append((name, number)) or (5 << 32) + 7
    channel.send_request(stop=True)
    channel.send_request(stop=False)
    assert channel.count_requests() == (7, 5)
    assert channel.calls == [("asked", 1), ("asked", 2**32), ("asked", 0)]


@pytest.mark.parametrize("rank, waits", [(0, 6), (1, 0)])
def test_rank_0_stays_five_seconds_at_most(clock, monkeypatch, rank, waits):
    clock.step = 1.0
    channel = Counters(clock)
    channel._rank, counts = rank, iter(range(1, 99))
    channel._add = lambda name, number: channel.calls.append((name, number)) or min(next(counts), 2)
    monkeypatch.setattr(channel, "_find_ended", list)
    channel._leave()
    assert clock.sleeps == [0.005] * min(waits, 5) and channel.calls == [("left", 1), *[("left", 0)] * min(waits, 5)]


@pytest.mark.parametrize("error", [RuntimeError, ValueError, OSError])
def test_a_store_that_is_closed_is_left_in_silence(clock, error):
    channel = Counters(clock)

    def add(name: str, number: int) -> int:
        raise error

    channel._add = add
    channel._leave()
    assert clock.sleeps == []


def test_the_store_is_asked_with_signals_blocked(monkeypatch):
    calls = []

    @contextlib.contextmanager
    def blocked():
        calls.append("block")
        yield
        calls.append("unblock")

    monkeypatch.setattr(exchange.signals, "blocked", blocked)
    channel = exchange.StoreChannel.__new__(exchange.StoreChannel)
    channel.store = SimpleNamespace(add=lambda *words: calls.append(words) or 5)
    monkeypatch.setattr(exchange, "key_name", lambda name: f"secret {name}")
    assert channel._add("board", 3) == 5
    assert calls == ["block", ("secret paddlevit_dist/board", 3), "unblock"]


def test_a_rank_that_arrived_before_it_ended_is_not_missing(clock, monkeypatch):
    channel = Counters(clock, 100.5)
    monkeypatch.setattr(channel, "_find_ended", lambda: [0, 2])
    with pytest.raises(PeerGone, match=r"^rank 1 waits at a barrier for rank\(s\) \[2\], whose process has ended$"):
        exchange.StoreChannel._check_missing(channel, 15)
    clock.now = 101.0
    exchange.StoreChannel._check_missing(channel, 15)  # all have come meanwhile
    monkeypatch.setattr(channel, "_find_ended", lambda: [0])
    clock.now = 100.0
    exchange.StoreChannel._check_missing(channel, 15)


def test_processes_are_known_from_the_second_meeting_on(clock, monkeypatch):
    channel, asked = Counters(clock), []
    channel._processes = []
    monkeypatch.setattr(channel, "_ask_store", lambda *words: asked.append(words) or f"p{len(asked)}".encode())
    monkeypatch.setattr(channel, "_process_key", lambda rank: f"key {rank}")
    monkeypatch.setattr(exchange, "_has_ended", lambda process: process in ("p1", "p3"))
    for meetings, found in ((1, []), (2, [0, 2]), (3, [0, 2])):
        channel._meetings = meetings
        assert channel._find_ended() == found
    assert asked == [("get", f"key {rank}") for rank in range(3)]
