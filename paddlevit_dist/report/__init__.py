"""Write one HTML file about one or several runs from their folders, without Paddle, data or network.

This is an extension: the folder can be deleted (see ``extension``).

- ``command``: the command ``report``; ``settings``: keys; ``callback``: writes figures and report during a run
- ``store``: the file with the figures of a run
- ``runs``: reads the folder of a run, even if it is damaged
- ``curves``: lay out charts; ``page``: the content of the page as plain data, with its sections in ``render``
- ``report.html.j2``: the page; ``parts.html.j2``: a macro for each kind of figure and part
- ``report.css``, ``report.js``, ``matrix.js``, ``viewer.js``: styles and scripts
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ..extension import Extension

if TYPE_CHECKING:
    from ..engine.trainer import Trainer
    from ..settings.every_run import RunSettings
    from ..tasks.callback import Callback
    from .settings import ReportSettings


class ReportExtension(Extension):
    """Command ``report``, and ``report.html`` at the end of a run."""

    commands = {"report": "write one HTML file about one or several runs: curves, settings, wrong predictions"}

    def run_command(self, name: str, words: list[str]) -> None:
        """Run ``report``."""
        from .command import run

        run(words)

    def callbacks(self, run: Trainer, trains: bool) -> Sequence[Callback]:
        """Return the callback of a run with REPORT."""
        if not run.config["REPORT"]:
            return ()
        from .callback import ReportCallback

        return (ReportCallback(run),)

    def run_failed(self, config: RunSettings, folder: Path, began: float) -> None:
        """Write the report of a run that has failed."""
        from .page import write_last_page

        settings = cast("ReportSettings", config)  # a run has the keys of all extensions
        write_last_page(settings, folder, began)


EXTENSION = ReportExtension()

__all__ = ["EXTENSION"]
