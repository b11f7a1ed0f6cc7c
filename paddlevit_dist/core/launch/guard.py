"""A helper process that ends a rank which can run no Python: stopped, or in C code that holds Python's lock.

It counts only the time in which it runs itself, so a machine whose processes are all suspended (``scontrol suspend``,
``docker pause``, SIGSTOP to each) continues afterwards; a timer of the kernel would keep running. It runs this file as
a program, imports nothing of the package and starts in 50 ms.
"""

import contextlib
import ctypes
import faulthandler
import os
import select
import signal
import subprocess
import sys
import time

_POLL_SECONDS = 0.25
_LONGEST_STEP_SECONDS = 2.0  # in a longer step, this process was suspended or starved
_STACK_SECONDS = 3.0  # for the rank to write its stacks
_PR_SET_PDEATHSIG = 1
_ALIVE = b"."
# Schedulers, launchers and terminals send these to all processes of a job: the rank decides what to do.
_HANDLED_BY_RANK = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Guard:
    """Ends this process, after writing its stacks to stderr, unless ``signal_alive`` is called every ``seconds``.

    Create it in the main thread.
    """

    def __init__(self, rank: int, seconds: float) -> None:
        faulthandler.register(signal.SIGUSR2, file=sys.stderr, all_threads=True)  # C code, without Python's lock
        words = [sys.executable, "-I", __file__, str(os.getpid()), str(rank), str(seconds)]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED_BY_RANK)  # until the helper ignores them
        try:
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()
        os.set_blocking(self._pipe, False)

    def signal_alive(self) -> None:
        """Restart the timer. Any thread may call this, also after ``close``."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):  # the helper has not read for long, or is gone
            os.write(self._pipe, _ALIVE)

    def close(self) -> None:
        """Stop guarding this process."""
        self._process.kill()
        self._process.wait()


def watch(process: int, rank: int, seconds: float) -> None:
    """End the parent ``process`` after ``seconds`` without a message; return when it ends or closes the pipe."""
    for number in _HANDLED_BY_RANK:
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    silence, last, has_asked = 0.0, time.monotonic(), False
    while os.getppid() == process:
        ready, _, _ = select.select([0], [], [], _POLL_SECONDS)
        now = time.monotonic()
        silence += min(now - last, _LONGEST_STEP_SECONDS)
        last = now
        if ready:
            if not os.read(0, 1 << 16):
                return
            silence, has_asked = 0.0, False
        elif silence > seconds + _STACK_SECONDS:
            state = "it is stopped, or holds Python's lock"
            text = f"error: rank {rank} failed: it has run no Python for {silence:.0f} s (WATCHDOG_SECONDS): {state}\n"
            os.write(2, text.encode())
            os.kill(process, signal.SIGKILL)
            return
        elif silence > seconds and not has_asked:
            os.kill(process, signal.SIGUSR2)
            has_asked = True


if __name__ == "__main__":
    watch(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
