"""The watchdog of ranks that Paddle's launcher has started, on one machine or several, without a parent of ours.

A thread of each rank keeps the connections made by ``rendezvous`` and sends its status to rank 0 about once a second,
which answers. A rank that fails, or whose main thread hangs, reports it; rank 0 forwards the report and judges ranks
that are silent or gone. If rank 0 is gone, the others end by themselves. A rank that cannot run Python is silent, so
the others report it; a helper process ends it (``guard``).
"""

import contextlib
import math
import multiprocessing.connection
import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from ..runtime import printing
from ..runtime.errors import Stopped, UserError, WorkerFailure
from . import failures, rendezvous, secret, status, watchdog
from .guard import Guard
from .status import RankStatus
from .watchdog import MonotonicClock, ProcessInfo, RankState

_GRACE_SECONDS = 3.0  # for a rank that has also failed to report its own failure
_STOP_SECONDS = 10.0  # between the ends of ranks that stop together
FINISHED = "finished"  # the status of a rank whose work is complete
_NO_PROCESS = ProcessInfo("", "", 0, 0)


def run(
    join: Callable[[], None],
    work: Callable[[], None],
    seconds: float,
    note_end: Callable[[WorkerFailure], None] = lambda error: None,
) -> None:
    """``join`` the group and run ``work`` under the watchdog. Every rank must call this.

    A rank may make no progress for ``seconds``. ``note_end`` records, on rank 0, that another rank ends it. Raises
    UserError if another program uses the master's port, and WorkerFailure if not all ranks came in time.
    """
    rank, size = rendezvous.get_rank_and_size()
    with rendezvous.broadcast_startup_failure(seconds):
        secret.get_run_secret()
    status.note("joining the group")
    with contextlib.closing(Guard(rank, seconds + max(5.0, seconds / 5))) as guard:
        peers = rendezvous.meet(rank, size, seconds)
        with GroupWatch(rank, peers, seconds, guard.signal_alive, note_end):
            with status.waiting_for_ranks():
                join()
            status.note("at work")
            work()


class GroupStates:
    """The states of all ranks of the group as ``rank`` has heard of them; each may make no progress for ``seconds``.

    Times are in seconds, by the clock of ``rank``; its ``peers`` are last heard at ``now``.
    """

    def __init__(self, rank: int, peers: Collection[int], seconds: float, now: float) -> None:
        self._rank, self._peers, self._seconds = rank, peers, seconds
        self.poll = min(1.0, seconds / 10)
        self._silence = max(0.75 * seconds, seconds - 10.0)  # early enough for the others to end within ``seconds``
        self._heard = dict.fromkeys(peers, now)  # when each last sent a message
        self._gone: dict[int, float] = {}  # when each connection ended
        self._states: dict[int, RankState] = {}
        self.has_lost_a_peer = False  # then a silent rank is to be found sooner

    def hear(self, rank: int, message: dict[str, Any], now: float) -> None:
        """Note that a peer has sent a message, and its status if it is one."""
        self._heard[rank] = now
        if "status" in message:
            latest = RankStatus(*message["status"])
            self._states[rank] = watchdog.update_state(self._states.get(rank), latest, _NO_PROCESS, now)

    def lose(self, rank: int, now: float) -> None:
        """Note that the connection of a peer has ended."""
        self._gone[rank] = now

    def connected(self) -> list[int]:
        """Return the peers whose connections have not ended."""
        return [rank for rank in self._peers if rank not in self._gone]

    def has_finished(self, rank: int) -> bool:
        """Return whether the last status of a peer was that its work is complete."""
        return rank in self._states and self._states[rank].status.text == FINISHED

    def judge(self, now: float) -> WorkerFailure | None:
        """Check all ranks on rank 0, and rank 0 on others; return the failure of one that hangs or has ended."""
        silence, limit = self._silence, "WATCHDOG_SECONDS"
        if self.has_lost_a_peer and (sooner := max(5.0, 8 * self.poll)) < silence:
            silence, limit = sooner, "an exchange with it has failed"
        for rank in self._peers:
            starting = RankState(RankStatus(0, 0, False, "joining the group"), now, 0, 0, False, True)
            is_heard = rank not in self._gone and now - self._heard[rank] < silence
            self._states[rank] = self._states.get(rank, starting)._replace(is_heard=is_heard)
        silent = [each for each in self._peers if not self._states[each].is_heard and not self.has_finished(each)]
        silent = [each for each in silent if now - self._gone.get(each, -math.inf) > _GRACE_SECONDS]
        if silent and self._rank:
            host, port = rendezvous.endpoint()
            silent_for = f"no answer for {now - self._heard[0]:.0f} s ({limit})"
            what = "the connection has ended" if 0 in self._gone else silent_for
            message = (
                f"its process or its machine has ended or hangs (its store at {host}:{port}: {what}); rank "
                f"{self._rank} was {status.get_status().text}"
            )
            return WorkerFailure(0, message, is_lost=True)
        if silent:
            guilty = min(silent, key=lambda rank: self._gone.get(rank, self._heard[rank]))
            limit = "its connection has ended" if guilty in self._gone else limit
            states = {guilty: self._states[guilty]._replace(since=self._heard[guilty])}
            return WorkerFailure(guilty, watchdog.describe(guilty, states, now, "", limit), is_lost=True)
        if self._rank:
            return None
        # A hanging rank that can report ends the run itself, with its stack.
        self._states[0] = watchdog.update_state(self._states.get(0), status.get_status(), _NO_PROCESS, now)
        stalled = watchdog.find_stalled_rank(self._states, self._seconds + 4 * self.poll, now)
        if stalled is None:
            return None
        message, is_lost = watchdog.describe(stalled, self._states, now, ""), not self._states[stalled].status.waits
        return WorkerFailure(stalled, message, is_lost=is_lost)


