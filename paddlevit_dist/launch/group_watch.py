"""The watchdog of ranks that Paddle's launcher has started, on one machine or several: no parent of ours sees them.

One thread of each rank keeps the connections on which the ranks have met (``rendezvous``). Each tells rank 0 where it
is, once a second or so, and rank 0 answers. Who fails, or sees that its own main thread stands still, says so; rank 0
passes that on, and judges those that are silent or gone. Without rank 0 the others end by themselves.

A rank that cannot run Python is silent, and so named by the others; a process beside it ends it (``guard``).
"""

import contextlib
import math
import multiprocessing.connection
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ..runtime import printing
from ..runtime.errors import Stopped, UserError
from . import failures, rendezvous, secret, status, watchdog
from .guard import Guard
from .status import RankStatus
from .watchdog import MonotonicClock, ProcessInfo, RankState

_GRACE_SECONDS = 3.0  # lets a rank that has failed too report its own failure
_STOP_SECONDS = 10.0  # between the ends of ranks that stop together
_FINISHED = "finished"
_NO_PROCESS = ProcessInfo("", "", 0, 0)


def run(join: Callable[[], None], work: Callable[[], None], seconds: float) -> None:
    """Join the group and work, watched. Every rank must call this.

    Args:
        seconds: how long a rank may stand still.
    Raises:
        UserError: another program has the master's port.
        WorkerFailure: not all ranks came in time.
    """
    rank, size = rendezvous.number_and_size()
    with rendezvous.broadcast_startup_failure(seconds):
        secret.of_run()
    status.note("joining the group")
    with contextlib.closing(Guard(rank, seconds + max(5.0, seconds / 5))) as guard:
        peers = rendezvous.meet(rank, size, seconds)
        with GroupWatch(rank, size, peers, seconds, guard.tell_alive):
            with status.waiting_for_ranks():
                join()
            status.note("at work")
            work()


