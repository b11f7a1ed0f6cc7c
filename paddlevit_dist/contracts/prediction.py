"""What a task tells the predictor: the inputs it was given, what is known of its weights, what it writes."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

from .dataset import Samples

Row = Dict[str, Any]  # plain values by the name of their column; the first, "input", is added by the predictor


class Learned(NamedTuple):
    """What is known of weights without the data that they were trained on.

    Attributes:
        num_classes: outputs of the model; None: unknown.
        class_names: of the classes, or of the landmarks, in the order of their numbers; None: unknown.
        input: what ``Task.about_input`` said in the run that trained them; empty where nothing was kept.
        data: what ``Task.about_data`` said of the first split with classes, likewise.
    """

    num_classes: Optional[int] = None
    class_names: Optional[Tuple[str, ...]] = None
    input: Mapping[str, Any] = {}
    data: Mapping[str, Any] = {}


class InputSamples(Samples):
    """Inputs that are to be predicted, in the order in which they were given.

    Made by ``Task.open_inputs`` in the parent process; pickled to the workers and forked into loader processes, so its
    pickle should hold file names and scalars only. ``sample`` raises UserError for an input that cannot be read, which
    is listed with its message and does not end anything.
    """

    #: what each sample is called in rows and lists, in their order: a path as the user would write it
    names: Sequence[str] = ()
    #: path and reason, in one line, of each input that was found unreadable before any sample was read
    unreadable: Sequence[Tuple[str, str]] = ()

    def __len__(self) -> int:
        return len(self.names)

    def describe(self, index: int) -> str:
        return self.names[index]

    def fingerprint(self) -> str:
        """Changes with the inputs, their order, and where it is cheap to see also with their content: a prediction that
        was interrupted goes on only with the same ones."""
        raise NotImplementedError


class OutputWriter:
    """Writes what is predicted, besides the rows in ``predictions.csv`` and ``predictions.jsonl``. One per rank.

    A prediction may be interrupted at any time and continued by another process: files have to be complete or absent,
    and what ``write`` has written is not written again.
    """

    def write(self, index: int, prediction: Any) -> Row:
        """Write the files of one input, on the rank that predicted it.

        Args:
            index: of the input in the ``InputSamples``.
            prediction: what ``Task.predict_step`` returned for it.
        Returns:
            Values to be added to each row of this input, such as the names of the files.
        """
        return {}

    def finish(self, rows: Iterable[Row]) -> List[str]:
        """Called once, in the main process, when all inputs are done; returns lines for the user.

        Args:
            rows: all rows of all inputs in their order, those of earlier interrupted starts included; read from a file
                as they are asked for, so that they need not fit into memory.
        """
        return []


def output_names(stems: Sequence[str]) -> List[str]:
    """What the files of each input are called: its stem; of several with one stem the second is ``stem_2``, and so on.
    No two are equal where file names differ by more than upper and lower case."""
    taken: Dict[str, int] = {}
    names = []
    for stem in stems:
        name = stem
        while name.lower() in taken:
            taken[stem.lower()] += 1
            name = f"{stem}_{taken[stem.lower()]}"
        taken[name.lower()] = 1
        names.append(name)
    return names


def stamps(paths: Iterable[str]) -> List[Tuple[str, int, int]]:
    """Path, size and time of modification of each file or folder, for a fingerprint; zeros where it is gone."""
    found = []
    for path in paths:
        try:
            status = os.stat(path)
            found.append((path, status.st_size, status.st_mtime_ns))
        except OSError:
            found.append((path, 0, 0))
    return found


def fingerprint_of(samples: InputSamples) -> str:
    """Changes with the inputs, and with the paths that hold none, which ``unreadable`` lists."""
    if not samples.unreadable:
        return samples.fingerprint()
    paths = stamps(path for path, _ in samples.unreadable)
    return hashlib.sha256(repr((samples.fingerprint(), paths)).encode("utf-8", "surrogateescape")).hexdigest()


Item = TypeVar("Item")


def find_inputs(
    inputs: Sequence[str],
    of_folder: Callable[[str], Iterable[Item]],
    of_file: Callable[[str], Optional[Item]],
    *,
    what: str,
    expected: str,
) -> Tuple[List[Item], List[Tuple[str, str]]]:
    """What paths hold, in their order; and the paths that hold nothing of the kind, with reasons.

    Args:
        of_folder: all that is below a folder, in order.
        of_file: what a file is by its name; None: nothing of the kind.
        what: a sample is called, such as "scene".
        expected: what to give instead, for the reasons.
    """
    found: List[Item] = []
    unreadable: List[Tuple[str, str]] = []
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
