"""The watchdog of ranks that Paddle's launcher has started, on one machine or several: no parent of ours sees them.

Two threads of each rank do what a parent does (``watchdog``). One talks to the group's store: it publishes this rank's
place, and reads whether the run has to end. Rank 0 also reads all places, and decides. The other thread only looks at
the clock, because a request to the store of a machine that is gone may never return.

A rank that cannot run Python is silent, and so named by the others; a timer of the interpreter, in C, ends it.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import math
import os
import signal
import struct
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, NoReturn, Optional

import paddle

from .. import printing
from ..errors import Stopped, UserError
from . import failures, places, roll_call, secret, standstill
from .places import Place
from .secret import key_name
from .sockets import send_small_messages_at_once
from .standstill import Clock, Process, Seen

_GRACE_SECONDS = 3.0  # lets a rank that has failed too report its own failure
_STOP_SECONDS = 10.0  # between the ends of ranks that stop together
_NO_PROCESS = Process("", "", 0, 0)


def run(join: Callable[[Callable[[], Any]], None], work: Callable[[], None], seconds: float) -> None:
    """Join the group and work, watched. Every rank must call this.

    Args:
        join: joins the group; what it is given is to be called while the group's store still takes connections.
        seconds: how long a rank may stand still.
    Raises:
        UserError: another program has the master's port.
        WorkerFailure: not all ranks came in time.
    """
    rank, size = int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_TRAINERS_NUM"])
    with roll_call.failures_told(seconds):
        secret.of_run()
    if hasattr(os, "memfd_create"):
        places.keep(places.Pages.create(Path(), 1), 0)  # to be seen from outside
    places.note("joining the group")
    _end_without_python(seconds, sys.stderr)
    roll_call.answer(rank, size, seconds)
    _end_without_python(seconds, sys.stderr)
    with contextlib.ExitStack() as watched:
        with places.waiting_for_ranks():
            join(lambda: watched.enter_context(GroupWatch(rank, size, seconds)))
        places.note("at work")
        work()


def _end_without_python(seconds: float, stderr: Any) -> None:
    """End this process unless this is called again within a while: by the interpreter's own timer, which needs no
    thread of Python and shows the stacks on a ``stderr`` that is a file, or by the kernel's, which a stopped process
    does not escape either."""
    seconds += max(5.0, seconds / 5)
    faulthandler.dump_traceback_later(seconds, file=stderr, exit=True)
    _kill_after(seconds + _GRACE_SECONDS)


_timer: Optional[ctypes.c_void_p] = None


def _kill_after(seconds: float) -> None:
    """Have the kernel send SIGKILL to this process then (Linux); 0: not any more."""
    global _timer
    if sys.platform != "linux":
        return
    library = ctypes.CDLL("librt.so.1")
    if _timer is None:
        _timer = ctypes.c_void_p()
        event = struct.pack("Pii", 0, signal.SIGKILL, 0).ljust(64, b"\0")  # sigevent: value, signal, SIGEV_SIGNAL
        library.timer_create(time.CLOCK_MONOTONIC, event, ctypes.byref(_timer))
    whole, fraction = divmod(seconds, 1.0)
    library.timer_settime(_timer, 0, struct.pack("4l", 0, 0, int(whole), int(1e9 * fraction)), None)


def _connect() -> Any:
    """A connection to the group's store of our own: the main one is in use while the main thread waits on it."""
    store = paddle.base.core.TCPStore(*roll_call.endpoint(), False, 0)
    send_small_messages_at_once()
    return store


