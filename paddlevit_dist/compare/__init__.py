"""Two runs, or several, compared sample by sample, and groups of runs that differ by their seed. An extension: it can
be deleted (see ``extension``).

- ``tables``: what an evaluation leaves of its samples in the run's folder, written and read
- ``scores``: the scores of such tables, of each sort of task
- ``significance``: whether a difference may be chance
- ``pairs``: one table against another: difference, classes, samples that changed
- ``per_sample``: the table of samples of ``evaluate -per_sample``
- ``seeds``: the trainings of ``-seeds``; ``groups``: what they have reached, and how far two groups differ;
  ``group_pairs``: groups and single runs side by side
- ``command``: the command ``compare``; ``formatting``: its lines; ``page``: what its page is filled with, and
  ``page.html.j2``: that page, with ``images`` of samples; ``settings``: keys
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
    """The command compare, -per_sample and -seeds, and a table of samples beside each score."""

    commands = {"compare": "whether runs differ by more than chance, and on which samples"}
    flags = (
        Flag("per_sample", "FILE", "PER_SAMPLE", "run", "with -eval: a row a sample, .csv or .parquet"),
        Flag("seeds", "N", "SEEDS", "training", "train with N seeds, and say their mean"),
    )
    job_key = "SEEDS"

    def run_command(self, name: str, words: list[str]) -> None:
        from .command import run

        run(words)

    def run_job(self, given: Configuration) -> None:
        from .seeds import run

        run(given)

    def callbacks(self, run: Trainer, trains: bool) -> Sequence[Callback]:
        if trains or not run.config["PER_SAMPLE"]:
            return ()
        from .per_sample import PerSample

        return (PerSample(run),)

    def intervals_written(self, file: Path, evaluation: Evaluator, facts: dict[str, Any]) -> None:
        from .tables import write_beside

        write_beside(file, evaluation, facts)

    def results_scored(self, file: Path, scored: ScoreReport, results: str, groups: SampleGroups | None) -> None:
        from .tables import write_scored

        write_scored(file, scored, results, groups)


EXTENSION = CompareExtension()

__all__ = ["EXTENSION"]
