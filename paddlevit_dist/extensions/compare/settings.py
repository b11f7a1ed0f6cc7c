"""Configuration keys of the table of samples, and of training with several seeds."""

import importlib
import os
from collections.abc import Mapping, Sequence

from yacs.config import CfgNode

from ...core.registry.names import REGISTRY
from ...core.runtime.errors import UserError
from ...core.runtime.files import read_content
from ...core.runtime.printing import one_line
from ...core.settings.every_run import RunSettings
from ...core.settings.key import Flag, PathText, Range, key, rows
from ...core.settings.table import COMMAND_LINE, ConfigView, KeySetting, KeyTable


class CompareSettings(RunSettings):
    """Keys of the table of samples, and of training with several seeds."""

    PER_SAMPLE: PathText | None = key(
        None,
        "file for the results of each evaluated sample: .csv, or .parquet if pyarrow is installed",
        effect="place",
        flag=Flag("per_sample", "FILE", "run", 6, "with -eval: a row per sample (.csv, .parquet)"),
    )
    SEEDS: int | None = key(
        None,
        "number of training runs, with SEED, SEED + 1 and so on, in folders of SAVE; repeat the command to continue",
        Range(low=2, high=1000),
        training_only=True,
        effect="start",
        flag=Flag("seeds", "N", "training", 10, "train with N seeds and print the mean score"),
    )


def _check_table(config: ConfigView[CompareSettings]) -> list[str]:
    target = config.values.PER_SAMPLE
    if target is None:
        return []
    setting, folder = config["PER_SAMPLE"], os.path.dirname(target) or "."
    suffix = os.path.splitext(target)[1].lower()
    if not config.values.EVAL:
        raise UserError(f"{setting} is for an evaluation: add -eval, or drop -per_sample")
    if suffix not in (".csv", ".parquet"):
        raise UserError(f"{setting}: expected a file that ends in .csv or .parquet")
    if not os.path.isdir(folder):
        raise UserError(f"{setting}: there is no folder {folder}: create it, or choose another")
    if os.path.isdir(target) or not os.access(folder, os.W_OK):
        problem = "it is a folder" if os.path.isdir(target) else f"{folder} cannot be written to"
        raise UserError(f"{setting}: {problem}: choose another file")
    if suffix == ".parquet":
        try:
            importlib.import_module("pyarrow.parquet")
        except ImportError as error:  # also if pyarrow does not support the installed NumPy
            raise UserError(
                f"{setting}: Parquet needs pyarrow (pip install pyarrow), but {one_line(error)}; or use .csv"
            ) from error
    if os.path.lexists(target) and not _is_table(target):
        raise UserError(f"{setting}: the file was not written by an earlier evaluation: choose another, or remove it")
    return []


def _is_table(file: str) -> bool:
    """Return whether the start of a file shows that an evaluation has written it, so that it may be replaced."""
    try:
        if file.lower().endswith(".csv"):
            first = read_content(file, 4096).partition(b"\n")[0]
            return first.startswith(b"name,") and first.endswith(b"\r")
        schema = importlib.import_module("pyarrow.parquet").read_schema(file)
        return schema.names[:1] == ["name"] and not schema.metadata  # pandas writes metadata
    except (OSError, ValueError):
        return False


def _check_seeds(config: ConfigView[CompareSettings]) -> list[str]:
    values = config.values
    if values.SEEDS is None:
        return []
    for name in ("EVAL", *REGISTRY.jobs):
        if name != "SEEDS" and values.get(name):
            raise UserError(f"{config['SEEDS']} and {config[name]}: -seeds trains; remove one of them")
    if values.MODEL.RESUME not in (None, "auto"):
        raise UserError(
            f"{config['SEEDS']} and {config['MODEL.RESUME']}: -resume continues one run; to continue a group of seeds, "
            "repeat its command without -resume"
        )
    return []


def _resolve_defaults(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """Ignore the recipe's SEEDS in an evaluation, which is of one run."""
    seeds = settings.get("SEEDS")
    if values.EVAL and seeds is not None and seeds.source != COMMAND_LINE:
        values.SEEDS = None
    return []


def _check(config: ConfigView[CompareSettings]) -> list[str]:
    return _check_table(config) + _check_seeds(config)


TABLE = KeyTable(rows(CompareSettings), resolve_defaults=_resolve_defaults, check=_check, is_optional=True)
