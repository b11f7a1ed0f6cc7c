"""Detections as files in COCO's format: collected by each process as they are found, joined at the end.

A process appends a line per picture, its number and its results, to a file of its own. So an evaluation of any size
takes no memory, and a prediction that was interrupted goes on.
"""

from __future__ import annotations

import contextlib
import heapq
import json
from pathlib import Path
from typing import BinaryIO, Dict, Iterator, List, Optional, Sequence, Tuple

from ...contracts.task import PredictionWriter
from ...errors import UserError
from ...files import atomic_file, why_not_written
from ...parallel import all_gather, is_main, rank
from .evaluation.annotation_file import BOXES, MASKS
from .evaluation.detections import Detections
from .evaluation.result_writer import results_of
from .metrics import finite, only

RESULTS = "results.json"
MASK_RESULTS = "results_masks.json"  # apart: COCO's tools take the boxes' areas where a result has both


def lines_of(image_id: int, found: Detections, category_ids: Sequence[int], kind: str) -> str:
    """What COCO's format says of one picture: results with commas between them, on one line. What is not finite, and
    labels that stand for no category, are left out.

    Args:
        category_ids: of the labels from 0.
        kind: ``BOXES`` or ``MASKS``.
    """
    found = finite(found)
    found = only(found, found.labels < len(category_ids))
    return ",".join(json.dumps(result) for result in results_of(image_id, found, category_ids, kind))


class ResultLines:
    """The file of one process: for each picture its number, a tab, and its results as JSON on a line."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._stream: Optional[BinaryIO] = None

    def add(self, index: int, results: str) -> None:
        """Append a picture and what ``lines_of`` says of it, in ascending order of the index; it outlives the process.

        Raises:
            UserError: the file system refuses.
        """
        with _told(self.file):
            if self._stream is None:
                self._stream = open(self.file, "wb")  # noqa: SIM115 - closed by ``close``
            self._stream.write(f"{index}\t{results}\n".encode())
            self._stream.flush()

    def close(self) -> None:
        """Nothing is added any more."""
        if self._stream is not None:
            with _told(self.file):
                self._stream.close()
            self._stream = None


class ResultParts:
    """The files of one process, one for each kind of result that its detections have.

    Args:
        folder: exists once there is something to write.
        name: of a file, with ``{kind}`` in it.
        category_ids: of the labels from 0.
    """

    def __init__(self, folder: Path, name: str, category_ids: Sequence[int]) -> None:
        self._folder, self._name, self._category_ids = folder, name, list(category_ids)
        self._lines: Dict[str, ResultLines] = {}

    def add(self, index: int, image_id: int, found: Detections) -> None:
        """Append a picture, in ascending order of the index."""
        for kind in (BOXES, *((MASKS,) if found.masks is not None else ())):
            if kind not in self._lines:
                self._lines[kind] = ResultLines(self._folder / self._name.format(kind=kind))
            self._lines[kind].add(index, lines_of(image_id, found, self._category_ids, kind))

    def close(self) -> Dict[str, str]:
        """Nothing is added any more; the name of the file of each kind."""
        for lines in self._lines.values():
            lines.close()
        return {kind: lines.file.name for kind, lines in self._lines.items()}


def join_results(files: Sequence[Path], target: Path) -> None:
    """Write a file of results from those of all processes, in the order of the pictures; a picture that is in several
    files, because it was computed again after an interruption, counts once.

    Raises:
        UserError: the file system refuses; an older file is unchanged.
    """
    with _told(target), contextlib.ExitStack() as stack:
        streams = [stack.enter_context(open(file, "rb")) for file in files]
        out = stack.enter_context(atomic_file(target))
        out.write(b"[")
        last, between = -1, b"\n"
        for index, text in heapq.merge(*map(_read, streams), key=lambda line: line[0]):
            if index > last and text:
                out.write(between + text)
                between = b",\n"
            last = max(last, index)
        out.write(b"\n]\n")


def _read(stream: BinaryIO) -> Iterator[Tuple[int, bytes]]:
    for line in stream:
        number, tab, text = line.partition(b"\t")
        if not line.endswith(b"\n") or not tab:
            return  # the half line of a process that was killed
        yield int(number), text[:-1]


@contextlib.contextmanager
def _told(where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {where}: {why_not_written(error)}") from error


class DetectionWriter(PredictionWriter):
    """Writes ``results.json`` of an evaluated split, and beside it ``results_masks.json`` where there are masks.

    Args:
        folder: exists once there is something to write.
        category_ids: of the labels from 0.
    """

    def __init__(self, folder: Path, category_ids: Sequence[int]) -> None:
        self.folder = folder
        self._number = 0
        self._parts = ResultParts(folder, f".results-{{kind}}-{rank():04d}.part", category_ids)

    def add(self, index: int, image_id: int, found: Detections) -> None:
        """Keep what was found in picture ``index`` of the split."""
        self._number += len(found.scores)
        self._parts.add(index, image_id, found)

    def finish(self) -> List[str]:
        """Join the files of all ranks. Every rank must call this."""
        parts = all_gather((self._parts.close(), self._number))
        if not is_main():
            return []
        said = []
        for kind, name in ((BOXES, RESULTS), (MASKS, MASK_RESULTS)):
            files = [self.folder / names[kind] for names, _ in parts if kind in names]
            if files or kind == BOXES:
                join_results(files, self.folder / name)
                said.append(str(self.folder / name))
            for file in files:
                file.unlink()
        return [f"{sum(number for _, number in parts):,} detections in {' and '.join(said)}, in COCO's format"]
