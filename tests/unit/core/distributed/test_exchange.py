"""The channel between ranks, with the ranks as threads of this process, and a store in its memory."""

import collections
import json
import multiprocessing.util
import os
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.distributed.exchange import StoreChannel, has_ended, this_process
from paddlevit_dist.core.launch import rendezvous, secret, status
from paddlevit_dist.core.launch.failures import PeerGone

SIZE = 3


class Store:
    """Paddle's store, in the memory of one process.

    Attributes:
        texts, numbers: its entries, by name.
        asked: the methods that were called, with the name of the entry, in order; those of a loop once.
        meanwhile: called before each number is added or read.
    """

    def __init__(self) -> None:
        self.texts, self.numbers, self.asked = {}, collections.Counter(), []
        self.meanwhile = lambda name: None
        self._lock = threading.Lock()

    def _note(self, *call) -> None:
        if self.asked[-1:] != [call]:
            self.asked.append(call)

    def add(self, name: str, number: int) -> int:
        self.meanwhile(name)
        with self._lock:
            self._note("add", name, number)
            self.numbers[name] += number
            return self.numbers[name]

    def set(self, name: str, text: str) -> None:
        self._note("set", name)
        self.texts[name] = text

    def get(self, name: str) -> bytes:
        self._note("get", name)
        return self.texts[name].encode()


@pytest.fixture
def exits(monkeypatch) -> list:
    """What is to be called at the end of a process, and how."""
    finalizers = []
    monkeypatch.setattr(multiprocessing.util, "Finalize", lambda *words, **options: finalizers.append((words, options)))
    return finalizers


@pytest.fixture
def meet(monkeypatch, fresh_rank, store) -> None:
    """Let this process be a rank that has met the others."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PADDLE_MASTER", f"127.0.0.1:{listener.getsockname()[1]}")
    rendezvous.meet(0, 1, 60.0)


@pytest.fixture
def build(meet, exits) -> Callable[[], list[StoreChannel]]:
    """Return a function that builds the channels of all ranks."""

    def build_all() -> list[StoreChannel]:
        shared = Store()
        channels = [StoreChannel(shared, rank, SIZE) for rank in range(SIZE)]
        assert exits == [((None, channel.leave), {"exitpriority": 0}) for channel in channels]
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

    def meet(rank: int) -> list[int]:
        seen = []
        for _ in range(4):
            arrived.append(rank)
            channels[rank].wait_for_all(60.0)
            seen.append(len(arrived))
        return seen

    for seen in together(meet, range(SIZE)):
        assert all(count >= SIZE * (turn + 1) for turn, count in enumerate(seen))


def test_those_that_do_not_come_are_named(build):
    channels = build()
    together(StoreChannel.wait_for_all, channels)
    with pytest.raises(TimeoutError, match=r"^rank 1 waited 0 s at a barrier for rank\(s\) \[0, 2\]$"):
        channels[1].wait_for_all(0.0)
    with pytest.raises(TimeoutError, match=r"^rank 0 waited 0.01 s at a barrier for rank\(s\) \[2\]$"):
        channels[0].wait_for_all(0.01)


def ended_process() -> str:
    """A process of this machine that has ended."""
    *place, start = this_process().split(" ")
    return " ".join([*place, str(int(start) + 1)])


def test_a_rank_whose_process_has_ended_is_not_waited_for(build, simulated_time):
    first, second, third = channels = build()
    together(StoreChannel.wait_for_all, channels)
    for rank in (1, 2):
        first.store.set(f"paddlevit_dist/process/{rank}", ended_process())
    with pytest.raises(TimeoutError):
        second.wait_for_all(0.0)  # it arrives before it ends
    begun = simulated_time.now
    with pytest.raises(PeerGone, match=r"^rank 0 waits at a barrier for rank\(s\) \[2\], whose process has ended$"):
        first.wait_for_all()
    assert 1.0 < simulated_time.now - begun < 1.1


def test_processes_are_known_from_the_second_meeting_on(build, simulated_time):
    first, *others = channels = build()
    first.store.set("paddlevit_dist/process/1", ended_process())
    first.store.asked.clear()

    def arrive(number: int) -> None:
        if simulated_time.now > begun + 3.0:
            simulated_time.meanwhile = lambda number: None
            for _ in others:
                first.store.add("paddlevit_dist/arrived", 1)

    begun, simulated_time.meanwhile = simulated_time.now, arrive
    first.wait_for_all()
    assert not [call for call in first.store.asked if call[0] == "get"]
    begun, simulated_time.meanwhile = simulated_time.now, arrive
    first.store.numbers["paddlevit_dist/waits/1"] = first.store.numbers["paddlevit_dist/waits/2"] = 2  # they came
    first.wait_for_all()
    assert [call for call in first.store.asked if call[0] == "get"] == [
        ("get", f"paddlevit_dist/process/{rank}") for rank in range(SIZE)
    ]
    assert channels


def test_a_rank_that_arrives_before_it_ends_is_not_missing(build, simulated_time):
    first, *_ = channels = build()
    together(StoreChannel.wait_for_all, channels)
    first.store.set("paddlevit_dist/process/2", ended_process())

    def arrive_late(name: str) -> None:
        if name.endswith("waits/2"):  # it is looked at
            first.store.numbers["paddlevit_dist/arrived"] = 2 * SIZE

    first.store.meanwhile = arrive_late
    first.wait_for_all()


def test_a_process_is_the_same_only_with_its_start_boot_and_namespace():
    this = this_process()
    boot, namespace, number, start = this.split(" ")
    assert int(number) == os.getpid() and len(boot) == 36 and namespace.startswith("pid:[")
    assert not has_ended(this) and not has_ended("")
    assert has_ended(f"{boot} {namespace} {number} {int(start) - 1}")
    assert has_ended(f"{boot} {namespace} {2**22 + 1} {start}")
    assert not has_ended(f"{boot} pid:[1] {number} 1") and not has_ended(f"x {namespace} {number} 1")


@pytest.mark.parametrize("rank, waits", [(0, 1000), (1, 0)])
def test_rank_0_stays_five_seconds_at_most(build, simulated_time, rank, waits):
    channel = build()[rank]
    channel.leave()
    assert simulated_time.waits == [0.005] * waits
    assert channel.store.numbers["paddlevit_dist/left"] == 1


def test_rank_0_stays_until_the_others_have_left_or_ended(build, simulated_time):
    first, second, third = build()
    simulated_time.meanwhile = lambda number: {2: second, 4: third}[number].leave() if number in (2, 4) else None
    first.leave()
    assert simulated_time.waits == [0.005] * 4 and first.store.numbers["paddlevit_dist/left"] == SIZE


def test_rank_0_does_not_stay_for_those_that_have_ended(build, simulated_time):
    first, *_ = channels = build()
    together(StoreChannel.wait_for_all, channels)
    for rank in (1, 2):
        first.store.set(f"paddlevit_dist/process/{rank}", ended_process())
    first.store.numbers["paddlevit_dist/arrived"] += SIZE - 1
    first.wait_for_all()
    simulated_time.waits.clear()
    first.leave()
    assert simulated_time.waits == [] and first.store.numbers["paddlevit_dist/left"] == 1


# Messages


@pytest.fixture
def group(other_paddle) -> threading.local:
    """Paddle's group of threads: each has set its ``rank``. ``sent`` has the sizes of what was gathered."""
    own, gate, tensors, sent = threading.local(), threading.Barrier(SIZE, timeout=60), {}, []

    def all_gather(gathered: list, tensor: paddle.Tensor) -> None:
        tensors[own.rank] = tensor
        gate.wait()
        sent.append((str(tensor.dtype).rpartition(".")[2], tensor.shape))
        gathered.extend(tensors[rank].clone() for rank in range(SIZE))
        gate.wait()

    other_paddle({"distributed.all_gather": all_gather})
    own.rank = 0
    return own, sent


