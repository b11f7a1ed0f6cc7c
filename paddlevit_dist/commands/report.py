"""``python -m paddlevit_dist report RUN [RUN …]``: one HTML file about runs. Without Paddle and without their data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List

from ..observe.report import write_page
from ..printing import one_line
from .parser import CommandParser, path

_NAME = "report.html"


def run(arguments: List[str]) -> None:
    """Write the report of one or several runs.

    Raises:
        UserError: one of the folders is no run's, or the file cannot be written.
    """
    parser = CommandParser("report", "Write one HTML file about one or several runs, from what is in their folders.")
    parser.add_argument("runs", metavar="RUN", nargs="+", type=path, help="output folder of a training or evaluation")
    parser.option(
        "output", None, f"file to write; default: {_NAME} in the run's folder, of several runs in this folder", path
    )
    given = parser.parse_args(arguments)
    folders = [Path(folder) for folder in given.runs]
    target = Path(given.output) if given.output else Path(folders[0] if len(folders) == 1 else ".", _NAME)
    if target.is_dir():
        target = target / _NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    written = write_page(folders, target)
    print(one_line(f"{written}, {os.path.getsize(written) / 1e6:.1f} MB: open it in a browser"))
