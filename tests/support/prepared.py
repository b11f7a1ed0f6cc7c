"""Runs commands in forks of one process that has loaded Paddle: starting takes 0.05 s instead of 1.5 s.

A server imports third-party libraries, nothing from this package, and forks for every command while it has a single
thread. The fork sets arguments, folder and streams as for a new process, and runs the script or module as Python does.
Anything read at process start, above all the environment, is the server's: see ``start``.
"""

import atexit
import gc
import multiprocessing.util
import os
import pickle
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from typing import NamedTuple

_TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Server(NamedTuple):
    requests: socket.socket
    environment: dict[str, str]


class Copy:
    """A command that runs in a copy of the server: the part of ``subprocess.Popen`` that waiting for an end needs."""

    def __init__(self, server: Server, command: list[str], folder: str) -> None:
        files = (tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") for _ in range(2))  # noqa: SIM115
        self.out, self.err = files
        self.command, self.returncode = command, None
        self.reply, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            handles = [self.out.fileno(), self.err.fileno(), theirs.fileno()]
            socket.send_fds(server.requests, [pickle.dumps((command, folder))], handles)
        self.pid = int(self._told(30.0))

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; returns what was written to stdout and stderr."""
        self.returncode = int(self._told(timeout))
        self.reply.close()
        written = []
        for stream in (self.out, self.err):
            with stream:
                stream.seek(0)
                written.append(stream.read())
        return written[0], written[1]

    def _told(self, timeout: float | None) -> bytes:
        self.reply.settimeout(timeout)
        try:
            told = self.reply.recv(16)
        except TimeoutError:
            raise subprocess.TimeoutExpired(self.command, timeout or 0.0) from None
        assert told, f"the server that starts {self.command} has ended"
        return told


_running: list[Server | None] = []  # None: there can be none


def start(command: list[str], folder: str, environment: dict[str, str], is_usual: bool) -> Copy | None:
    """The command in a copy of the server, or None where only a start of its own will do.

    That is a command that is not Python with a script or ``-m``, or one whose environment differs from the server's:
    much of it is read at the start of Python, when Paddle is loaded, or by the C library. With paddlepaddle-gpu 2.6.2,
    which starts a thread when it is loaded, it is every command.

    Args:
        is_usual: the environment is that of most commands; the server is started with the first such.
    """
    if command[0] != sys.executable or not (command[1] == "-m" or command[1].endswith(".py")):
        return None
    environment = {name: value for name, value in environment.items() if name != "PYTEST_CURRENT_TEST"}
    if not _running:
        if not is_usual or _TESTS not in environment.get("PYTHONPATH", "").split(os.pathsep):
            return None  # a command whose path is its own came first: a server would not find this module
        _running.append(_start_server(environment))
    server = _running[0]
    return Copy(server, command, folder) if server is not None and environment == server.environment else None


def _start_server(environment: dict[str, str]) -> Server | None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "support.prepared", str(theirs.fileno())],
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    atexit.register(process.wait)
    atexit.register(ours.close)  # runs first, and ends the server
    return Server(ours, environment) if ours.recv(1) else None


def serve(requests: socket.socket) -> list[str]:
    """Fork for each request; returns its command in the copy that is to run it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets the attendants
    requests.send(b"1")  # it is ready
    while True:
        message, handles, _, _ = socket.recv_fds(requests, 1 << 20, 3)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            return _attended(*pickle.loads(message), *handles)
        for handle in handles:
            os.close(handle)


def _attended(command: list[str], folder: str, out: int, err: int, reply: int) -> list[str]:
    """Returns in a child; this process stays to tell the child's number and how it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        os.write(reply, b"%d" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(reply, b"%d" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.setsid()
    os.chdir(folder)
    os.dup2(out, 1)
    os.dup2(err, 2)
    for handle in (out, err, reply):
        os.close(handle)
    return command


def copy_worker(path: str, arguments: list[str], handles: list[int]) -> int:
    """What ``multiprocessing`` calls to spawn a process, with a copy of this one where that is a worker."""
    if "--multiprocessing-fork" not in arguments or not _has_one_thread():
        return _spawn(path, arguments, handles)
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):  # as after an exec
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for handle in map(int, os.listdir("/proc/self/fd")):
            if handle > 2 and handle not in (nothing, *handles):
                # Not closed: objects of the parent that are collected later would close what has its number by then.
                os.dup2(nothing, handle, inheritable=False)
        atexit._clear()  # the parent's handlers and finalisers, which would remove its folders
        atexit.register(multiprocessing.util._exit_function)
        weakref.finalize._registry.clear()
        weakref.finalize._registered_with_atexit = False
        sys.argv = arguments[-2:]
        exec(arguments[-2])  # it ends with sys.exit
    except SystemExit as end:
        code = end.code
    finally:
        os._exit(code)


def _has_one_thread() -> bool:
    """Python's own threads aside: they only wait, holding nothing, such as the one that keeps the output folder."""
    return len(os.listdir("/proc/self/task")) == threading.active_count()


_spawn = multiprocessing.util.spawnv_passfds


def run(command: list[str]) -> None:
    """Run the script or module in this process as its main program."""
    multiprocessing.util.spawnv_passfds = copy_worker
    sys.orig_argv = command
    if command[1] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = command[2:]
        runpy.run_module(command[2], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.realpath(command[1]))
        sys.argv = command[1:]
        runpy.run_path(command[1], run_name="__main__")


if __name__ == "__main__":
    import paddle  # noqa: F401
    import PIL.Image
    from numba.core.registry import cpu_target

    # What numba and Pillow import when they are first used: more than the rest of a short run takes.
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    PIL.Image.init()
    gc.collect()
    gc.freeze()  # else each copy walks through all of it when it ends, for half a second
    if not _has_one_thread():  # which a copy would lack
        sys.exit()
    run(serve(socket.socket(fileno=int(sys.argv[1]))))
