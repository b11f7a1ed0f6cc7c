"""Cells of a simulation in several processes, each with its own random numbers, and their rows as a Markdown table."""

import contextlib
import multiprocessing
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from paddlevit_dist.core.intervals import wilson
from paddlevit_dist.core.runtime.process_exit import die_with_parent

Result = TypeVar("Result")


def seeded(seed: int, cell: str, *numbers: int) -> np.random.Generator:
    """A generator that depends on the cell's name, not on other cells: ``numbers`` are stream and data set."""
    return np.random.default_rng((seed, zlib.crc32(cell.encode()), *numbers))


def run_cells(task: Callable[[int], Result], numbers: Sequence[int], jobs: int) -> Iterator[Result]:
    """Yield the results of a task, a function that can be pickled, in their order, from so many processes."""
    with contextlib.ExitStack() as stack:
        if jobs == 1:
            yield from map(task, numbers)
        else:
            pool = multiprocessing.get_context("spawn").Pool(jobs, die_with_parent, (os.getpid(),))
            yield from stack.enter_context(pool).imap(task, numbers)


def print_header(title: str, names: Sequence[str]) -> None:
    print(f"\n{title}\n")
    print_row(names)
    print("|" + "---|" * len(names), flush=True)


def print_row(row: Sequence[str]) -> None:
    print(f"| {' | '.join(row)} |", flush=True)


def show_share(number: int, of: int) -> str:
    """A share in percent, with Wilson's interval; empty if there is none."""
    if not of:
        return ""
    share = wilson(100 * number / of, of, 95)
    return f"{share.value:.1f} {share.ends(1)}"


def show_percent(number: int, of: int) -> str:
    return f"{100 * number / of:.1f}" if of else ""
