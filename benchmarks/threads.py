"""One process with several threads against several processes with one each.

    python benchmarks/threads.py [--cores 2] [--rounds 9]

A training step of ViT-Ti/16 at 224 pixels on the same number of images: forward, backward with the gradients averaged
over the processes, AdamW. Each way is a group of processes that stays for all rounds; between its turns it waits at a
pipe.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import children
import rounds
import training_updates
from smallest import SHALLOW, sized

IMAGES = sized(16, 2)  # of a step, over all processes


def work(folder: str) -> None:
    """A rank: makes a step for each line in its pipe; rank 0 answers with the seconds."""
    import paddle

    from paddlevit_dist import create_model
    from paddlevit_dist.core.distributed import data_parallel, rank, world_size

    paddle.seed(0)
    inner = create_model("vit_tiny_patch16_224", **SHALLOW)
    model = data_parallel(inner)
    step = training_updates.get_timed_step(model, inner.parameters(), IMAGES // world_size())
    step()
    with open(Path(folder, f"turn_{rank()}")) as turns, open(Path(folder, f"reply_{rank()}"), "w") as replies:
        for _ in turns:
            step()  # threads of the others may still spin
            print(step(), file=replies, flush=True)


class Group:
    """The processes of one way."""

    def __init__(self, folder: Path, processes: int, threads: int) -> None:
        folder.mkdir()
        for number in range(processes):
            os.mkfifo(folder / f"turn_{number}")
            os.mkfifo(folder / f"reply_{number}")
        environment = {**children.tuned_environment(1), "KMP_BLOCKTIME": "1"}
        environment["FLAGS_paddle_num_threads"] = environment["PADDLEVIT_DIST_THREADS"] = str(threads)
        command = [sys.executable, __file__, "--work", str(folder), "--cores", str(processes)]
        self._process = children.start(command, environment)
        self._folder, self._numbers = folder, range(processes)
        self._files = contextlib.ExitStack()
        self._turns: list[IO[str]] = []
        self._replies: list[IO[str]] = []

    def join(self) -> None:
        """Wait until it is ready."""
        for number in self._numbers:
            turn = self._files.enter_context((self._folder / f"turn_{number}").open("w"))
            reply = self._files.enter_context((self._folder / f"reply_{number}").open())
            self._turns.append(turn)
            self._replies.append(reply)

    def step(self) -> float:
        """Seconds of a step, of the slowest process."""
        for turn in self._turns:
            print(file=turn, flush=True)
        lines = [reply.readline() for reply in self._replies]
        if not all(lines):
            raise SystemExit(f"a group ended with exit code {self._process.wait()}")
        return max(map(float, lines))

    def end(self) -> None:
        """End its processes."""
        children.end(self._process)
        with contextlib.suppress(BrokenPipeError):
            self._files.close()


def measure(cores: int, number_of_rounds: int) -> None:
    """Let all ways take turns."""
    rounds.print_machine()
    ways = {"1 x 1": (1, 1), f"1 x {cores}": (1, cores), f"{cores} x 1": (cores, 1)}
    groups: dict[str, Group] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name, (processes, threads) in ways.items():
                groups[name] = Group(Path(folder, name.replace(" ", "")), processes, threads)
                groups[name].join()
            contenders: dict[str, Callable[[], float]] = {name: group.step for name, group in groups.items()}
            seconds = rounds.interleave(contenders, number_of_rounds)
        finally:
            for group in groups.values():
                group.end()
    rows, result = [], {}
    for name, values in seconds.items():
        ratio = rounds.ratios(seconds["1 x 1"], values)
        rows.append([name, rounds.Spread.of([IMAGES / value for value in values]).text(digits=1), ratio.text()])
        if name != "1 x 1":
            result[f"{name} / 1 x 1"] = ratio.median
    result[f"1 x {cores} / {cores} x 1"] = rounds.ratios(seconds[f"{cores} x 1"], seconds[f"1 x {cores}"]).median
    title = f"ViT-Ti/16 training step, {IMAGES} images, {number_of_rounds} rounds"
    rounds.print_table(title, ["processes x threads", "images/s", "times as fast as 1 x 1"], rows)
    rounds.print_result(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work is None:
        measure(arguments.cores, arguments.rounds)
        return
    from paddlevit_dist.core.launch import launch_workers, plan_processes

    launch_workers(work, (arguments.work,), plan_processes(arguments.cores))


if __name__ == "__main__":
    main()
