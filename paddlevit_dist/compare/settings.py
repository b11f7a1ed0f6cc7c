"""The keys of a table with a row for each sample, and of a training with several seeds."""

import importlib
import os
from collections.abc import Mapping, Sequence

from yacs.config import CfgNode

from ..extension import extensions
from ..runtime.errors import UserError
from ..runtime.files import read_content
from ..runtime.printing import one_line
from ..settings.every_run import RunSettings
from ..settings.key import COMMAND_LINE, ConfigView, KeySetting, KeyTable, Range
from ..settings.section import PathText, key, rows


class CompareSettings(RunSettings):
    PER_SAMPLE: PathText | None = key(
        None, "file that an evaluation writes with a row for each sample: .csv, or .parquet where pyarrow is installed"
    )
    SEEDS: int | None = key(
        None,
        "train this many times, with SEED, SEED + 1 and so on, in folders of SAVE; the same command again continues",
        Range(low=2, high=1000),
    )


def _check_table(given: ConfigView[CompareSettings]) -> list[str]:
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
    if suffix == ".parquet":
        try:
            importlib.import_module("pyarrow.parquet")
        except ImportError as error:  # also of one that is too new for this numpy
            raise UserError(
                f"{said}: Parquet needs pyarrow (pip install pyarrow), and {one_line(error)}; .csv needs nothing"
            ) from error
    if os.path.lexists(target) and not _is_table(target):
        raise UserError(f"{said}: this file is no table of an earlier evaluation: choose another, or remove it")
    return []


def _is_table(file: str) -> bool:
    """Whether an evaluation has written it, as far as its beginning shows: no spreadsheet of others is replaced."""
    try:
        if file.lower().endswith(".csv"):
            first = read_content(file, 4096).partition(b"\n")[0]
            return first.startswith(b"name,") and first.endswith(b"\r")
        schema = importlib.import_module("pyarrow.parquet").read_schema(file)
        return schema.names[:1] == ["name"] and not schema.metadata  # pandas leaves some
    except (OSError, ValueError):
        return False


def _check_seeds(given: ConfigView[CompareSettings]) -> list[str]:
    values = given.values
    if values.SEEDS is None:
        return []
    for name in ("EVAL", *(one.job_key for one in extensions())):
        if name not in ("", "SEEDS") and values.get(name):
            raise UserError(f"{given['SEEDS']} and {given[name]}: -seeds trains; leave one of them out")
    if values.MODEL.RESUME not in (None, "auto"):
        raise UserError(
            f"{given['SEEDS']} and {given['MODEL.RESUME']}: that is one run; a group of seeds continues by itself with "
            "the same command: leave -resume out"
        )
    return []


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """An evaluation is of one run, however often its recipe trains."""
    seeds = settings.get("SEEDS")
    if values.EVAL and seeds is not None and seeds.source != COMMAND_LINE:
        values.SEEDS = None
    return []


def _check(given: ConfigView[CompareSettings]) -> list[str]:
    return _check_table(given) + _check_seeds(given)


TABLE = KeyTable(
    rows(CompareSettings),
    training=("SEEDS",),
    effects={"start": ("SEEDS",), "place": ("PER_SAMPLE",)},
    resolve_defaults=_complete,
    check=_check,
)