@pytest.mark.parametrize(
    "sizes, gathers", [((0, 5, 1016), [1024]), ((1, 1017, 3), [1024, 1017]), ((5000, 0, 1024), [1024, 5000])]
)
def test_each_rank_reads_every_message_whatever_its_length(build, group, sizes, gathers):
    messages, channels, (own, sent) = [bytes([65 + rank]) * size for rank, size in enumerate(sizes)], build(), group

    def exchange(rank: int) -> list:
        own.rank = rank
        return channels[rank].exchange(messages[rank], lambda rank, part: (rank, bytes(part)))

    for received in together(exchange, range(SIZE)):
        assert received == list(enumerate(messages))
    assert sent == [("uint8", [size]) for size in gathers for _ in range(SIZE)]


def begin(rank: int, shared: Store, own: bytes | None) -> Exception | None:
    """Build the channel of a rank in a user's own program, where others have come already; return its error."""
    if own is not None:
        secret.use(own)
    try:
        StoreChannel(shared, rank, SIZE)
    except UserError as error:
        return error
    return None


def test_programs_of_users_agree_on_a_session_and_refuse_another_secret(fresh_rank, exits, capsys):
    names, shared = [], Store()
    shared.numbers["paddlevit_dist/came"] = SIZE - 1  # this one is the last
    hellos = {f"paddlevit_dist/hello/{rank}": json.dumps([2, f"nonce {rank}"]) for rank in range(SIZE)}
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as one:
        for rank in range(SIZE):
            shared.numbers["paddlevit_dist/came"] = SIZE - 1
            shared.texts = dict.fromkeys(hellos, json.dumps([1, "nonce"]))
            assert (
                begin(rank, shared, None) is None and json.loads(shared.texts[f"paddlevit_dist/hello/{rank}"])[0] == 1
            )
            assert capsys.readouterr().err.startswith("note: messages between ranks are not signed") is (rank == 0)
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1  # small messages at once
    secret.use(b"s" * 32)
    own = secret.fingerprint()
    for nonce in ("a", "b"):
        secret.use(b"s" * 32)
        shared.numbers["paddlevit_dist/came"] = SIZE - 1
        shared.texts = {name: json.dumps([own, nonce]) for name in hellos}
        assert begin(2, shared, None) is None
        found = secret.key_name("board")
        nonces = [json.loads(shared.texts[name])[1] for name in hellos]
        assert nonces[:2] == [nonce, nonce] and len(bytes.fromhex(nonces[2])) == 16
        secret.use(b"s" * 32)
        secret.begin_session(*nonces)
        assert secret.key_name("board") == found
        names.append(found)
    assert len(set(names)) == 2
    shared.numbers["paddlevit_dist/came"] = SIZE - 1
    shared.texts = dict(hellos)
    refused = begin(0, shared, b"s" * 32)
    assert str(refused).startswith("rank(s) [1, 2] have another secret than rank 0: ")


