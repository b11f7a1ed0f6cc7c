"""``evaluate -per_sample=FILE``: write a table with a row for each sample, for spreadsheets and notebooks."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...core.distributed import is_main
from ...core.engine.evaluation import EvaluationObserver
from ...core.engine.metrics_check import compute_columns
from ...core.engine.trainer import Trainer
from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file
from ...core.runtime.printing import cell, utf8
from ...core.tasks.metrics import PerSampleMetrics
from ...core.tasks.protocols import get_sample_name
from ...core.tasks.sample_groups import GROUP
from .settings import CompareSettings

_DIGITS = 6


class PerSampleWriter(EvaluationObserver):
    """Write the table of an evaluation. Raises UserError if it will have no results for each sample."""

    def __init__(self, run: Trainer) -> None:
        self._run, self._target = run, Path(str(cast(CompareSettings, run.config).PER_SAMPLE))
        run.evaluator.keeps_table = True
        if not run.eval_dataset.labeled:
            raise UserError(f"-per_sample: the samples of {run.config.DATA.SPLIT} have no labels: drop -per_sample")
        if not isinstance(run.task.build_metrics(), PerSampleMetrics):
            raise UserError(self._format_unsupported())

    def after_evaluate(self, facts: dict[str, Any]) -> None:
        """Write the table. Raises UserError: the file cannot be written, or the metrics have no row for each sample."""
        if not is_main():
            return
        table, samples = self._run.evaluator.table, self._run.eval_dataset
        if table is None:
            raise UserError(self._format_unsupported())
        names = [samples.name(index) for index in table.indices.tolist()]
        columns = compute_columns(table.metrics, table.columns, len(names))
        rounded = {name: [_to_plain(value) for value in column] for name, column in columns.items()}
        if table.groups is not None:
            rounded = {GROUP: table.groups.names.tolist(), **rounded}
        encode = _encode_parquet if self._target.suffix.lower() == ".parquet" else _encode_csv
        content = encode({"name": names, **rounded})
        replaced = " (replaces an earlier one)" if self._target.exists() else ""
        with atomic_file(self._target) as file:
            file.write(content)
        noun = get_sample_name(self._run.task, samples)
        self._run.run_log.log_and_print(f"wrote a row for each of {len(names):,} {noun}: {self._target}{replaced}")

    def _format_unsupported(self) -> str:
        return (
            f"-per_sample: the metrics of task {self._run.config.TASK} have no results for each sample: return "
            "TableMetrics from build_metrics (docs/guides/extending.md), or remove -per_sample"
        )


def _to_plain(value: object) -> object:
    """Convert a value to a plain one: floats to six digits, and to None if they are not finite."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None
    return value


def _encode_csv(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Encode columns as CSV after RFC 4180: commas, quotes if needed, CRLF.

    UTF-8 without a byte order mark, which ``csv.DictReader`` would add to the first column's name. Text that a
    spreadsheet would interpret as a formula is prefixed with an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(map(cell, columns))
    writer.writerows(map(cell, row) for row in zip(*columns.values()))
    return text.getvalue().encode("utf-8")


def _encode_parquet(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Encode columns as Parquet; bytes of file names that are not UTF-8 are replaced."""
    import pyarrow
    from pyarrow import parquet

    content = {utf8(name): [utf8(value) for value in column] for name, column in columns.items()}
    target = io.BytesIO()
    parquet.write_table(pyarrow.table(content), target)
    return target.getvalue()
