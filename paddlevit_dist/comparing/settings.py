"""The key of a table with a row for each sample."""

import importlib.util
import os

from ..config.key import Given, Table, optional
from ..runtime.errors import UserError

_KEY = optional(
    "PER_SAMPLE",
    "path",
    "file that an evaluation writes with a row for each sample: .csv, or .parquet where pyarrow is installed",
)


def _check(given: Given) -> list[str]:
    target = given.values.PER_SAMPLE
    if target is None:
        return []
    said, folder = given["PER_SAMPLE"], os.path.dirname(target) or "."
    suffix = os.path.splitext(target)[1].lower()
    if not given.values.EVAL:
        raise UserError(f"{said} is for an evaluation: add -eval, or leave it out")
    if suffix not in (".csv", ".parquet"):
        raise UserError(f"{said}: expected a file that ends in .csv or .parquet")
    if not os.path.isdir(folder):
        raise UserError(f"{said}: there is no folder {folder}: create it, or choose another")
    if os.path.isdir(target) or not os.access(folder, os.W_OK):
        what = "it is a folder" if os.path.isdir(target) else f"{folder} cannot be written to"
        raise UserError(f"{said}: {what}: choose another file")
    if suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UserError(
            f"{said}: Parquet needs pyarrow (pip install pyarrow), which is not installed; .csv needs nothing"
        )
    return []


TABLE = Table((_KEY,), effects={"place": ("PER_SAMPLE",)}, check=_check)
