"""Decode every image of a dataset once to find those that cannot be read."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from ...loading.prepare_workers import check_stop, spans, work
from ..data.quarantine import Unreadable
from ..data.reading import UnreadablePicture

_PICTURES_PER_JOB = 128


def check_pictures(datasets: Dict[str, Any], workers: int) -> List[Unreadable]:
    """The images of all ``datasets`` that cannot be read, in their order."""
    jobs = [
        (end - first, (number, dataset, first, end))
        for number, dataset in enumerate(datasets.values())
        for first, end in spans(len(dataset), _PICTURES_PER_JOB)
    ]
    found: List[Tuple[int, int, Unreadable]] = []
    for bad in work(_check, jobs, workers, sum(map(len, datasets.values())), "checking"):
        found += bad
    return [unreadable for _, _, unreadable in sorted(found)]


def _check(number: int, dataset: Any, first: int, end: int) -> List[Tuple[int, int, Unreadable]]:
    bad = []
    for index in range(first, end):
        check_stop()
        try:
            dataset.read(index)
        except UnreadablePicture as error:
            bad.append((number, index, Unreadable.of(error)))
    return bad
