"""Draws combinations until time is over or every pair is covered, checks each, and shrinks what fails."""

import random
import re
import shlex
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from .covering import NIGHTLY, Pair, draw, list_all_pairs, list_pairs, skip_earlier
from .features import list_avoided
from .invariants import CHECKS, NEEDS, check
from .materials import Materials
from .runs import BaseRunError, Bench
from .values import Combination

_SHRINK_SECONDS = 120.0


class Failure(NamedTuple):
    """A check that failed, the fewest settings with which it does, what it found, and the command."""

    check: str
    settings: Combination
    found: str
    command: str


class Result(NamedTuple):
    """What a campaign did.

    Attributes:
        covered, pairs: pairs of values that a combination had, and all pairs of the task.
        new: pairs that no earlier seed of the series had; ``earlier``: pairs that one had.
    """

    combinations: int
    covered: int
    pairs: int
    new: int
    earlier: int
    failures: list[Failure]

    def format(self) -> str:
        return (
            f"{self.combinations} combinations, {self.covered} of {self.pairs} pairs, {self.new} of them new after "
            f"{self.earlier} of earlier nights"
        )


class Campaign:
    """Combinations of one task, checked by several threads.

    Args:
        deadline: ``time.monotonic()`` at which no new combination begins.
        fixed: settings that every combination has.
    """

    def __init__(self, task: str, work: Path, materials: Materials, seed: int, deadline: float, fixed: Combination):
        self.task, self.work, self.materials = task, work, materials
        self.seed, self.deadline, self.fixed = seed, deadline, fixed
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
        self._failed_bases = benches[0].failed_bases
        for bench in benches:
            bench.failed_bases = self._failed_bases
        self.targets = list_all_pairs(benches[0].features, list_avoided(self.task))
        self.earlier, self.generator = skip_earlier(
            benches[0].features, list_avoided(self.task), self.targets, self.seed, self.task
        )
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(self._work, benches))
        covered, earlier = self.covered & self.targets, self.earlier & self.targets
        new = len(covered - earlier)
        return Result(self.count, len(covered), len(self.targets), new, len(earlier), self.failures)

    def _draw(self, bench: Bench) -> tuple[int, Combination] | None:
        """Draw a combination and its number; None if none is left. A network whose base run failed is not drawn."""
        models = {name: value for name, value in bench.features["model"].items() if name not in self._failed_bases}
        with self._lock:
            missing = self.targets - self.covered
            if not models or not missing:
                return None
            if self.count == NIGHTLY:  # the next of the series are the next seed's
                self.generator = random.Random(self.seed)
            features = bench.features | {"model": models}
            combination = draw(
                features, list_avoided(self.task), [missing - self.earlier, missing], self.fixed, self.generator
            )
            self.covered |= list_pairs(combination)
            self.count += 1
            return self.count, combination

    def _work(self, bench: Bench) -> None:
        while time.monotonic() < self.deadline and (drawn := self._draw(bench)) is not None:
            number, combination = drawn
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
            command = shlex.join(["paddlevit-dist", *bench.make_train_words(small, Path("output/shown"))])
        except BaseRunError as error:
            command = shlex.join(["paddlevit-dist", *error.words])
        except AssertionError as error:  # its data could not be written
            command = str(error)
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