class GroupWatch:
    """Watches all ranks of the group, which may make no progress for ``seconds``, as a context manager.

    ``signal_alive`` is called repeatedly while this process can run Python, and ``note_end`` on rank 0, in a thread,
    before another rank ends it.
    """

    def __init__(
        self,
        rank: int,
        peers: rendezvous.Peers,
        seconds: float,
        signal_alive: Callable[[], None] = lambda: None,
        note_end: Callable[[WorkerFailure], None] = lambda error: None,
    ) -> None:
        self._rank, self._peers, self._seconds = rank, peers, seconds
        self._signal_alive = signal_alive
        self._note_end = note_end
        self._stderr = sys.stderr  # redirected while Paddle joins
        poll = min(1.0, seconds / 10)
        self._clock = MonotonicClock(longest_step=max(2.0, 4 * poll))
        self._states = GroupStates(rank, peers, seconds, self._clock.now())
        for peer in peers.values():
            peer.socket.settimeout(self._states.poll)
        self._own: RankState | None = None  # the state of this rank
        self._sending = threading.RLock()  # the main thread sends its last messages
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run_watch, name="group watch", daemon=True)

    # ---- the main thread ---------------------------------------------------------------------------------------

    def __enter__(self) -> "GroupWatch":
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.tell_end(error)
        finally:
            self._stopped.set()
            self._thread.join(_GRACE_SECONDS)

    def tell_end(self, error: BaseException | None) -> None:
        """Tell the others how this rank ends: by ``error``, or None if its work is complete; then rank 0 waits."""
        if error is None or isinstance(error, Stopped):
            status.note(FINISHED)
            self._log_status()
            if self._rank == 0:  # it serves the store, so it ends last
                self._wait_for_others(math.inf if error is None else _STOP_SECONDS)
        elif isinstance(error, Exception):
            if failures.is_echo(error):
                self._states.has_lost_a_peer = True
                with status.waiting_for_ranks():  # the watching thread finds the lost rank and ends this process
                    self._stopped.wait(self._seconds)
            is_user_error = isinstance(error, UserError)
            message = failures.reason(error)
            message = message if is_user_error else f"rank {self._rank} failed: {message}"
            self._log_end(message, 2 if is_user_error else 1, self._rank)

    def _wait_for_others(self, longest_wait: float) -> None:
        deadline = time.monotonic() + longest_wait
        with status.waiting_for_ranks():
            while time.monotonic() < deadline and not all(map(self._states.has_finished, self._peers)):
                time.sleep(0.02)

    # ---- both threads ------------------------------------------------------------------------------------------

    def _send(self, **message: object) -> None:
        with self._sending:
            for peer in self._peers.values():
                peer.send(**message)

    def _log_status(self) -> None:
        with self._sending:  # else one thread could send an old status after the other's newer one
            self._send(status=status.get_status())

    def _log_end(self, message: str, code: int, guilty: int, lost: bool = False) -> None:
        self._send(end=message, code=code, guilty=guilty, lost=lost)

    # ---- the watching thread -----------------------------------------------------------------------------------

    def _run_watch(self) -> None:
        while not self._stopped.is_set():
            self._signal_alive()
            self.listen()
            self.judge()

    def listen(self) -> None:
        """Handle the messages of the other ranks for about one poll interval."""
        deadline = time.monotonic() + self._states.poll
        while (pause := deadline - time.monotonic()) > 0 and not self._stopped.is_set():
            present = [(rank, self._peers[rank]) for rank in self._states.connected()]
            ready = multiprocessing.connection.wait([peer.socket for _, peer in present], min(pause, 0.2))
            for rank, peer in present:
                messages = peer.receive() if peer.socket in ready else []
                if messages is None:
                    self._states.lose(rank, self._clock.now())
                for message in messages or []:
                    self.hear(rank, message)

    def hear(self, rank: int, message: dict[str, Any]) -> None:
        """Handle one message of another rank: its status, or the end of the run."""
        self._states.hear(rank, message, self._clock.now())
        if "end" in message and message["guilty"] != self._rank:  # else the main thread is on its way out
            end, code, guilty, lost = message["end"], message["code"], message["guilty"], bool(message.get("lost"))
            if self._rank == 0:
                self._log_end(end, code, guilty, lost)
            if not self._stopped.wait(_GRACE_SECONDS):
                self._end(end, code, guilty, lost)

    def judge(self) -> None:
        """Send this rank's status, and end the process if it makes no progress, or another rank hangs or has ended."""
        now = self._clock.now()
        self._own = watchdog.update_state(self._own, status.get_status(), ProcessInfo.read(os.getpid()), now)
        own = {self._rank: self._own}
        if watchdog.find_stalled_rank(own, self._seconds, now) is not None and not self._own.status.waits:
            what = watchdog.describe(self._rank, own, now, str(ProcessInfo.read(os.getpid())))
            print(watchdog.format_stacks(), file=self._stderr)
            self._end(f"rank {self._rank} failed: {what}", 1, self._rank, lost=True, broadcast=True)
        self._log_status()
        failure = self._states.judge(now)
        if failure is not None:
            self._end(str(failure), 1, failure.rank, failure.is_lost, broadcast=self._rank == 0)

    def _end(self, message: str, code: int, guilty: int, lost: bool, broadcast: bool = False) -> None:
        if self._stopped.is_set():
            return
        if broadcast:
            self._log_end(message, code, self._rank, lost)
        if self._rank == 0:
            failure = WorkerFailure(guilty, message.removeprefix(f"rank {guilty} failed: "), is_lost=lost)
            _call_for(_GRACE_SECONDS, self._note_end, failure)
        sys.stdout.flush()
        print(f"error: {printing.one_line(message)}", file=self._stderr, flush=True)
        os._exit(code)


def _call_for(seconds: float, function: Callable[[WorkerFailure], None], failure: WorkerFailure) -> None:
    """Call the function, but wait at most ``seconds``: its file system may hang as well."""
    thread = threading.Thread(target=function, args=(failure,), name="note of the end", daemon=True)
    thread.start()
    thread.join(seconds)