class GroupWatch:
    """Watches all ranks of the group from this one, as a context.

    Args:
        peers: from ``rendezvous.meet``.
        seconds: how long a rank may stand still.
        tell_alive: called again and again while this process can run Python.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        peers: rendezvous.Peers,
        seconds: float,
        tell_alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._rank, self._size, self._peers, self._seconds = rank, size, peers, seconds
        self._tell_alive = tell_alive
        self._poll = min(1.0, seconds / 10)
        self._silence = max(0.75 * seconds, seconds - 10.0)  # in time for the others to end within ``seconds``
        self._stderr = sys.stderr  # elsewhere for as long as Paddle joins
        self._clock = MonotonicClock(longest_step=max(2.0, 4 * self._poll))
        now = self._clock.now()
        self._heard = dict.fromkeys(peers, now)  # when each was last heard of
        self._gone: dict[int, float] = {}  # when each connection has ended
        self._seen: dict[int, RankState] = {}
        self._has_lost_a_peer = False
        for peer in peers.values():
            peer.socket.settimeout(self._poll)
        self._sending = threading.RLock()  # the main thread has its last words
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run_watch, name="group watch", daemon=True)
        self._thread.start()

    # ---- the main thread ---------------------------------------------------------------------------------------

    def __enter__(self) -> "GroupWatch":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if error is None or isinstance(error, Stopped):
                status.note(_FINISHED)
                self._log_status()
                if self._rank == 0:  # it serves the store, and goes last
                    self._wait_for_others(math.inf if error is None else _STOP_SECONDS)
            elif isinstance(error, Exception):
                if failures.is_echo(error):
                    self._has_lost_a_peer = True
                    with status.waiting_for_ranks():  # the watching thread finds out of which, and ends this process
                        self._stopped.wait(self._seconds)
                is_user_error = isinstance(error, UserError)
                message = failures.reason(error)
                message = message if is_user_error else f"rank {self._rank} failed: {message}"
                self._log_end(message, 2 if is_user_error else 1)
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()
        self._thread.join(_GRACE_SECONDS)

    def _wait_for_others(self, longest_wait: float) -> None:
        deadline = time.monotonic() + longest_wait
        with status.waiting_for_ranks():
            while time.monotonic() < deadline and not all(map(self._has_finished, self._peers)):
                time.sleep(0.02)

    def _has_finished(self, rank: int) -> bool:
        return rank in self._seen and self._seen[rank].status.text == _FINISHED

    # ---- both threads ------------------------------------------------------------------------------------------

    def _send(self, **message: Any) -> None:
        with self._sending:
            for peer in self._peers.values():
                peer.send(**message)

    def _log_status(self) -> None:
        with self._sending:  # or one thread could send what it has read before the other's last note, after that
            self._send(status=status.own())

    def _log_end(self, message: str, code: int, guilty: int | None = None) -> None:
        self._send(end=message, code=code, guilty=self._rank if guilty is None else guilty)

    # ---- the watching thread -----------------------------------------------------------------------------------

    def _run_watch(self) -> None:
        own: RankState | None = None
        while not self._stopped.is_set():
            self._tell_alive()
            self._listen()
            now = self._clock.now()
            own = watchdog.follow(own, status.own(), ProcessInfo.look(os.getpid()), now)
            if watchdog.find_stalled_rank({self._rank: own}, self._seconds, now) is not None and not own.status.waits:
                what = watchdog.describe(self._rank, {self._rank: own}, now, str(ProcessInfo.look(os.getpid())))
                print(watchdog.stacks(), file=self._stderr)
                self._end(f"rank {self._rank} failed: {what}", 1, tell=True)
            self._log_status()
            self._judge(now)

    def _listen(self) -> None:
        """Hear what the others say, for about a poll."""
        deadline = time.monotonic() + self._poll
        while (pause := deadline - time.monotonic()) > 0 and not self._stopped.is_set():
            present = {rank: peer for rank, peer in self._peers.items() if rank not in self._gone}
            ready = multiprocessing.connection.wait([peer.socket for peer in present.values()], min(pause, 0.2))
            for rank in [rank for rank, peer in present.items() if peer.socket in ready]:
                messages = self._peers[rank].receive()
                if messages is None:
                    self._gone[rank] = self._clock.now()
                for message in messages or []:
                    self._hear(rank, message)

    def _hear(self, rank: int, message: dict[str, Any]) -> None:
        now = self._clock.now()
        self._heard[rank] = now
        if "status" in message:
            self._seen[rank] = watchdog.follow(self._seen.get(rank), RankStatus(*message["status"]), _NO_PROCESS, now)
        elif "end" in message and message["guilty"] != self._rank:  # else the main thread is on its way out
            if self._rank == 0:
                self._log_end(message["end"], message["code"], message["guilty"])
            if not self._stopped.wait(_GRACE_SECONDS):
                self._end(message["end"], message["code"])

    def _judge(self, now: float) -> None:
        """Rank 0: look at all ranks, and end the run if one stands still. Others: look at rank 0."""
        silence = min(self._silence, max(5.0, 8 * self._poll)) if self._has_lost_a_peer else self._silence
        for rank in self._peers:
            starting = RankState(RankStatus(0, 0, False, "joining the group"), now, 0, 0, False, True)
            is_heard = rank not in self._gone and now - self._heard[rank] < silence
            self._seen[rank] = self._seen.get(rank, starting)._replace(is_heard=is_heard)
        silent = [rank for rank in self._peers if not self._seen[rank].is_heard and not self._has_finished(rank)]
        silent = [rank for rank in silent if now - self._gone.get(rank, -math.inf) > _GRACE_SECONDS]
        if silent and self._rank:
            host, port = rendezvous.endpoint()
            silent_for = f"no answer for {now - self._heard[0]:.0f} s (WATCHDOG_SECONDS)"
            what = "the connection has ended" if 0 in self._gone else silent_for
            self._end(
                "rank 0 failed: its process or its machine has ended or stands still (its store at "
                f"{host}:{port}: {what}); rank {self._rank} was {status.own().text}",
                1,
            )
        guilty = min(silent, key=lambda rank: self._gone.get(rank, self._heard[rank])) if silent else None
        if guilty is None and self._rank == 0:  # one that can speak ends the run by itself, with its stack
            self._seen[0] = watchdog.follow(self._seen.get(0), status.own(), _NO_PROCESS, now)
            guilty = watchdog.find_stalled_rank(self._seen, self._seconds + 4 * self._poll, now)
        if guilty is not None:
            self._end(f"rank {guilty} failed: {watchdog.describe(guilty, self._seen, now, '')}", 1, tell=True)

    def _end(self, message: str, code: int, tell: bool = False) -> None:
        if self._stopped.is_set():
            return
        if tell:
            self._log_end(message, code)
        sys.stdout.flush()
        print(f"error: {printing.one_line(message)}", file=self._stderr, flush=True)
        os._exit(code)
