"""The tables of samples that a search keeps of the evaluations of each trial, and what they say."""

import os
import shutil
from pathlib import Path

from ...core.intervals import ConfidenceInterval
from ...core.runtime.errors import UserError
from ...core.runtime.files import os_errors_as_user_errors
from .groups import find_best, has_evaluation
from .pairs import TablePair
from .tables import EvaluationTable, read_table

REPEAT = "repeat the command to continue"
_TABLE = "scored_samples.npz"


def keep_table(folder: str) -> int | None:
    """Copy the table of a run's last evaluation to ``tables/``; return its epoch if the copy is new."""
    source, tables = Path(folder, _TABLE), Path(folder, "tables")
    if not source.exists():
        return None
    epoch = int(read_table(str(source)).about["of"].removeprefix("epoch "))
    target = _table_file(folder, epoch)
    if target.exists():
        return None
    with os_errors_as_user_errors(target, f"; {REPEAT}"):
        tables.mkdir(exist_ok=True)
        shutil.copyfile(source, tables / "new.npz")  # the source is replaced, not rewritten, so the copy is whole
        os.replace(tables / "new.npz", target)
    return epoch


def _table_file(folder: str, epoch: int) -> Path:
    return Path(folder, "tables", f"epoch_{epoch:04d}.npz")


def compare_at(best: str, folder: str, epoch: int, score: str) -> ConfidenceInterval | None:
    """Return how a run differs in a score from the best one at an epoch; None if it was not evaluated for samples."""
    files = [_table_file(name, epoch) for name in (best, folder)]
    if not all(file.exists() for file in files):
        return None
    first, second = (read_table(str(file)) for file in files)
    pair = TablePair.match(first, second)
    return pair.compute_intervals().difference.get(score)


def read_score(folder: str, score: str) -> tuple[float, int] | None:
    """Return score and epoch of a run's best checkpoint; None if its evaluations do not define the score.

    Raises UserError: it has no evaluation.
    """
    best = find_best(Path(folder), score)
    if best:
        return float(best["value"]), best["epoch"]
    if not has_evaluation(Path(folder)):
        raise UserError(f"{folder} has no evaluation: set VALIDATE_FREQ so that the last epoch is evaluated")
    return None


def require_table(folder: str) -> None:
    """Check that a run has left a table of samples; a UserError says that the metrics of a user's task write none."""
    if not Path(folder, _TABLE).exists():
        raise UserError(
            f"{folder} has no {_TABLE}, from which search compares runs: return TableMetrics from build_metrics "
            "(docs/guides/extending.md)"
        )


def read_best_table(folder: str, score: str) -> EvaluationTable:
    """Read the table of a run's best epoch, or of its last if that one was not copied."""
    best = read_score(folder, score)
    file = Path(folder) if best is None else _table_file(folder, best[1])
    return read_table(str(file) if file.exists() else folder)
