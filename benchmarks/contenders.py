"""Contenders in processes of their own, which take turns: a line of JSON asks for a turn, and one answers.

A program starts itself once for each library, with the interpreter that has it, and calls ``serve`` there. A peer is
a library that ours is compared with.
"""

import argparse
import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import children
import rounds
from clock import time_call
from rounds import Spread

from paddlevit_dist.core.launch import devices

OURS, SERVES = "ours", "--serve"


# ---- in a contender's process --------------------------------------------------------------------------------


def serve(answer: Callable[..., Any], ready: Any = "ready") -> None:
    """Print that the process is ready, then the answer to each request, which has the arguments of ``answer``."""
    print(json.dumps(ready), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)


# ---- in the process that measures ----------------------------------------------------------------------------


class ProcessGroup:
    """Processes that work together, and wait for requests between their turns.

    Args:
        command: the interpreter and its words.
        environments: one of each process.
        seconds: until they have to be ready, and to answer.
    """

    def __init__(self, command: Sequence[str], environments: Sequence[Mapping[str, str]], seconds: float = 300) -> None:
        self._complaints = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - until the processes end
        self._seconds = seconds
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._complaints}
        self._processes = [children.start(command, environment, **pipes) for environment in environments]
        self._unread = [b""] * len(self._processes)

    def wait_until_ready(self) -> list[Any]:
        """Return what each process says when it is ready."""
        return self._read()

    def ask(self, **request: Any) -> list[Any]:
        """Return every process's answer to a request that all of them are sent."""
        for process in self._processes:
            with contextlib.suppress(BrokenPipeError):  # it has ended, which is said where its answer is read
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
        return self._read()

    def _read(self) -> list[Any]:
        deadline = time.monotonic() + self._seconds
        answers: list[Any] = []
        for number, process in enumerate(self._processes):
            while len(answers) <= number:
                line = self._read_line(number, process, deadline)
                with contextlib.suppress(ValueError):  # a library's own line
                    answers.append(json.loads(line))
        return answers

    def _read_line(self, number: int, process: subprocess.Popen, deadline: float) -> bytes:
        # Not by the stream's own method, which may keep a second line where no ``select`` sees it.
        while b"\n" not in self._unread[number]:
            if not select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise SystemExit(f"{' '.join(process.args)} does not answer\n{self._complained()}")
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                raise SystemExit(f"{' '.join(process.args)} has ended\n{self._complained()}")
            self._unread[number] += part
        line, _, self._unread[number] = self._unread[number].partition(b"\n")
        return line

    def _complained(self) -> str:
        self._complaints.seek(0)
        return self._complaints.read()[-3000:]

    def end(self) -> None:
        """End all of them."""
        for process in self._processes:
            with contextlib.suppress(OSError):
                process.stdin.close()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            children.end(process)


def group_environments(
    library: str = OURS, processes: int = 1, common: Mapping[str, str] | None = None
) -> list[dict[str, str]]:
    """One environment for each rank: where its group meets, and by default one thread and our settings of malloc."""
    with contextlib.ExitStack() as sockets:
        free = [sockets.enter_context(socket.socket()) for _ in range(processes + 1)]
        for one in free:
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in free]
    places = [f"127.0.0.1:{port}" for port in ports[1:]]
    if common is None:
        threads = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        common = {**children.tuned_environment(devices.cpu_cores()), **threads}
    found = []
    for rank in range(processes):
        own: dict[str, str] = {}
        if processes > 1 and library != OURS:
            own = {"RANK": str(rank), "WORLD_SIZE": str(processes)}
            own.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[0])})
        elif processes > 1:
            own = {"PADDLE_TRAINER_ID": str(rank), "PADDLE_TRAINERS_NUM": str(processes)}
            own.update({"PADDLE_MASTER": f"127.0.0.1:{ports[0]}", "PADDLE_DISTRI_BACKEND": "gloo"})
            own.update({"PADDLE_TRAINER_ENDPOINTS": ",".join(places), "PADDLE_CURRENT_ENDPOINT": places[rank]})
        found.append({**common, **own})
    return found


@contextlib.contextmanager
def started(groups: Mapping[str, ProcessGroup]) -> Iterator[None]:
    """Wait until all groups are ready, and end them after the block."""
    try:
        for group in groups.values():
            group.wait_until_ready()
        yield
    finally:
        for group in groups.values():
            group.end()


@contextlib.contextmanager
def started_peer(program: str, peer_python: str, option: str) -> Iterator[Callable[..., Any] | None]:
    """Yield what asks a program with this option, run by a peer's interpreter with one thread; None without one."""
    if not peer_python:
        yield None
        return
    environment = {**children.clean_environment(), "OMP_NUM_THREADS": "1"}
    peer = ProcessGroup([peer_python, program, option], [environment])
    with started({"peer": peer}):
        yield lambda **request: peer.ask(**request)[0]


def take_turns(
    program: str,
    pythons: Mapping[str, str | None],
    words: Sequence[str],
    number: int,
    warm_up: int = 2,
    added: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> dict[str, list[Any]]:
    """Return what one process of each library, ``program --serve LIBRARY *words``, answers in each round.

    Args:
        pythons: interpreter of each library; those without one are left out.
        added: further variables of a library's process, beside one thread and those of a tuned run.
    """
    groups = {}
    for library, python in pythons.items():
        if python:
            environments = [{**one, **added.get(library, {})} for one in group_environments()]
            groups[library] = ProcessGroup([python, program, SERVES, library, *words], environments)
    with started(groups):
        turns = {library: lambda group=group: group.ask()[0] for library, group in groups.items()}
        return rounds.interleave(turns, number, warm_up)


def compare_clocks(title: str, taken: Mapping[str, Sequence[tuple[float, float]]], name: str) -> dict[str, float]:
    """Print seconds by the clock and of the processor, as ``clock.time_call`` returns them, and return their ratios."""
    rows, result = [], {f"{name}_processor_ms": 1e3 * Spread.of([one[1] for one in taken[OURS]]).median}
    for library, answers in taken.items():
        row = [library]
        for clock, suffix in enumerate(("", "_processor")):
            seconds, ours = ([answer[clock] for answer in part] for part in (answers, taken[OURS]))
            ratio = rounds.ratios(seconds, ours)
            row += [Spread.of(seconds).text(1e3, 0), ratio.text()]
            if library != OURS:
                result[f"{name}_times_as_fast{suffix}"] = ratio.median
        rows.append(row)
    rounds.print_table(title, ["", "ms", "times ours", "processor, ms", "times ours"], rows)
    return result


def compare_steps(
    file: str,
    description: str,
    title: str,
    name: str,
    ours: Callable[[], Callable[[], None]],
    theirs: Mapping[str, Callable[[], Callable[[], None]]],
    packages: str,
) -> None:
    """Run a program that times our updates against a peer's, each in its own process, and print the ratios.

    Args:
        file: the program, which starts itself again for each contender.
        description: its docstring.
        title: of the table, without the number of rounds.
        name: of the result.
        ours: builds our update.
        theirs: builds the peer's, by its name.
        packages: that the peer's interpreter needs.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peer-python", help=f"an interpreter with {packages}")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        step = {OURS: ours, **theirs}[options.serve]()
        serve(lambda: time_call(step))
        return
    rounds.print_machine()
    interpreters = {OURS: sys.executable, **dict.fromkeys(theirs, options.peer_python)}
    taken = take_turns(file, interpreters, [], options.rounds)
    rounds.print_result(compare_clocks(f"{title}, {options.rounds} rounds", taken, name))
