"""Detections as files in COCO's format: collected by each process as they are found, joined at the end.

A process appends a line per picture, its number and its results, to a file of its own. So an evaluation of any size
takes no memory, and a prediction that was interrupted goes on.
"""

from __future__ import annotations

import contextlib
import heapq
import json
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Sequence, Tuple

from ...contracts.task import PredictionWriter
from ...errors import UserError
from ...files import atomic_file, why_not_written
from ...parallel import all_gather, is_main, rank
from .evaluation.annotation_file import BOXES, MASKS
from .evaluation.detections import Detections, as_written

RESULTS = "results.json"
MASK_RESULTS = "results_masks.json"  # apart: COCO's tools take the boxes' areas where a result has both


def results_of(image_id: int, found: Detections, category_ids: Sequence[int], kind: str) -> List[Dict[str, Any]]:
    """What COCO's format says of one picture. Numbers are exact, so that scores are those of the network; what is not
    finite, and labels that stand for no category, are left out.

    Args:
        category_ids: of the labels from 0.
        kind: ``BOXES`` gives boxes; ``MASKS`` gives masks without boxes: COCO's tools would otherwise take the boxes'
            areas for small, medium and large.
    """
    found = found.finite()
    found = found.only(found.labels < len(category_ids))
    name, shapes = ("segmentation", found.masks) if kind == MASKS else ("bbox", as_written(found.boxes).tolist())
    return [
        {"image_id": image_id, "category_id": int(category_ids[label]), name: shape, "score": score}
        for label, shape, score in zip(found.labels.tolist(), shapes or (), found.scores.tolist())
    ]


class ResultParts:
    """The files of one process, one for each kind of result that its detections have: for each picture its number, a
    tab, and its results as JSON on a line.

    Args:
        folder: exists once there is something to write.
        name: of a file, with ``{kind}`` in it.
        category_ids: of the labels from 0.
    """

    def __init__(self, folder: Path, name: str, category_ids: Sequence[int]) -> None:
        self._folder, self._name, self._category_ids = folder, name, list(category_ids)
        self._streams: Dict[str, BinaryIO] = {}

    def add(self, index: int, image_id: int, found: Detections) -> None:
        """Append a picture, in ascending order of the index; it outlives the process.

        Raises:
            UserError: the file system refuses.
        """
        for kind in (BOXES, *((MASKS,) if found.masks is not None else ())):
            results = ",".join(map(json.dumps, results_of(image_id, found, self._category_ids, kind)))
            with _told(self._file(kind)):
                if kind not in self._streams:
                    self._streams[kind] = open(self._file(kind), "wb")  # noqa: SIM115 - closed by ``close``
                self._streams[kind].write(f"{index}\t{results}\n".encode())
                self._streams[kind].flush()

    def _file(self, kind: str) -> Path:
        return self._folder / self._name.format(kind=kind)

    def close(self) -> Dict[str, str]:
        """Nothing is added any more; the name of the file of each kind."""
        for kind, stream in self._streams.items():
            with _told(self._file(kind)):
                stream.close()
        return {kind: self._file(kind).name for kind in self._streams}


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
