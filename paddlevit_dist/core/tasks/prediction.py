"""The contract between a task and the predictor: inputs, metadata of the weights, and the files written."""

import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..runtime.errors import UserError
from ..runtime.printing import agree, count, one_line, shorten
from ..runtime.text_files import Facts, convert_facts
from .dataset import TransformedDataset

UNFINISHED = "unfinished"  # folder below that of an evaluation's predictions, which is emptied before and removed after
_LONGEST_NAME = 200  # bytes: of 255 that files may have, the others are for suffixes
ArrayMakers = dict[str, Callable[[], np.ndarray]]  # a function for each array, by its name
Row = dict[str, Any]  # plain values by column; the predictor adds the first column, "input"


class CheckpointMeta(NamedTuple):
    """Metadata of weights that is known without the data that they were trained on."""

    num_classes: int | None = None  # outputs of the model; None: unknown
    class_names: tuple[str, ...] | None = None  # of classes or landmarks, in the order of their labels; None: unknown
    input: Mapping[str, Any] = {}  # ``Task.signature`` of the run that trained the weights; empty if unknown
    data: Mapping[str, Any] = {}  # ``Task.signature`` of the first split with classes; empty if unknown
    source: str = "about.yaml"  # file with these facts, for messages

    def read_input(self, kind: type[Facts]) -> Facts:
        """Return the facts of ``input`` as ``kind``, the ``msgspec.Struct`` of the task, or raise UserError."""
        return convert_facts(dict(self.input), kind, self.source)

    def read_data(self, kind: type[Facts]) -> Facts:
        """Return the facts of ``data`` as ``kind``, the ``msgspec.Struct`` of the task, or raise UserError."""
        return convert_facts(dict(self.data), kind, self.source)


class InputSamples(TransformedDataset):
    """Inputs of a prediction, in the order in which they were given.

    Built by ``Predictable.open_inputs`` in the parent process, then pickled to the workers and forked into loader
    processes, so its pickle should hold file names and scalars only. ``sample`` raises UserError, or an error of the
    library that reads it, for an input that cannot be read. Its message is listed, and the others are predicted.

    Attributes:
        names: name of each sample in rows and lists, a path as the user would write it.
        unreadable: path and reason, in one line, of each input that was unreadable before any sample was read.
        in_memory: whether samples are objects of this program, which no other process or thread needs to read.
    """

    in_memory = False
    names: Sequence[str] = ()
    unreadable: Sequence[tuple[str, str]] = ()

    def __len__(self) -> int:
        return len(self.names)

    def describe(self, index: int) -> str:
        """Return the name of input ``index``."""
        return self.names[index]

    def content(self) -> object:
        """Return plain values that change with the inputs, their order and, if cheap to check, their content."""
        return stamps(self.names)

    def fingerprint(self) -> str:
        """Return a digest of ``content`` and unreadable paths; an interrupted prediction continues if it is equal."""
        content = self.content(), stamps(path for path, _ in self.unreadable)
        return hashlib.sha256(repr(content).encode("utf-8", "surrogateescape")).hexdigest()


