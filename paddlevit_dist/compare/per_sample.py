"""``evaluate -per_sample=FILE``: a table with a row for each sample, for spreadsheets and notebooks."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..distributed import is_main
from ..engine.trainer import Trainer
from ..runtime.errors import UserError
from ..runtime.files import atomic_file
from ..runtime.printing import cell, utf8
from ..tasks.callback import Callback
from ..tasks.metrics import Metrics
from ..tasks.sample_groups import GROUP
from .settings import CompareSettings

_DIGITS = 6


class PerSample(Callback):
    """Writes the table of an evaluation. Every rank has one."""

    on_every_rank = True

    def __init__(self, run: Trainer) -> None:
        self._run, self._target = run, Path(str(cast(CompareSettings, run.config).PER_SAMPLE))
        run.evaluation.keeps_table = True

    def evaluation_started(self, is_shown: bool) -> None:
        """Raises:
        UserError: nothing will be known of the samples.
        """
        config = self._run.config
        if not is_shown:
            raise UserError(
                f"-per_sample: the samples of {config.DATA.SPLIT} have no labels to compare with: leave it out"
            )
        kind = type(self._run.task.build_metrics())
        if not issubclass(kind, Metrics) or kind.per_sample is Metrics.per_sample:
            raise UserError(self._nothing_kept())

    def evaluation_done(self, facts: dict[str, Any]) -> None:
        """Raises:
        UserError: the file system refuses, or the metrics have no row for each sample.
        """
        if not is_main():
            return
        table, samples = self._run.evaluation.table, self._run.evaluated
        if table is None:
            raise UserError(self._nothing_kept())
        names = [samples.name(index) for index in table.indices.tolist()]
        columns = table.metrics.columns(table.columns)
        rounded = {name: [_plain(value) for value in column] for name, column in columns.items()}
        if table.groups is not None:
            rounded = {GROUP: table.groups.names.tolist(), **rounded}
        write = _parquet if self._target.suffix.lower() == ".parquet" else _csv
        content = write({"name": names, **rounded})
        replaced = " (replaces an earlier one)" if self._target.exists() else ""
        with atomic_file(self._target) as file:
            file.write(content)
        self._run.record.log_and_print(
            f"a row for each of {len(names):,} {self._run.task.sample_name}: {self._target}{replaced}"
        )

    def _nothing_kept(self) -> str:
        return (
            f"-per_sample: the metrics of task {self._run.config.TASK} keep nothing of each sample: give them "
            "per_sample and bootstrap_values (docs/explanation/scoring_and_confidence_intervals.md), or drop the flag"
        )


def _plain(value: Any) -> Any:
    """Text, truth value, number with six digits, or None where there is none."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None
    return value


def _csv(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """After RFC 4180: commas, quotes where they are needed, CRLF. UTF-8 without a byte order mark, which would
    become a part of the first column's name for ``csv.DictReader``; a text that a spreadsheet would take for a formula
    has an apostrophe before it."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(map(cell, columns))
    writer.writerows(map(cell, row) for row in zip(*columns.values()))
    return text.getvalue().encode("utf-8")


def _parquet(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """The same values; texts as they are, but for bytes of file names that are no UTF-8."""
    import pyarrow
    from pyarrow import parquet

    content = {utf8(name): [utf8(value) for value in column] for name, column in columns.items()}
    target = io.BytesIO()
    parquet.write_table(pyarrow.table(content), target)
    return target.getvalue()
