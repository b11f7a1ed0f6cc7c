"""Command ``paddlevit-dist report RUN [RUN …]``: write one HTML file about runs, without Paddle and without data."""

import os
from pathlib import Path

from ...core.commands.parser import CommandParser, path
from ...core.runtime.errors import UserError
from ...core.runtime.files import explain_write_error
from ...core.runtime.printing import one_line
from .page import PAGE, write_page


def run(arguments: list[str]) -> None:
    """Write the report of one or several runs.

    Raises:
        UserError: if a folder does not contain a run, or the file cannot be written.
    """
    about = "Write one HTML file about one or several runs from the files in their folders."
    parser = CommandParser("report", about, ("output/mine", "output/mine output/mine-2 -output=both.html"))
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", type=path, help="output folder of a training run, an evaluation or -seeds"
    )
    parser.option("output", None, f"file to write; default: {PAGE} in the run's folder, or here for several runs", path)
    options = parser.parse_args(arguments)
    folders = [Path(folder) for folder in options.runs]
    target = Path(options.output) if options.output else Path(folders[0] if len(folders) == 1 else ".", PAGE)
    if target.is_dir():
        target = target / PAGE
    try:
        written = write_page(folders, target)
    except OSError as error:
        raise UserError(f"report: {target}: {explain_write_error(error)}") from error
    print(one_line(f"{written}, {os.path.getsize(written) / 1e6:.1f} MB: open it in a browser"))
