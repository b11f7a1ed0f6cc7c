"""The watchdog of ranks that Paddle's launcher has started, on one machine or several: no parent of ours sees them.

Two threads of each rank do what a parent does (``watchdog``). One talks to the group's store: it publishes this rank's
place, and reads whether the run has to end. Rank 0 also reads all places, and decides. The other thread only looks at
the clock, because a request to the store of a machine that is gone may never return.

A rank that cannot run Python is silent, and so named by the others; a timer of the interpreter, in C, ends it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, NoReturn, Optional

import paddle

from ..errors import UserError
from . import places, roll_call, standstill
from .network import send_small_messages_at_once
from .places import Place
from .standstill import Clock, Process, Seen

_GRACE_SECONDS = 3.0  # lets a rank that has failed too report its own failure
_PREFIX = "paddlevit_dist/watch"
_NO_PROCESS = Process("", "", 0, 0)


def run(join: Callable[[], None], work: Callable[[], None], seconds: float) -> None:
    """Join the group and work, watched. Every rank must call this.

    Args:
        seconds: how long a rank may stand still.
    Raises:
        UserError: another program has the master's port.
        WorkerFailure: not all ranks came in time.
    """
    rank, size = int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_TRAINERS_NUM"])
    places.keep(places.Pages.create(Path(tempfile.gettempdir()), 1), 0)  # to be seen from outside
    places.note("joining the group")
    _end_without_python(seconds)
    roll_call.answer(rank, size, seconds)
    _end_without_python(seconds)
    join()
    places.note("at work")
    watch = GroupWatch(rank, size, seconds)
    try:
        work()
    except Exception as error:
        watch.fail(error)
        raise
    else:
        watch.finish()
    finally:
        watch.stop()


def _end_without_python(seconds: float) -> None:
    """End this process, with its stacks, unless this is called again within a while: the interpreter's own timer needs
    no thread of Python."""
    faulthandler.dump_traceback_later(seconds + max(5.0, seconds / 5), exit=True)


class GroupWatch:
    """Watches all ranks of the group from this one. Every rank makes one, once it has joined."""

    def __init__(self, rank: int, size: int, seconds: float) -> None:
        self._rank, self._size, self._seconds = rank, size, seconds
        self._poll = min(seconds / 10, max(1.0, size / 64))  # more ranks, more requests to one store
        self._silence = max(0.75 * seconds, seconds - 10.0)  # in time for the others to end within ``seconds``
        self._host, self._port = roll_call.endpoint()
        self._stopped = threading.Event()
        self._clock = Clock(longest_step=max(2.0, 4 * self._poll))
        self._verdict: Optional[Dict[str, Any]] = None  # of this rank, to be published
        self._published = threading.Event()
        self._store_error = ""
        self._answered = self._clock.now()  # when the store has last answered
        for target in (self._run_watch, self._run_talk):
            threading.Thread(target=target, name=f"group {target.__name__}", daemon=True).start()

    # ---- the end of this rank's work -------------------------------------------------------------------------

    def finish(self) -> None:
        """Wait until all ranks have finished: rank 0 serves the store, and goes last."""
        places.note("finished")
        store = self._connect()
        store.add(f"{_PREFIX}/finished", 1)
        if self._rank == 0:
            self._wait_for(lambda: store.add(f"{_PREFIX}/finished", 0) >= self._size)

    def fail(self, error: Exception) -> None:
        """Tell the other ranks how this one has failed, and give them a moment to hear it."""
        is_user_error = isinstance(error, UserError)
        message = str(error) if is_user_error else f"rank {self._rank} failed: {type(error).__name__}: {error}"
        self._publish(message, 2 if is_user_error else 1)
        if self._rank == 0 and self._published.is_set():
            deadline = time.monotonic() + 2 * self._poll
            store = self._connect()
            self._wait_for(lambda: time.monotonic() > deadline or store.add(f"{_PREFIX}/heard", 0) >= self._size - 1)

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()
        faulthandler.cancel_dump_traceback_later()

    def _wait_for(self, is_reached: Callable[[], bool]) -> None:
        with places.waiting_for_ranks():
            while not is_reached():
                time.sleep(0.02)

    def _publish(self, message: str, code: int) -> None:
        self._verdict = {"message": message, "code": code, "rank": self._rank}
        self._published.wait(2 * self._poll + 1.0)

    # ---- the thread that looks at the clock ------------------------------------------------------------------

    def _run_watch(self) -> None:
        seen: Optional[Seen] = None
        while not self._stopped.wait(self._poll / 2):
            _end_without_python(self._seconds)
            now = self._clock.now()
            seen = standstill.follow(seen, places.own(), Process.look(os.getpid()), now)
            if standstill.culprit({self._rank: seen}, self._seconds, now) is not None and not seen.place.waits:
                self._end_myself(seen, now)
            silent = now - self._answered
            if self._store_error or silent > self._silence:
                self._end_without_store(silent)

    def _end_myself(self, seen: Seen, now: float) -> NoReturn:
        what = standstill.describe(self._rank, {self._rank: seen}, now, str(Process.look(os.getpid())))
        print(_stacks(), file=sys.stderr)
        message = f"rank {self._rank} failed: {what}"
        self._publish(message, 1)
        _end(message, 1)

    def _end_without_store(self, silent: float) -> None:
        what = self._store_error or f"no answer for {silent:.0f} s (WATCHDOG_SECONDS)"
        if self._stopped.wait(_GRACE_SECONDS if self._store_error else 0.0):
            return
        place = places.own().text
        _end(
            f"rank 0 failed: its process or its machine has ended or stands still (its store at {self._host}:"
            f"{self._port}: {what}); rank {self._rank} was {place}",
            1,
        )

    # ---- the thread that talks to the store ------------------------------------------------------------------

    def _run_talk(self) -> None:
        try:
            store = self._connect()
            seen: Dict[int, Seen] = {}
            beats: Dict[int, Any] = {}
            beat = 0
            while not self._stopped.wait(0.0 if beat == 0 else self._poll):
                beat += 1
                place = places.own()
                record = json.dumps([place.moves, place.process, int(place.waits), place.text])
                store.set(f"{_PREFIX}/{self._rank}/place", record)
                store.add(f"{_PREFIX}/{self._rank}/beat", 1)
                self._exchange_verdicts(store)
                self._judge(store, seen, beats)
                self._answered = self._clock.now()
        except Exception as error:  # Paddle's store raises several kinds
            self._store_error = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__

    def _connect(self) -> Any:
        """A connection to the store of our own: the group's is in use while the main thread waits on it."""
        store = paddle.base.core.TCPStore(self._host, self._port, False, 0)
        send_small_messages_at_once()
        return store

    def _exchange_verdicts(self, store: Any) -> None:
        verdict = self._verdict
        if verdict is not None and not self._published.is_set():
            if store.add(f"{_PREFIX}/verdicts", 1) == 1:  # the first one counts
                store.set(f"{_PREFIX}/verdict", json.dumps(verdict))
            self._published.set()
        if store.add(f"{_PREFIX}/verdicts", 0) == 0:
            return
        verdict = json.loads(store.get(f"{_PREFIX}/verdict"))
        if verdict["rank"] == self._rank:
            return  # its main thread is on its way out
        store.add(f"{_PREFIX}/heard", 1)
        if not self._stopped.wait(_GRACE_SECONDS):
            _end(verdict["message"], verdict["code"])

    def _judge(self, store: Any, seen: Dict[int, Seen], beats: Dict[int, Any]) -> None:
        """Rank 0: look at all ranks, and end the run if one stands still. Others: look at rank 0."""
        now = self._clock.now()
        for rank in range(self._size) if self._rank == 0 else (0,):
            number = store.add(f"{_PREFIX}/{rank}/beat", 0)
            if number != beats.get(rank, (None,))[0]:
                beats[rank] = (number, now)
            place = Place(0, 0, False, "joining the group")
            if number:
                moves, process, waits, text = json.loads(store.get(f"{_PREFIX}/{rank}/place"))
                place = Place(moves, process, bool(waits), text)
            known = standstill.follow(seen.get(rank), place, _NO_PROCESS, now)
            seen[rank] = known._replace(is_heard=now - beats[rank][1] < self._silence)
        # A rank that can speak ends the run by itself, with its stack; the others are given up on a little later.
        silent = [rank for rank, known in seen.items() if not known.is_heard and known.place.text != "finished"]
        guilty: Optional[int] = silent[0] if silent else None
        if guilty is None and self._rank == 0:
            guilty = standstill.culprit(seen, self._seconds + 4 * self._poll, now)
        if guilty is None or self._stopped.is_set():
            return
        message = f"rank {guilty} failed: {standstill.describe(guilty, seen, now, '')}"
        self._verdict = {"message": message, "code": 1, "rank": self._rank}
        self._exchange_verdicts(store)
        deadline = time.monotonic() + 2 * self._poll
        while time.monotonic() < deadline and store.add(f"{_PREFIX}/heard", 0) < self._size - 1 - len(silent):
            time.sleep(0.05)
        _end(message, 1)


def _stacks() -> str:
    """The Python stacks of this process's threads, without those that only watch."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        name = names.get(ident, str(ident))
        if name.startswith(("group ", "heartbeat", "loader watchdog")):
            continue
        parts.append(f"thread {name}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)


def _end(message: str, code: int) -> NoReturn:
    sys.stdout.flush()
    print(f"error: {message}", file=sys.stderr, flush=True)
    os._exit(code)
