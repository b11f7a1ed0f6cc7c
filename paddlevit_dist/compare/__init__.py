"""Compare runs sample by sample, and compare groups of runs that differ by their seed.

This is an extension: the folder can be deleted (see ``extension``).

- ``tables``: writes and reads per-sample results of an evaluation in the run's folder
- ``scores``: scores of these tables, for each kind of task
- ``significance``: permutation tests, McNemar's test, Holm's correction
- ``pairs``: compares two tables: difference, classes, changed samples
- ``per_sample``: the table of samples of ``evaluate -per_sample``
- ``seeds``: the training runs of ``-seeds``; ``groups``: statistics of their scores; ``group_pairs``: compares groups
  and single runs
- ``command``: the command ``compare``; ``formatting``: its lines; ``page`` and ``page.html.j2``: its page, with
  ``images`` of samples; ``settings``: keys
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..extension import Extension, Flag

if TYPE_CHECKING:
    from ..commands.scored import ScoreReport
    from ..engine.evaluation import Evaluator
    from ..engine.trainer import Trainer
    from ..settings import Configuration
    from ..tasks.callback import Callback
    from ..tasks.sample_groups import SampleGroups


class CompareExtension(Extension):
    """Command ``compare``, flags ``-per_sample`` and ``-seeds``, and the table of samples of each evaluation."""

    commands = {"compare": "test whether runs differ by more than chance, and list the samples on which they differ"}
    flags = (
        Flag("per_sample", "FILE", "PER_SAMPLE", "run", "with -eval: write a row per sample, .csv or .parquet"),
        Flag("seeds", "N", "SEEDS", "training", "train with N seeds and print the mean score"),
    )
    job_key = "SEEDS"

    def run_command(self, name: str, words: list[str]) -> None:
        """Run ``compare``."""
        from .command import run

        run(words)

    def run_job(self, given: Configuration) -> None:
        """Train with several seeds."""
        from .seeds import run

        run(given)

    def callbacks(self, run: Trainer, trains: bool) -> Sequence[Callback]:
        """Return the callback of an evaluation with ``-per_sample``."""
        if trains or not run.config["PER_SAMPLE"]:
            return ()
        from .per_sample import PerSampleWriter

        return (PerSampleWriter(run),)

    def intervals_written(self, file: Path, evaluation: Evaluator, facts: dict[str, Any]) -> None:
        """Write the table of samples of an evaluation."""
        from .tables import write_evaluated

        write_evaluated(file, evaluation, facts)

    def results_scored(self, file: Path, scored: ScoreReport, results: str, groups: SampleGroups | None) -> None:
        """Write the table of samples of results from another program."""
        from .tables import write_scored

        write_scored(file, scored, results, groups)


EXTENSION = CompareExtension()

__all__ = ["EXTENSION"]
