"""``paddlevit-dist report RUN [RUN …]``: one HTML file about runs. Without Paddle and without their data."""

import os
from pathlib import Path

from ..commands.parser import CommandParser, path
from ..runtime.errors import UserError
from ..runtime.files import explain_write_error
from ..runtime.printing import one_line
from .page import PAGE, write_page


def run(arguments: list[str]) -> None:
    """Write the report of one or several runs.

    Raises:
        UserError: one of the folders is no run's, or the file cannot be written.
    """
    about = "Write one HTML file about one or several runs, from what is in their folders."
    parser = CommandParser("report", about, ("output/mine", "output/mine output/mine-2 -output=both.html"))
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", type=path, help="output folder of a training or evaluation, or of seeds"
    )
    parser.option(
        "output", None, f"file to write; default: {PAGE} in the run's folder, of several runs in this folder", path
    )
    given = parser.parse_args(arguments)
    folders = [Path(folder) for folder in given.runs]
    target = Path(given.output) if given.output else Path(folders[0] if len(folders) == 1 else ".", PAGE)
    if target.is_dir():
        target = target / PAGE
    try:
        written = write_page(folders, target)
    except OSError as error:
        raise UserError(f"report: {target}: {explain_write_error(error)}") from error
    print(one_line(f"{written}, {os.path.getsize(written) / 1e6:.1f} MB: open it in a browser"))
