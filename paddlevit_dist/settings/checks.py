"""Checks of values against one another: task, dataset and model; keys and the task that reads them; each table's."""

from collections.abc import Iterator

from ..registry import (
    BOX_LABELS,
    CLASS_LABELS,
    MASK_LABELS,
    RECIPES,
    TABLES,
    annotation_type,
    common_tables,
    custom_tables,
    find_package,
    find_readers,
    list_names,
)
from ..runtime.errors import UserError
from ..runtime.files import is_address
from .every_run import RunSettings
from .key import COMMAND_LINE, ConfigView, KeySetting, KeyTable, covers, get_value
from .table import find_keys, find_tables, keys

_MAX_LISTED = 5
_NETWORKS = {BOX_LABELS: ("finds objects", "detection"), MASK_LABELS: ("labels pixels", "image_segmentation")}
_SAVED_SHARE = 0.8  # of the engine's keys: a file with more of them was saved by a run


def check_task_dataset_model(config: ConfigView[RunSettings]) -> None:
    """Check that task, dataset and model fit together; a user's own fit anything.

    Raises:
        UserError: they do not fit.
    """
    values = config.values
    task = find_package("task", values.TASK)
    for name, kind in (("DATA.DATASET", "dataset"), ("MODEL.NAME", "model")):
        package = find_package(kind, get_value(values, name))
        if task is not None and package is not None and task != package:
            others = ", ".join(other for other in list_names(kind) if find_package(kind, other) == task)
            fitting = f", or one of {others}" if kind == "dataset" else ""
            raise UserError(
                f"{config[name]} is for {package}, {config['TASK']} for {task}: choose a recipe for {package}, such as "
                f"-cfg={RECIPES.get(get_value(values, name), RECIPES[package])}{fitting}"
            )
    if task == "images":
        _check_annotation_types(config)
    path, dataset = values.DATA.DATA_PATH, values.DATA.DATASET
    if path is not None and is_address(path) and dataset != "tar" and find_package("dataset", dataset) is not None:
        raise UserError(
            f"{config['DATA.DATA_PATH']}: dataset {dataset} reads files of this machine: add -dataset=tar for tar "
            "files of images with classes, or copy other data to this machine"
        )


def _check_annotation_types(config: ConfigView[RunSettings]) -> None:
    """Check dataset and model against the task's type of annotations: classes, boxes or label maps."""
    reads = annotation_type("task", config.values.TASK)
    dataset, model = config.values.DATA.DATASET, config.values.MODEL.NAME
    holds = annotation_type("dataset", dataset)
    if holds is not None and holds != reads:
        fitting = ", ".join(name for name in list_names("dataset") if annotation_type("dataset", name) == reads)
        recipe = RECIPES.get(dataset, RECIPES.get(holds, RECIPES["images"]))
        raise UserError(
            f"{config['DATA.DATASET']} contains {holds}, but {config['TASK']} reads {reads}: choose a recipe for "
            f"{holds}, such as -cfg={recipe}, or one of {fitting}"
        )
    learns = annotation_type("model", model)
    if learns is not None and learns not in (CLASS_LABELS, reads):
        does, task = _NETWORKS[learns]
        raise UserError(
            f"{config['MODEL.NAME']} {does}, but {config['TASK']} does not: choose a recipe for {task}, such as "
            f"-cfg={RECIPES[learns]}"
        )


def check(config: ConfigView[RunSettings]) -> list[str]:
    """Check the merged values and return notices.

    Raises:
        UserError: a key was set that the task does not read, or two values contradict each other.
    """
    task = config.values.TASK
    tables = find_tables(config.values)
    if task not in TABLES:  # a user's task, which may read keys of any table
        values = config.values
        chosen = [("task", task), ("dataset", values.DATA.DATASET), ("model", values.MODEL.NAME)]
        tables = [*common_tables(), *(table for kind, name in chosen for table in custom_tables(kind, name))]
    notices = _find_foreign_keys(config)
    for table in tables:
        if table.applies(config.values):
            notices += table.check(config)
    return [*notices, *_report_ignored(config, tables)]


def _find_saved_files(config: ConfigView[RunSettings]) -> set[str]:
    """Return the files that a run has saved: they contain every key, so their defaults are not choices of the user."""
    names = [key.name for table in common_tables() for key in table.keys]
    sources = [config.settings[name].source for name in names if name in config]
    return {source for source in sources if sources.count(source) > _SAVED_SHARE * len(names)} - {COMMAND_LINE}


def _find_foreign_keys(config: ConfigView[RunSettings]) -> list[str]:
    """Return notices about keys of BASE files that only other tasks read.

    Raises:
        UserError: such a key was set for this run.
    """
    task = config.values.TASK
    readable, whole = find_keys(config.values), _find_saved_files(config)
    wrong = [setting for name, setting in config.settings.items() if name not in readable]
    refused = [setting for setting in wrong if not setting.is_base and setting.source not in whole]
    if refused:
        more = ", ".join(f"{setting.name} ({setting.origin})" for setting in refused[1 : 1 + _MAX_LISTED])
        more += f" and {len(refused) - 1 - _MAX_LISTED} more" if len(refused) > 1 + _MAX_LISTED else ""
        raise UserError(
            f"{refused[0].origin}: {refused[0].name} is read by {_format_readers(refused[:1])}, not by {task}: "
            "remove it" + (f", and also {more}" if more else "")
        )
    notices = []
    for source, group in _group_by_source(wrong).items():
        names = f"{len(group)} keys" if source in whole else ", ".join(setting.name for setting in group)
        notices.append(f"{source}: no effect: {names}: read by {_format_readers(group)}, not by {task}")
    return notices


def _group_by_source(settings: list[KeySetting]) -> dict[str, list[KeySetting]]:
    sources: dict[str, list[KeySetting]] = {}
    for setting in settings:
        sources.setdefault(setting.source, []).append(setting)
    return sources


def _format_readers(settings: list[KeySetting]) -> str:
    readers = dict.fromkeys(reader for setting in settings for reader in find_readers(setting.name))
    parts = []
    for kind in ("task", "dataset", "model"):
        names = [name for other, name in readers if other == kind]
        parts += [f"{kind}{'s' if len(names) > 1 else ''} {', '.join(names)}"] if names else []
    return ", ".join(parts) or "no task"


def _report_ignored(config: ConfigView[RunSettings], tables: list[KeyTable]) -> Iterator[str]:
    """Yield one line per key that was set and that this run does not read.

    Training keys of a recipe in an evaluation, and keys of a BASE file that another file overrides, are not reported:
    recipes and BASE are made for that.
    """
    whole = _find_saved_files(config)
    skipped = set()  # reported, or not worth a line
    if config.values.EVAL:
        skipped = {name for table in tables for name in table.training_names()}
        for name, setting in config.settings.items():
            if name in skipped and setting.source == COMMAND_LINE:
                yield f"{config[name]}: no effect: it is for training, and {config['EVAL']}"
    defaults = keys()
    for rule in [rule for table in tables for rule in table.find_ignored(config)]:
        condition = config.settings.get(rule.condition)
        for name, setting in config.settings.items():
            if name in skipped or setting.is_implied or not covers(rule.names, name):
                continue
            skipped.add(name)
            is_overridden = setting.is_base and condition is not None and condition.source != setting.source
            if is_overridden or (setting.source in whole and setting.value == defaults[name].default):
                continue
            yield f"{config[name]}: no effect: {rule.reason.format(config[rule.condition])}"