class GroupWatch:
    """Watches all ranks of the group from this one, as a context. Every rank makes one while it joins, where the
    group's store takes connections.

    Args:
        seconds: how long a rank may stand still.
    """

    def __init__(self, rank: int, size: int, seconds: float) -> None:
        self._rank, self._size, self._seconds = rank, size, seconds
        self._poll = min(seconds / 10, max(1.0, size / 64))  # more ranks, more requests to one store
        self._silence = max(0.75 * seconds, seconds - 10.0)  # in time for the others to end within ``seconds``
        self._host, self._port = roll_call.endpoint()
        self._of_thread, self._of_main = _connect(), _connect()
        self._prefix = key_name("paddlevit_dist/watch")  # by the secret of the run: the session's is not known yet
        self._stderr = sys.stderr  # elsewhere for as long as Paddle joins
        self._stopped = threading.Event()
        self._clock = Clock(longest_step=max(2.0, 4 * self._poll))
        self._has_lost_a_peer = False
        self._verdict: Optional[Dict[str, Any]] = None  # of this rank, to be published
        self._published = threading.Event()
        self._store_error = ""
        self._answered = self._clock.now()  # when the store has last answered
        targets = (self._run_watch, self._run_talk)
        self._threads = [threading.Thread(target=target, name="group watch", daemon=True) for target in targets]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "GroupWatch":
        return self

    # ---- the end of this rank's work -------------------------------------------------------------------------

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        try:
            if error is None or isinstance(error, Stopped):
                places.note("finished")
                self._of_main.add(self._key("finished"), 1)
                if self._rank == 0:  # it serves the store, and goes last
                    self._wait_for("finished", self._size, math.inf if error is None else _STOP_SECONDS)
            elif isinstance(error, Exception):
                if failures.is_echo(error):
                    self._has_lost_a_peer = True
                    with places.waiting_for_ranks():  # the watching threads find out which, and end this process
                        self._stopped.wait(self._seconds)
                self.fail(error)
        finally:
            self.stop()

    def fail(self, error: Exception) -> None:
        """Tell the other ranks how this one has failed, and give them a moment to hear it."""
        is_user_error = isinstance(error, UserError)
        message = failures.reason(error)
        self._publish(message if is_user_error else f"rank {self._rank} failed: {message}", 2 if is_user_error else 1)
        if self._rank == 0 and self._published.is_set():
            self._wait_for("heard", self._size - 1, 2 * self._poll)

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()
        for thread in self._threads:  # one inside Paddle's store when Python ends would abort the process
            thread.join(_GRACE_SECONDS)
        faulthandler.cancel_dump_traceback_later()
        _kill_after(0)

    def _wait_for(self, what: str, ranks: int, longest_wait: float) -> None:
        deadline = time.monotonic() + longest_wait
        with places.waiting_for_ranks():
            while self._of_main.add(self._key(what), 0) < ranks and time.monotonic() < deadline:
                time.sleep(0.02)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def _end(self, message: str, code: int) -> NoReturn:
        sys.stdout.flush()
        print(f"error: {printing.one_line(message)}", file=self._stderr, flush=True)
        os._exit(code)

    def _publish(self, message: str, code: int) -> None:
        self._verdict = {"message": message, "code": code, "rank": self._rank}
        self._published.wait(2 * self._poll + 1.0)

    # ---- the thread that looks at the clock ------------------------------------------------------------------

    def _run_watch(self) -> None:
        seen: Optional[Seen] = None
        while not self._stopped.wait(self._poll / 2):
            _end_without_python(self._seconds, self._stderr)
            now = self._clock.now()
            seen = standstill.follow(seen, places.own(), Process.look(os.getpid()), now)
            if standstill.culprit({self._rank: seen}, self._seconds, now) is not None and not seen.place.waits:
                self._end_myself(seen, now)
            silent = now - self._answered
            if self._store_error or silent > self._silence:
                self._end_without_store(silent)

    def _end_myself(self, seen: Seen, now: float) -> NoReturn:
        what = standstill.describe(self._rank, {self._rank: seen}, now, str(Process.look(os.getpid())))
        print(_stacks(), file=self._stderr)
        message = f"rank {self._rank} failed: {what}"
        self._publish(message, 1)
        self._end(message, 1)

    def _end_without_store(self, silent: float) -> None:
        what = self._store_error or f"no answer for {silent:.0f} s (WATCHDOG_SECONDS)"
        if self._stopped.wait(_GRACE_SECONDS if self._store_error else 0.0):
            return
        place = places.own().text
        self._end(
            f"rank 0 failed: its process or its machine has ended or stands still (its store at {self._host}:"
            f"{self._port}: {what}); rank {self._rank} was {place}",
            1,
        )

    # ---- the thread that talks to the store ------------------------------------------------------------------

    def _run_talk(self) -> None:
        try:
            store = self._of_thread
            seen: Dict[int, Seen] = {}
            beats: Dict[int, Any] = {}
            beat = 0
            while not self._stopped.wait(0.0 if beat == 0 else self._poll):
                beat += 1
                place = places.own()
                record = json.dumps([place.moves, place.process, int(place.waits), place.text])
                store.set(self._key(f"{self._rank}/place"), record)
                store.add(self._key(f"{self._rank}/beat"), 1)
                self._exchange_verdicts(store)
                self._judge(store, seen, beats)
                self._answered = self._clock.now()
        except Exception as error:  # Paddle's store raises several kinds
            self._store_error = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__

    def _exchange_verdicts(self, store: Any) -> None:
        verdict = self._verdict
        if verdict is not None and not self._published.is_set():
            if store.add(self._key("verdicts"), 1) == 1:  # the first one counts
                store.set(self._key("verdict"), json.dumps(verdict))
            self._published.set()
        if store.add(self._key("verdicts"), 0) == 0:
            return
        verdict = json.loads(store.get(self._key("verdict")))
        if verdict["rank"] == self._rank:
            return  # its main thread is on its way out
        store.add(self._key("heard"), 1)
        if not self._stopped.wait(_GRACE_SECONDS):
            self._end(verdict["message"], verdict["code"])

    def _judge(self, store: Any, seen: Dict[int, Seen], beats: Dict[int, Any]) -> None:
        """Rank 0: look at all ranks, and end the run if one stands still. Others: look at rank 0."""
        now = self._clock.now()
        silence = min(self._silence, max(5.0, 8 * self._poll)) if self._has_lost_a_peer else self._silence
        for rank in range(self._size) if self._rank == 0 else (0,):
            number = store.add(self._key(f"{rank}/beat"), 0)
            if number != beats.get(rank, (None,))[0]:
                beats[rank] = (number, now)
            place = Place(0, 0, False, "joining the group")
            if number:
                moves, process, waits, text = json.loads(store.get(self._key(f"{rank}/place")))
                place = Place(moves, process, bool(waits), text)
            known = standstill.follow(seen.get(rank), place, _NO_PROCESS, now)
            seen[rank] = known._replace(is_heard=now - beats[rank][1] < silence)
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
        while time.monotonic() < deadline and store.add(self._key("heard"), 0) < self._size - 1 - len(silent):
            time.sleep(0.05)
        self._end(message, 1)


def _stacks() -> str:
    """The Python stacks of this process's threads, without those that only watch."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        name = names.get(ident, str(ident))
        if name.startswith(("group watch", "heartbeat", "loader watchdog")):
            continue
        parts.append(f"thread {name}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)