class PredictionRecord(NamedTuple):
    """Outcome of one input, or of one sample of an evaluation.

    Attributes:
        index: index of the input.
        rows: rows of the output tables without the input's name; None: the input cannot be read.
        reason: why the input cannot be read.
        summary: result of ``PredictionWriter.summarize``.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    rows: list[Row] | None
    reason: str = ""
    summary: Any = None


class PredictionWriter:
    """Writes files of a prediction other than ``predictions.csv`` and ``predictions.jsonl``; by default none.

    Built by ``Predictable.prediction_writer``, on each rank. A prediction may be interrupted at any time and continued
    by another process: files must be complete or absent, and ``write`` is not called again for samples it has written.
    ``prediction`` is the result of ``Predictable.predict_step`` for a sample, ``truth`` its ground truth from
    ``Task.eval_step`` (None: unknown).
    """

    #: whether it also writes the predictions of an evaluation (SAVE_PREDICTIONS)
    writes_evaluations = False
    #: names of the folders, below the prediction's, that it alone fills
    folders: Sequence[str] = ()

    def write(self, index: int, prediction: Any, truth: Any = None) -> Row | None:
        """Write the files of a sample, on the rank that predicted it; return values for its rows if there are any."""
        return {}

    def summarize(self, index: int, prediction: Any, truth: Any = None) -> Any:
        """Return what ``finish`` needs to know about a sample, in values that JSON can hold."""
        return None

    def finish(self, entries: Iterable[PredictionRecord]) -> list[str]:
        """Write the final files and return lines for the user; called once, in the main process, after all samples.

        ``entries`` are records of all samples in their order, including samples of interrupted earlier starts. They are
        read from a file one by one and need not fit into memory. In an evaluation, they have no rows.
        """
        return []


def pack_array(array: np.ndarray) -> Callable[[], np.ndarray]:
    """Return a function, which can be pickled, that returns an array again; until then it is compressed."""
    content = zlib.compress(np.ascontiguousarray(array), 1)
    return partial(_unpack, content, array.dtype.str, array.shape)


def _unpack(content: bytes, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(bytearray(zlib.decompress(content)), dtype).reshape(shape)  # writable


def output_names(stems: Sequence[str]) -> list[str]:
    """Return a file name for each input: its stem, or the second time ``stem_2``; unique also if case is ignored."""
    counts: dict[str, int] = {}
    names = []
    for stem in stems:
        name = stem
        while name.lower() in counts:
            counts[stem.lower()] += 1
            name = f"{stem}_{counts[stem.lower()]}"
        counts[name.lower()] = 1
        names.append(name)
    return names


def note_counted(stems: Sequence[str], names: Sequence[str], noun: str) -> list[str]:
    """Return a note for the user if ``output_names`` of the ``stems`` counts some, as two samples have one name.

    ``noun`` is what a sample is called, such as "image".
    """
    counted = [name for stem, name in zip(stems, names) if stem != name]
    if not counted:
        return []
    return [
        f"note: {count(len(counted), noun)} of {len(names):,} {agree(len(counted), 'has', 'have')} the name of another;"
        f" in the names of files these are counted, such as {shorten(counted[0])}"
    ]


def claim_file_name(folder: Path, name: str, index: int, noun: str) -> None:
    """Let no two samples of an evaluation, on any rank, write their predictions to files of the same name.

    ``folder`` is that of the predictions; ``noun`` is what a sample is called. Raises UserError: the name is that of
    another sample, or cannot be the name of a file.
    """
    if not is_file_name(name):
        raise UserError(
            f"{noun} {index} has the name {shorten(repr(name))}, which cannot be that of the files of its prediction: "
            "return a short text without '/', such as its file name"
        )
    claims = folder / UNFINISHED
    claims.mkdir(parents=True, exist_ok=True)
    try:
        with open(claims / f"{name}.name", "x", encoding="utf-8") as file:
            file.write(str(index))
    except FileExistsError:
        other = (claims / f"{name}.name").read_text("utf-8")
        if other != str(index):
            first, second = sorted((int(other or index), index))
            raise UserError(
                f"{noun} {first} and {noun} {second} both have the name {shorten(repr(name))}, and the files of their "
                f"predictions are named by it: return another name for each {noun}"
            ) from None


def is_file_name(name: object) -> bool:
    """Return whether a value is a text that can be the name of a file, also with a suffix."""
    if not isinstance(name, str) or not name.strip() or set(name) & set("/\0"):
        return False
    return len(os.fsencode(name)) <= _LONGEST_NAME


def stamps(paths: Iterable[str]) -> list[tuple[str, int, int]]:
    """Return path, size and modification time of each file or folder, for a fingerprint; zeros if it is gone."""
    stamps_by_path = []
    for path in paths:
        try:
            status = os.stat(path)
            stamps_by_path.append((path, status.st_size, status.st_mtime_ns))
        except OSError:
            stamps_by_path.append((path, 0, 0))
    return stamps_by_path


Item = TypeVar("Item")
_NOTES = (".txt", ".md", ".rst", ".pdf", ".html", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".tsv", ".xml", ".log")
_MOST_SUFFIXES = 5


def find_inputs(
    inputs: Sequence[Any],
    list_folder: Callable[[str, list[str]], Iterable[Item]],
    open_file: Callable[[str], Item | None],
    *,
    what: str,
    expected: str,
) -> tuple[list[Item], list[tuple[str, str]], list[str]]:
    """List the inputs at these paths in their order, paths without inputs with reasons, and lines on skipped files.

    Args:
        inputs: files and folders; ``~`` is expanded. UserError: one is not a path.
        list_folder: returns all inputs below a folder, in order, and appends the paths of other files to a list, but
            not of those that belong to an input.
        open_file: returns the input that a file is, judged by its name; None if it is not one.
        what: singular noun for an input, such as "scene".
        expected: what to give instead, for the reasons.
    """
    items: list[Item] = []
    unreadable: list[tuple[str, str]] = []
    notices: list[str] = []
    for given in inputs:
        if not isinstance(given, (str, os.PathLike)):
            raise UserError(f"predict: {what}s are given as paths of files and folders, not as {type(given).__name__}")
        path = os.path.expanduser(os.fspath(given))
        if os.path.isdir(path):
            others: list[str] = []
            folder_items = list(list_folder(path, others))
            items += folder_items
            if folder_items:
                notices += _note_others(path, others, f"not {what}s by their names: {expected}")
            else:
                unreadable.append((path, f"the folder contains no {what}s: {expected}"))
            continue
        if not os.path.exists(path):
            unreadable.append((path, "no such file or folder"))
            continue
        item = open_file(path)
        if item is None:
            unreadable.append((path, f"not a {what} by its name: {expected}"))
        else:
            items.append(item)
    return items, unreadable, notices


def _note_others(folder: str, paths: Sequence[str], reason: str) -> list[str]:
    """Return a line with the number of these files by suffix, but for notes; none without any."""
    paths = [path for path in paths if not path.lower().endswith(_NOTES)]
    suffixes = Counter(os.path.splitext(path)[1].lower() or "without a suffix" for path in paths)
    kinds = ", ".join(f"{number:,} {suffix}" for suffix, number in suffixes.most_common(_MOST_SUFFIXES))
    more = ", …" if len(suffixes) > _MOST_SUFFIXES else ""
    skipped = f"{count(len(paths), 'file')} below {folder} skipped ({kinds}{more}), such as"
    return [one_line(f"note: {skipped} {os.path.relpath(paths[0], folder)}: {reason}")] if paths else []
