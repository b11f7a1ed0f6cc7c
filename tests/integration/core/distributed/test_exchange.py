"""Collectives, whoever started the processes, and when things go wrong."""

import json
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import paddle
import pytest
from support.processes import run_command, run_together, run_workers, succeeded
from support.waits import counted_waits

import paddlevit_dist
from paddlevit_dist.core.distributed import SyncPoint

PROGRAM = str(Path(__file__).with_name("plain_spawn.py"))
RANKS = 3


def test_collectives_in_a_users_own_program(tmp_path):
    require_collectives(tmp_path)


def require_collectives(tmp_path: Path, launch: Sequence[str] = ()) -> None:
    """A program that starts its ranks itself, by Paddle's spawn, or is started by Paddle's launcher."""
    logs = ["--log_dir", str(tmp_path)] if launch else []
    run = [sys.executable, *launch, *logs, PROGRAM, str(tmp_path)]
    ended = succeeded(run_command(run, PADDLE_DISTRI_BACKEND="gloo"))
    said = ended.err + "".join(log.read_text() for log in tmp_path.glob("workerlog.*"))
    assert said.count("note: messages between ranks are not signed") == 1, "rank 0 says it once"
    seen = [json.loads((tmp_path / f"seen_{rank}.json").read_text()) for rank in range(2)]
    assert all(of_rank["delayed before"] > 0 for of_rank in seen), "Paddle itself sends at once: nothing is to be done"
    for of_rank in seen:
        assert of_rank["delayed after"] == 0
        assert of_rank["gathered"] == ["rank 0", "rank 1"]
        assert of_rank["reduced"] == {"loss": 1.5}
    assert "rank(s) [1]" in seen[0]["left alone"] and "ended" in seen[0]["left alone"]


class Unreadable:
    """Can be pickled, but not read again."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __reduce__(self):
        return _refuse, (bytes(self.size),)


def _refuse(content: bytes):
    raise ValueError("this cannot be read")


def gather_what_cannot_be_read(size: int):
    """What follows on an object that raises while it is read."""
    data = Unreadable(size) if paddlevit_dist.rank() == 1 else "readable"
    with pytest.raises(ValueError, match="cannot be read"):
        paddlevit_dist.all_gather(data)
    return paddlevit_dist.all_gather(size)


def gather_in_quick_succession():
    """Messages of differing lengths, none of which may be read too early or too late."""
    rank = paddlevit_dist.rank()
    gathered = []
    for turn in range(30):
        parts = paddlevit_dist.all_gather(bytes([rank]) * (turn * rank * 700))
        gathered.append(([len(part) for part in parts], [set(part) for part in parts]))
        gathered[-1] += (paddlevit_dist.reduce_dict({"n": rank * turn}, average=False)["n"],)
    return gathered


def agree():
    """The updates at which this rank finds that all have agreed; barriers keep ranks together as gradients do."""
    agreement = SyncPoint()
    at = []
    for update in range(1, 10):
        paddlevit_dist.barrier()
        if paddlevit_dist.rank():
            time.sleep(0.005)  # the main process is early
        if agreement.reached(update):
            at.append(update)
        if paddlevit_dist.rank() == 0 and update > 1:
            agreement.announce(update)
    paddlevit_dist.barrier()  # the store is gone once the main process has ended
    return at


def exchange():
    """Everything at once, as starting processes is what takes time."""
    return {
        "unreadable": [gather_what_cannot_be_read(size) for size in (10, 100_000)],
        "in quick succession": gather_in_quick_succession(),
        "agreed": agree(),
    }


@pytest.fixture(scope="module")
def seen() -> list:
    """What each of three ranks saw."""
    return succeeded(run_workers("integration.core.distributed.test_exchange:exchange", processes=RANKS)).results


def test_the_group_is_usable_after_an_object_that_cannot_be_read(seen):
    assert [of_rank["unreadable"] for of_rank in seen] == [[[10] * RANKS, [100_000] * RANKS]] * RANKS


def test_ranks_in_quick_succession_never_read_a_message_too_early_or_too_late(seen):
    for of_rank in seen:
        for turn, (lengths, contents, total) in enumerate(of_rank["in quick succession"]):
            assert lengths == [turn * rank * 700 for rank in range(RANKS)]
            assert contents == [{rank} if turn * rank else set() for rank in range(RANKS)]
            assert total == turn * sum(range(RANKS))


def test_ranks_meet_two_updates_after_the_main_process_has_announced_it(seen):
    """What would take the place of an announcement too early is left out."""
    assert [of_rank["agreed"] for of_rank in seen] == [[3, 5, 7, 9]] * RANKS


def meet_amid_signals(wanted: int) -> int:
    """Meet while each process gets one signal after another, until each has had so many; returns how many came."""
    from paddlevit_dist.core.runtime import signals

    signals.record_only()
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            before = signals._state.saves
            os.kill(os.getpid(), signal.SIGUSR1)
            while signals._state.saves == before and not ended.is_set():
                os.sched_yield()

    sender = threading.Thread(target=send)
    sender.start()
    try:
        while min(paddlevit_dist.all_gather(signals._state.saves)) < wanted:
            paddlevit_dist.barrier()
    finally:
        ended.set()
        sender.join()
    return signals._state.saves


GATHERS = {100: 1, 10_000_000: 2}  # bytes of an object -> exchanges that it takes


@pytest.fixture(scope="module")
def of_two() -> dict[str, list]:
    module = "integration.core.distributed.test_exchange"
    gathers = {f"gather {size}": (f"{module}:gather_as_on_a_gpu", (size,)) for size in GATHERS}
    kinds = {"kinds": (f"{module}:gather_every_kind", ()), "uneven": (f"{module}:gather_uneven_kinds", ())}
    return run_together({**gathers, **kinds, "signals": (f"{module}:meet_amid_signals", (20,))})


def test_a_signal_amid_a_meeting_ends_nothing(of_two):
    """Paddle's store takes an interrupted system call for the loss of its connection."""
    came = of_two["signals"]
    assert len(came) == 2 and min(came) >= 20


