"""Draws combinations until time is over or every pair is covered, checks each, and shrinks what fails."""

import random
import re
import shlex
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from .covering import Pair, draw, list_all_pairs, list_pairs
from .features import REFUSED, Combination
from .invariants import CHECKS, NEEDS, check
from .runs import BaseRunError, Bench, Materials

_SHRINK_SECONDS = 120.0


class Failure(NamedTuple):
    """A check that failed, the fewest settings with which it does, what it found, and the command."""

    check: str
    settings: Combination
    found: str
    command: str


class Result(NamedTuple):
    """What a campaign did."""

    combinations: int
    covered: int
    pairs: int
    failures: list[Failure]


class Campaign:
    """Combinations of one task, checked by several threads.

    Args:
        deadline: ``time.monotonic()`` at which no new combination begins.
        fixed: settings that every combination has.
    """

    def __init__(self, task: str, work: Path, materials: Materials, seed: int, deadline: float, fixed: Combination):
        self.task, self.work, self.materials = task, work, materials
        self.deadline, self.fixed = deadline, fixed
        self.generator = random.Random(seed)
        self.covered: set[Pair] = set()
        self.failures: list[Failure] = []
        self.count = 0
        self._seen: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def run(self, jobs: int = 1) -> Result:
        """Run with so many combinations at once."""
        benches = [
            Bench(self.task, self.work, self.work / self.task / f"job{job}", self.materials) for job in range(jobs)
        ]
        self.targets = list_all_pairs(benches[0].features, REFUSED)
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(self._work, benches))
        return Result(self.count, len(self.covered & self.targets), len(self.targets), self.failures)

    def _work(self, bench: Bench) -> None:
        while time.monotonic() < self.deadline:
            with self._lock:
                if self.targets <= self.covered:
                    return
                combination = draw(bench.features, self.covered, self.fixed, self.generator)
                self.covered |= list_pairs(combination)
                self.count += 1
                number = self.count
            started = time.monotonic()
            found = self._check_all(bench, combination)
            seconds, share = time.monotonic() - started, f"{len(self.covered & self.targets)} of {len(self.targets)}"
            print(
                f"{number}: {seconds:.0f} s, {share} pairs, {bench.list_changes(combination)} {found or 'good'}",
                flush=True,
            )
            for name, complaint in found.items():
                self._report(bench, name, combination, complaint)
            bench.forget()

    def _check_all(self, bench: Bench, combination: Combination) -> dict[str, str]:
        found = {}
        for name in CHECKS:
            complaint = check(name, bench, combination)
            if complaint:
                found[name] = complaint
            if name == "training" and (complaint or bench.train(combination).code != 0):
                break
        return found

    def _report(self, bench: Bench, name: str, combination: Combination, complaint: str) -> None:
        with self._lock:
            is_known = (name, _simplify(complaint)) in self._seen
            self._seen.add((name, _simplify(complaint)))
        if is_known:
            return
        small = shrink(bench, name, combination, complaint)
        try:
            words = bench.make_train_words(small, Path("output/shown"))
        except BaseRunError as error:
            words = error.words
        command = shlex.join(["paddlevit-dist", *words])
        failure = Failure(name, bench.list_changes(small), complaint, command)
        print(f"FAILS {failure.check}: {failure.settings}\n  {failure.found}\n  {failure.command}", flush=True)
        self.failures.append(failure)


def shrink(bench: Bench, name: str, combination: Combination, complaint: str) -> Combination:
    """Reset halves of the settings to their defaults, then quarters and so on, while the same complaint stays."""
    deadline = time.monotonic() + _SHRINK_SECONDS
    small, size = dict(combination), len(combination)
    while size > 1 and time.monotonic() < deadline:
        size = (size + 1) // 2
        changed = list(bench.list_changes(small))
        for begin in range(0, len(changed), size):
            trial = small | {feature: bench.default[feature] for feature in changed[begin : begin + size]}
            if time.monotonic() < deadline and _fails_alike(bench, name, trial, complaint):
                small = trial
    return small


def _fails_alike(bench: Bench, name: str, combination: Combination, complaint: str) -> bool:
    earlier = () if name == "training" else ("training", *NEEDS.get(name, ()))
    if any(check(other, bench, combination) for other in earlier):
        return False
    found = check(name, bench, combination)
    return found is not None and _simplify(found) == _simplify(complaint)


def _simplify(complaint: str) -> str:
    """Drop numbers, paths and names of arrays, in which two complaints of one cause differ."""
    return re.sub(r"\d[\d.e+-]*|/\S+|\(\S+/\S+\)|'[^']*'", "#", complaint)[:120]
