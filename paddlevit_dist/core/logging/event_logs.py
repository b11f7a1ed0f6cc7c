"""Reports and evaluations of training for TensorBoard and VisualDL (LOG_TO), in folders of the run.

Each start writes one file: a resumed run first writes the history in ``metrics.jsonl``, and then removes the file of
the previous start. So no step is there twice after a repetition, and a log that is requested in the middle of training
is complete, too. The files are written by the libraries' record writers, directly and without their threads: loader
processes are forked, and a full disk is reported at once.
"""

import contextlib
import os
import platform
import time
from typing import Any, BinaryIO

from ..runtime.metrics_file import get_values
from ..tasks.callback import Callback, RunFacts


def collect_scalars(group: str, values: dict[str, Any]) -> dict[str, float]:
    """Return ``group/name`` -> value for the values that are numbers."""
    return {
        f"{group}/{name}": float(value)
        for name, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def claim_tag(tags: dict[str, str], tag: str, allowed: str) -> str:
    """Return how a log writes a tag: ``allowed``, followed by "_" while that is another tag; ``tags`` remembers it."""
    while tags.setdefault(allowed, tag) != tag:
        allowed += "_"
    return allowed


class NumbersLog(Callback):
    """Base class of callbacks that log the numbers of reports and evaluations."""

    def report(self, update: int, values: dict[str, float]) -> None:
        """Log the values of a report."""
        self.add("training", update, get_values(values))

    def evaluated(self, update: int, epoch: int, values: dict[str, float]) -> None:
        """Log the scores of an evaluation."""
        self.add("evaluation", update, values)

    def add(self, group: str, update: int, values: dict[str, float]) -> None:
        """Log numbers after ``update``."""
        raise NotImplementedError


class EventLog(NumbersLog):
    """Common parts of both logs. A subclass creates its records.

    Attributes:
        folder_name: name in the run's folder.
        pattern: of the files that belong to this log.
    """

    folder_name = ""
    pattern = ""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None

    def start(self, run: RunFacts) -> None:
        """Open a file, write the configuration and the history, and remove earlier files."""
        if not run.trains:
            return
        folder = run.folder / self.folder_name
        folder.mkdir(exist_ok=True)
        earlier = list(folder.glob(self.pattern))
        name = f"{int(time.time())}.{platform.node()}.{os.getpid()}.{time.time_ns()}"  # unique
        self._file = open(folder / self.pattern.replace("*", name), "xb")  # noqa: SIM115
        self.begin(self._file)
        self.text("configuration", run.config_text)
        for event in run.history():
            self.scalars(collect_scalars(event["kind"], get_values(event)), event["update"], event["time"])
        self._file.flush()
        for file in earlier:
            with contextlib.suppress(FileNotFoundError):
                file.unlink()

    def add(self, group: str, update: int, values: dict[str, float]) -> None:
        """Write the numbers."""
        if self._file is not None:
            self.scalars(collect_scalars(group, values), update, time.time())
            self._file.flush()

    def end(self, outcome: str) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def begin(self, file: BinaryIO) -> None:
        """Write the beginning of a file."""
        raise NotImplementedError

    def scalars(self, values: dict[str, float], step: int, seconds: float) -> None:
        """Write numbers by their tags; ``seconds`` since 1970."""
        raise NotImplementedError

    def text(self, tag: str, text: str) -> None:
        """Write a text that is shown unchanged."""
        raise NotImplementedError


class TensorBoardLog(EventLog):
    """Events for TensorBoard, in ``tensorboard/``; see https://github.com/tensorflow/tensorboard."""

    requires = {"tensorboard": "tensorboard"}
    folder_name = "tensorboard"
    pattern = "events.out.tfevents.*"

    def begin(self, file: BinaryIO) -> None:
        """Write the beginning of a file."""
        # These modules do not import TensorFlow or PyTorch.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary, self._text_pb = event_pb2, summary_pb2, text_pb
        self._writer = RecordWriter(file)
        self._write(step=0, file_version="brain.Event:2")
        # A running server forgets the data of the earlier file.
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(step=0, session_log=start)

    def scalars(self, values: dict[str, float], step: int, seconds: float) -> None:
        """Write numbers by their tags."""
        value = self._summary.Summary.Value
        summary = self._summary.Summary(value=[value(tag=tag, simple_value=n) for tag, n in values.items()])
        self._write(wall_time=seconds, step=step, summary=summary)

    def text(self, tag: str, text: str) -> None:
        """Write a text."""
        indented = "\n".join(f"    {line}" for line in text.splitlines())  # Markdown for preformatted text
        self._write(step=0, summary=self._text_pb(tag, indented))

    def _write(self, **content: Any) -> None:
        content.setdefault("wall_time", time.time())
        self._writer.write(self._event.Event(**content).SerializeToString())


class VisualDlLog(EventLog):
    """Records for VisualDL, in ``visualdl/``; see https://github.com/PaddlePaddle/VisualDL."""

    requires = {"visualdl": "visualdl"}
    folder_name = "visualdl"
    pattern = "vdlrecords.*.log"

    def begin(self, file: BinaryIO) -> None:
        """Write the beginning of a file."""
        from visualdl.component import base_component
        from visualdl.writer.record_writer import RecordWriter

        self._make = base_component
        self._tags: dict[str, str] = {}
        self._writer = RecordWriter(file)
        self._write(base_component.meta_data(walltime=round(time.time() * 1000)))

    def scalars(self, values: dict[str, float], step: int, seconds: float) -> None:
        """Write numbers by their tags."""
        for tag, value in values.items():
            # VisualDL refuses its own escape character.
            tag = claim_tag(self._tags, tag, tag.replace("%", "percent"))
            self._write(self._make.scalar(tag=tag, value=value, step=step, walltime=round(seconds * 1000)))

    def text(self, tag: str, text: str) -> None:
        """Write a text."""
        self._write(self._make.text(tag=tag, text_string=text, step=0, walltime=round(time.time() * 1000)))

    def _write(self, record: Any) -> None:
        self._writer.write(record.SerializeToString())
