"""The contract between a task and the predictor: inputs, what is known of the weights, what is written."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from .dataset import TransformedDataset

Row = dict[str, Any]  # plain values by the name of their column; the first, "input", is added by the predictor


class CheckpointMeta(NamedTuple):
    """Facts about weights that are known without the data that they were trained on.

    Attributes:
        num_classes: outputs of the model; None: unknown.
        class_names: of the classes, or of the landmarks, in the order of their numbers; None: unknown.
        input: what ``Task.preprocess_signature`` said in the run that trained them; empty where nothing was kept.
        data: what ``Task.dataset_signature`` said of the first split with classes, likewise.
    """

    num_classes: int | None = None
    class_names: tuple[str, ...] | None = None
    input: Mapping[str, Any] = {}
    data: Mapping[str, Any] = {}


class InputSamples(TransformedDataset):
    """Inputs that are to be predicted, in the order in which they were given.

    Made by ``Task.open_inputs`` in the parent process; pickled to the workers and forked into loader processes, so its
    pickle should hold file names and scalars only. ``sample`` raises UserError for an input that cannot be read, which
    is listed with its message and does not end anything.
    """

    #: what each sample is called in rows and lists, in their order: a path as the user would write it
    names: Sequence[str] = ()
    #: path and reason, in one line, of each input that was found unreadable before any sample was read
    unreadable: Sequence[tuple[str, str]] = ()

    def __len__(self) -> int:
        return len(self.names)

    def describe(self, index: int) -> str:
        return self.names[index]

    def content(self) -> Any:
        """Plain values that change with the inputs, their order, and where it is cheap to see also with their content;
        by default ``stamps`` of ``names``."""
        return stamps(self.names)

    def fingerprint(self) -> str:
        """Changes with ``content``, and with the paths that hold no input: a prediction that was interrupted goes on
        only with the same ones."""
        found = self.content(), stamps(path for path, _ in self.unreadable)
        return hashlib.sha256(repr(found).encode("utf-8", "surrogateescape")).hexdigest()


class PredictionRecord(NamedTuple):
    """Outcome of one input, or of one sample of an evaluation.

    Attributes:
        index: of the input.
        rows: without the input's name; None: it cannot be read.
        reason: why not.
        kept: what ``PredictionWriter.kept`` returned.
    """

    index: int  # type: ignore[assignment]  # a method of tuples that nobody calls on this one
    rows: list[Row] | None
    reason: str = ""
    kept: Any = None


class PredictionWriter:
    """Writes what is predicted, besides the rows in ``predictions.csv`` and ``predictions.jsonl``; by default nothing.
    Made by ``Task.prediction_writer``, on each rank.

    A prediction may be interrupted at any time and continued by another process: files have to be complete or absent,
    and what ``write`` has written is not written again.
    """

    #: whether it writes the predictions of an evaluation too (SAVE_PREDICTIONS)
    writes_evaluations = False

    def write(self, index: int, prediction: Any, truth: Any = None) -> Row:
        """Write the files of one sample, on the rank that predicted it.

        Args:
            index: of the sample.
            prediction: what ``Task.predict_step`` returned for it.
            truth: what else ``Task.eval_step`` has given; None: it is not known.
        Returns:
            Values to be added to each row of this input, such as the names of the files.
        """
        return {}

    def kept(self, index: int, prediction: Any, truth: Any = None) -> Any:
        """Return what ``finish`` needs to know of the sample, as JSON can hold it."""
        return None

    def finish(self, entries: Iterable[PredictionRecord]) -> list[str]:
        """Called once, in the main process, when all samples are done; returns lines for the user.

        Args:
            entries: of all samples in their order, those of earlier interrupted starts included; read from a file as
                they are asked for, so that they need not fit into memory. Those of an evaluation have no rows.
        """
        return []


def output_names(stems: Sequence[str]) -> list[str]:
    """Name the files of each input: by its stem; of several with one stem the second is ``stem_2``, and so on.
    No two are equal where file names differ by more than upper and lower case."""
    taken: dict[str, int] = {}
    names = []
    for stem in stems:
        name = stem
        while name.lower() in taken:
            taken[stem.lower()] += 1
            name = f"{stem}_{taken[stem.lower()]}"
        taken[name.lower()] = 1
        names.append(name)
    return names


def stamps(paths: Iterable[str]) -> list[tuple[str, int, int]]:
    """Path, size and time of modification of each file or folder, for a fingerprint; zeros where it is gone."""
    found = []
    for path in paths:
        try:
            status = os.stat(path)
            found.append((path, status.st_size, status.st_mtime_ns))
        except OSError:
            found.append((path, 0, 0))
    return found


Item = TypeVar("Item")


def find_inputs(
    inputs: Sequence[str],
    of_folder: Callable[[str], Iterable[Item]],
    of_file: Callable[[str], Item | None],
    *,
    what: str,
    expected: str,
) -> tuple[list[Item], list[tuple[str, str]]]:
    """List what paths hold, in their order; and the paths that hold nothing of the kind, with reasons.

    Args:
        of_folder: all that is below a folder, in order.
        of_file: what a file is by its name; None: nothing of the kind.
        what: a sample is called, such as "scene".
        expected: what to give instead, for the reasons.
    """
    found: list[Item] = []
    unreadable: list[tuple[str, str]] = []
    for path in map(os.path.expanduser, inputs):
        if os.path.isdir(path):
            own = list(of_folder(path))
            found += own
            if not own:
                unreadable.append((path, f"the folder holds no {what}s: {expected}"))
            continue
        if not os.path.exists(path):
            unreadable.append((path, "no such file or folder"))
            continue
        item = of_file(path)
        if item is None:
            unreadable.append((path, f"not a {what} by its name: {expected}"))
        else:
            found.append(item)
    return found, unreadable