def gather_as_on_a_gpu(size: int):
    """What a gather of ``size`` bytes, other ones of each rank, gives; and what it makes of them on the way."""
    data = bytes([1 + paddlevit_dist.rank()]) * size
    paddlevit_dist.all_gather(None)  # creates the channel
    dump, load = mock.patch("pickle.dump", wraps=pickle.dump), mock.patch("pickle.loads", wraps=pickle.loads)
    with dump as dumps, load as loads, counted_waits() as waits:
        gathered = paddlevit_dist.all_gather(data)
    found = [(len(part), part[:1], part[-1:]) for part in gathered]
    return found, [wait.kind for wait in waits.list], waits.transfers, dumps.call_count, loads.call_count


@pytest.mark.parametrize("size, gathers", GATHERS.items())
def test_an_object_crosses_to_a_gpu_and_back_by_pinned_memory_and_is_pickled_once(size, gathers, of_two):
    """Short ones are in the frames that tell how long the others are."""
    expected = [(size, bytes([1 + rank]), bytes([1 + rank])) for rank in range(2)]
    assert of_two[f"gather {size}"] == [(expected, ["read"] * gathers, gathers, 1, 2)] * 2


LARGE_BYTES = 2_000_000


def make_large_objects(rank: int) -> dict[str, Any]:
    """Objects of rank ``rank`` by their kind, each of about ``LARGE_BYTES`` when it is pickled."""
    content = np.random.default_rng(rank).integers(0, 128, LARGE_BYTES, dtype=np.uint8)
    text = content.tobytes()
    return {
        "array": content,
        "bytes": text,
        "bytearray": bytearray(text),
        "str": text.decode("ascii"),
        "list of bytes": [text[start : start + 1000] for start in range(0, LARGE_BYTES, 1000)],
        "dictionary": {"name": f"rank {rank}", "array": content[: LARGE_BYTES // 2], "rest": text[LARGE_BYTES // 2 :]},
    }


def gather_every_kind() -> dict[str, tuple]:
    """By the kind of a large object: whether each rank's arrived, and what it took on a GPU, counted on a CPU."""
    everybody = [make_large_objects(rank) for rank in range(2)]
    gather, handed, found = paddle.distributed.all_gather, [], {}

    def counted(gathered: list, tensor: paddle.Tensor) -> Any:
        handed.append(tensor.shape[0])
        return gather(gathered, tensor)

    for kind, data in everybody[paddlevit_dist.rank()].items():
        handed.clear()
        with mock.patch("paddle.distributed.all_gather", counted), counted_waits() as waits:
            gathered = paddlevit_dist.all_gather(data)
        for rank, got in enumerate(gathered):
            np.testing.assert_equal(got, everybody[rank][kind])
            assert type(got) is type(data)
        found[kind] = [*handed], [wait.kind for wait in waits.list], waits.transfers
    return found


def test_large_objects_of_every_kind_go_the_way_of_arrays(of_two):
    """One frame that gives the length, one message: a transfer to the device, a gather and a wait for each."""
    for of_rank in of_two["kinds"]:
        for kind, (handed, waits, transfers) in of_rank.items():
            assert (len(handed), waits, transfers) == (2, ["read"] * 2, 2), kind
            assert handed[0] == 1024 and LARGE_BYTES < handed[1] < 1.01 * LARGE_BYTES, kind


UNEVEN = [
    [b"", bytes(1_200_000)],
    [None, {"rows": list(range(400_000))}],
    [np.zeros([0, 3], "f4"), np.ones([300_000, 3], "f4")],
    [["text", 1.5, {2}], b"x" * 1_100_000],
    [(), []],
]


def gather_uneven_kinds() -> list:
    """Other types and sizes on each rank, empty ones too."""
    for pair in UNEVEN:
        found = paddlevit_dist.all_gather(pair[paddlevit_dist.rank()])
        if any(isinstance(part, np.ndarray) for part in pair):
            np.testing.assert_equal(found, pair)
        else:  # NumPy takes seconds for a long list
            assert found == pair
    return [len(UNEVEN)]


def test_ranks_may_gather_other_types_and_sizes_and_empty_objects(of_two):
    assert of_two["uneven"] == [[len(UNEVEN)]] * 2
