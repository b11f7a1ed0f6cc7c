"""Detections as files in COCO's format: collected by each process as they are found, joined at the end.

A process appends a line per picture, its number and its results, to a file of its own. So an evaluation of any size
takes no memory, and a prediction that was interrupted goes on.
"""

from __future__ import annotations

import contextlib
import heapq
import json
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Sequence, Tuple

from ...contracts.task import PredictionWriter
from ...errors import UserError
from ...files import atomic_file, why_not_written
from ...parallel import all_gather, is_main, rank
from .evaluation.detections import Detections, as_written

RESULTS = "results.json"


def results_of(image_id: int, found: Detections, category_ids: Sequence[int]) -> List[Dict[str, Any]]:
    """What COCO's format says of one picture, in the order of ``found``; without labels that stand for no category.

    Args:
        category_ids: of the labels from 0.
    """
    entries = []
    boxes = as_written(found.boxes).tolist()
    for place, (box, score, label) in enumerate(zip(boxes, found.scores.tolist(), found.labels.tolist())):
        if label >= len(category_ids):
            continue
        entry = {"image_id": image_id, "category_id": category_ids[label], "bbox": box, "score": score}
        if found.masks is not None:
            entry["segmentation"] = found.masks[place]
        entries.append(entry)
    return entries


class ResultLines:
    """The file of one process: for each picture its number, a tab, and its results as JSON on a line."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.results = 0
        self._stream: Optional[BinaryIO] = None

    def add(self, index: int, entries: Sequence[Dict[str, Any]]) -> None:
        """Append a picture, in ascending order of the index; it outlives this process.

        Raises:
            UserError: the file system refuses.
        """
        with _told(self.file):
            if self._stream is None:
                self._stream = open(self.file, "wb")  # noqa: SIM115 - closed by ``close``
            text = ",".join(json.dumps(entry) for entry in entries)
            self._stream.write(f"{index}\t{text}\n".encode())
            self._stream.flush()
        self.results += len(entries)

    def close(self) -> None:
        """Nothing is added any more."""
        if self._stream is not None:
            with _told(self.file):
                self._stream.close()
            self._stream = None


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
    """Writes ``results.json`` of an evaluated split.

    Args:
        folder: exists once there is something to write.
        category_ids: of the labels from 0.
    """

    def __init__(self, folder: Path, category_ids: Sequence[int]) -> None:
        self.folder = folder
        self.category_ids = list(category_ids)
        self._lines = ResultLines(folder / f".results-{rank():04d}.part")

    def add(self, index: int, image_id: int, found: Detections) -> None:
        """Keep what was found in picture ``index`` of the split."""
        self._lines.add(index, results_of(image_id, found, self.category_ids))

    def finish(self) -> List[str]:
        """Join the files of all ranks. Every rank must call this."""
        self._lines.close()
        parts = all_gather((self._lines.file.name, self._lines.results))
        if not is_main():
            return []
        files = [self.folder / name for name, _ in parts if (self.folder / name).exists()]
        join_results(files, self.folder / RESULTS)
        for file in files:
            file.unlink()
        number = sum(results for _, results in parts)
        return [f"{number:,} detections in {self.folder / RESULTS}, in COCO's format"]