def test_a_program_of_a_user_waits_until_all_have_come(fresh_rank, exits, simulated_time):
    shared, waits = Store(), []
    shared.texts = {f"paddlevit_dist/hello/{rank}": json.dumps([1, "nonce"]) for rank in range(SIZE)}

    def come(number: int) -> None:
        waits.append(status.get_status().waits)
        shared.numbers["paddlevit_dist/came"] += number > 1

    simulated_time.meanwhile = come
    assert begin(1, shared, None) is None
    assert simulated_time.waits == [0.01] * 3 and waits == [True] * 3 and not status.get_status().waits


# Waiting, by a clock of the test


@pytest.fixture
def alone(meet, exits, simulated_time) -> StoreChannel:
    """The channel of rank 1, whose 4 earlier meetings the others have left; it has waited in 2 of them."""
    shared = Store()
    channel = StoreChannel(shared, 1, SIZE)
    shared.texts.update({"paddlevit_dist/process/0": "", "paddlevit_dist/process/2": ended_process()})
    shared.numbers["paddlevit_dist/waits/2"] = 5  # it has arrived at the fifth, and ended
    for meeting in range(4):
        shared.numbers["paddlevit_dist/arrived"] = 3 * meeting + (1 if meeting == 1 else 2)
        simulated_time.meanwhile = lambda number: shared.numbers.update({"paddlevit_dist/arrived": 1})
        channel.wait_for_all()
    shared.asked.clear()
    simulated_time.waits.clear()
    simulated_time.meanwhile = lambda number: None
    return channel


def test_missing_ranks_are_looked_at_once_a_second_while_a_rank_waits(alone, simulated_time):
    store, waits, looks, begun = alone.store, [], [], simulated_time.now

    def note_look(name: str) -> None:
        if name.endswith("waits/2"):
            looks.append(round(simulated_time.now - begun, 3))

    def meanwhile(number: int) -> None:
        waits.append(status.get_status().waits)
        simulated_time.now = round(simulated_time.now - simulated_time.waits[-1] + 0.7, 6)
        if number == 6:
            store.numbers["paddlevit_dist/arrived"] = 15

    simulated_time.meanwhile, store.meanwhile = meanwhile, note_look
    alone.wait_for_all()
    assert store.asked[:3] == [
        ("add", "paddlevit_dist/arrived", 1),
        ("add", "paddlevit_dist/waits/1", 3),
        ("add", "paddlevit_dist/arrived", 0),
    ]
    assert looks == [1.4, 2.8] and waits == [True] * 6 and not status.get_status().waits
    assert simulated_time.waits == pytest.approx([0.0001, 0.021875, 0.04375, 0.05, 0.05, 0.05])
    store.asked.clear()
    store.numbers["paddlevit_dist/arrived"] = 17
    alone.wait_for_all()
    assert store.asked == [("add", "paddlevit_dist/arrived", 1)]


def test_a_limit_is_waited_for_and_no_longer(alone, simulated_time):
    begun = simulated_time.now
    alone.store.numbers["paddlevit_dist/waits/0"], alone.store.numbers["paddlevit_dist/waits/2"] = 5, 4
    with pytest.raises(TimeoutError, match=r"^rank 1 waited 2 s at a barrier for rank\(s\) \[2\]$"):
        alone.wait_for_all(2.0)
    assert 2.0 < simulated_time.now - begun < 2.06
    assert not [call for call in alone.store.asked if call[0] == "get"]


@pytest.mark.parametrize("error", [RuntimeError, ValueError, OSError])
def test_a_store_that_is_closed_is_left_in_silence(alone, simulated_time, error):
    def refuse(name: str) -> None:
        raise error

    alone.store.meanwhile = refuse
    alone.leave()
    assert simulated_time.waits == []


def test_the_store_is_asked_with_signals_blocked_and_by_names_that_need_the_secret(alone):
    usual, blocked = signal.pthread_sigmask(signal.SIG_BLOCK, []), []
    alone.store.meanwhile = lambda name: blocked.append(signal.pthread_sigmask(signal.SIG_BLOCK, []) - usual)
    assert alone.posted() == 0
    assert blocked == [{signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1} - usual]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == usual
    secret.use(b"s" * 32)
    alone.posted()
    assert alone.store.asked[-1] == ("add", secret.key_name("paddlevit_dist/board"), 0)
