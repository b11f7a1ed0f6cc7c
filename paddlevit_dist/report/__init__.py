"""One HTML file about one or several runs, from what is in their folders: without Paddle, data or network. An
extension: it can be deleted (see ``extension``).

- ``command``: the command ``report``; ``settings``: keys; ``callback``: when a run writes figures and report
- ``store``: the figures of a run in a file of its folder
- ``runs``: what a run's folder holds, however damaged
- ``curves``: lines over updates, and where they are drawn; ``page``: everything together as plain data, its sections
  listed in ``render``
- ``report.html.j2``: the page; ``parts.html.j2``: each kind of figure and whatever else a section has
- ``report.css``, ``report.js``, ``matrix.js``, ``viewer.js``: how it looks, and what moves
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..extension import Extension

if TYPE_CHECKING:
    from ..engine.trainer import Trainer
    from ..settings.every_run import RunSettings
    from ..tasks.callback import Callback


class ReportExtension(Extension):
    """The command report, and report.html at the end of a run."""

    commands = {"report": "one HTML file about one or several runs: curves, settings, mistakes"}

    def run_command(self, name: str, words: list[str]) -> None:
        from .command import run

        run(words)

    def callbacks(self, run: Trainer, trains: bool) -> Sequence[Callback]:
        if not run.config["REPORT"]:
            return ()
        from .callback import ReportCallback

        return (ReportCallback(run),)

    def run_failed(self, config: RunSettings, folder: Path, began: float) -> None:
        from .page import write_last_page

        write_last_page(config, folder, began)


EXTENSION = ReportExtension()

__all__ = ["EXTENSION"]
