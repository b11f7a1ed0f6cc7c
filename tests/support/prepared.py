"""Runs commands in forks of one process that has loaded Paddle: starting takes 0.05 s instead of 1.5 s.

A server imports third-party libraries, nothing from this package (some of it is bound to the process that imports it),
and forks for every command while it has a single thread. The fork sets arguments, folder, streams and environment as
for a new process, and runs the script, module or text as Python does. Variables that are read at process start are the
server's: see ``start``.
"""

import atexit
import contextlib
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
import traceback
import types
import warnings
import weakref
from typing import Any, NamedTuple

_TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Read by Python's start, by the C library, or when Paddle, NumPy or numba are loaded.
_READ_AT_THE_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "FLAGS_", "OMP_", "KMP_", "MKL_", "OPENBLAS_")
_READ_AT_THE_START += ("NUMBA_", "GLOG_", "CUDA_", "NVIDIA_", "PADDLE")


class Server(NamedTuple):
    requests: socket.socket
    environment: dict[str, str]


class Copy:
    """A command that runs in a copy of the server, with the part of ``subprocess.Popen`` that tests need."""

    def __init__(self, server: Server, command: list[str], folder: str, environment: dict[str, str]) -> None:
        files = (tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") for _ in range(2))  # noqa: SIM115
        self.out, self.err = files
        self.command, self.returncode = command, None
        self.reply, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            handles = [self.out.fileno(), self.err.fileno(), theirs.fileno()]
            socket.send_fds(server.requests, [pickle.dumps((command, folder, environment))], handles)
        self.pid = int(self._told(30.0))

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; returns what was written to stdout and stderr."""
        self.wait(timeout)
        written = []
        for stream in (self.out, self.err):
            with stream:
                stream.seek(0)
                written.append(stream.read())
        return written[0], written[1]

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = int(self._told(timeout))
            self.reply.close()
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.001)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

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

    That is a command that is not Python with a script, ``-m`` or ``-c``, or one whose environment differs from the
    server's in what is read at a process's start. With paddlepaddle-gpu 2.6.2, which starts a thread when it is loaded,
    it is every command.

    Args:
        is_usual: the environment is that of most commands; the server is started with the first such.
    """
    if command[0] != sys.executable or not (command[1] in ("-m", "-c") or command[1].endswith(".py")):
        return None
    environment = {name: value for name, value in environment.items() if name != "PYTEST_CURRENT_TEST"}
    if not _running:
        if not is_usual or _TESTS not in environment.get("PYTHONPATH", "").split(os.pathsep):
            return None  # a command whose path is its own came first: a server would not find this module
        _running.append(start_server(environment))
    server = _running[0]
    if server is None or _read_at_the_start(environment) != _read_at_the_start(server.environment):
        return None
    return Copy(server, command, folder, environment)


def _read_at_the_start(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_THE_START)}


def start_server(environment: dict[str, str]) -> Server | None:
    """Start a process that has loaded Paddle, with this environment; None if Paddle starts threads of its own."""
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
    # Runs first, and ends the server; a process forked from this one may hold the socket, too.
    atexit.register(ours.shutdown, socket.SHUT_RDWR)
    return Server(ours, environment) if ours.recv(1) else None


def serve(requests: socket.socket) -> list[str]:
    """Fork for each request; returns its command in the copy that is to run it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets the attendants
    requests.send(b"1")  # it is ready
    while True:
        message, handles, _, _ = socket.recv_fds(requests, 1 << 20, 3)
        if not message:
            os._exit(0)
        if _fork() == 0:
            requests.close()
            return _attended(*pickle.loads(message), *handles)
        for handle in handles:
            os.close(handle)


def _attended(
    command: list[str], folder: str, environment: dict[str, str], out: int, err: int, reply: int
) -> list[str]:
    """Returns in a child; this process stays to tell the child's number and how it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = _fork()
    if pid:
        os.write(reply, b"%d" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(reply, b"%d" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(out, 1)
    os.dup2(err, 2)
    for handle in (out, err, reply):
        os.close(handle)
    return command


def _fork() -> int:
    with warnings.catch_warnings():  # Python 3.12 warns of native threads: none is at work
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def copy_worker(path: str, arguments: list[str], handles: list[int]) -> int:
    """What ``multiprocessing`` calls to spawn a process, with a copy of this one where that is a worker."""
    if "--multiprocessing-fork" not in arguments or not _has_one_thread():
        return _spawn(path, arguments, handles)
    sys.stdout.flush()
    pid = _fork()
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
        multiprocessing.util._finalizer_registry.clear()  # Python calls none of them here: they are another process's
        loader = sys.modules.get("paddlevit_dist.core.data.loader")
        if loader is not None:  # it registers this when it is imported, which the copy does not do again
            multiprocessing.util.Finalize(None, loader.end_loader_processes, exitpriority=100)
        sys.argv = arguments[-2:]
        exec(arguments[-2])  # it ends with sys.exit
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _has_one_thread() -> bool:
    """Python's own threads aside: they only wait, holding nothing, such as the one that keeps the output folder."""
    return len(os.listdir("/proc/self/task")) == threading.active_count()


_spawn = multiprocessing.util.spawnv_passfds


def run_and_exit(command: list[str]) -> None:
    """Run the command and end this process as Python does, but with all of its memory left to the kernel: to free it
    object by object, on pages shared until then, takes four times as long as all else of a short command."""
    code: Any = None
    try:
        run(command)
    except SystemExit as end:
        code = end.code
    except Exception:
        sys.excepthook(*sys.exc_info())
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    from paddlevit_dist.core.runtime.process_exit import end

    end((code or 0) & 255)


def run(command: list[str]) -> None:
    """Run the script, module or text in this process as its main program."""
    multiprocessing.util.spawnv_passfds = copy_worker
    sys.orig_argv = command
    if command[1] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = command[2:]
        runpy.run_module(command[2], run_name="__main__", alter_sys=True)
    elif command[1] == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *command[3:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(command[2], "<string>", "exec"), main.__dict__)
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
    run_and_exit(serve(socket.socket(fileno=int(sys.argv[1]))))
