"""The smallest form of every benchmark, ``--smallest``: the same program on sizes at which it ends after seconds.

Its figures mean nothing; it shows that the program still runs. The option is taken from the command line here, and an
environment variable hands it to the processes that a benchmark starts. Needs nothing of this repository: a peer's
interpreter reads the same sizes.
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import TypeVar

OPTION, VARIABLE = "--smallest", "BENCHMARK_SMALLEST"
if OPTION in sys.argv[1:]:
    sys.argv.remove(OPTION)
    os.environ[VARIABLE] = "1"
IS_SMALLEST = os.environ.get(VARIABLE) == "1"

Size = TypeVar("Size")


def sized(full: Size, smallest: Size) -> Size:
    """A number of samples, rounds, pixels or the like: in full, and in the smallest form."""
    return smallest if IS_SMALLEST else full


def lacks(what: str) -> SystemExit:
    """To be raised, with the one line of a benchmark that cannot be run here."""
    return SystemExit(f"{Path(sys.argv[0]).name} needs {what}")


def need(*packages: str) -> None:
    """Raises SystemExit with one line: packages are not installed."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise lacks(f"{', '.join(missing)}: not installed here")


SHALLOW = sized({}, {"depth": 1})  # a vision transformer's, for create_model
