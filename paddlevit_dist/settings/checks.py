"""Checks of values that are individually valid and must fit together: task, dataset and model; keys and the task
that should read them; and what each table checks itself."""

from collections.abc import Iterator

from ..registry import (
    BOX_LABELS,
    CLASS_LABELS,
    MASK_LABELS,
    RECIPES,
    TABLES,
    annotation_type,
    find_package,
    find_readers,
    list_names,
    own_tables,
    tables_of_every_run,
)
from ..runtime.errors import UserError
from .every_run import RunSettings
from .key import COMMAND_LINE, ConfigView, KeySetting, KeyTable, covers, get_value
from .table import find_keys, find_tables, keys

_MOST_TOLD = 5
_NETWORKS = {BOX_LABELS: ("finds objects", "detection"), MASK_LABELS: ("labels pixels", "image_segmentation")}
_SHARE_OF_A_WHOLE = 0.8  # of the engine's keys, which nobody sets by hand


def check_task_dataset_model(given: ConfigView[RunSettings]) -> None:
    """Task, dataset and model have to be of one kind; a user's own fit anything.

    Raises:
        UserError: they are not.
    """
    values = given.values
    task = find_package("task", values.TASK)
    for name, kind in (("DATA.DATASET", "dataset"), ("MODEL.NAME", "model")):
        package = find_package(kind, get_value(values, name))
        if task is not None and package is not None and task != package:
            others = ", ".join(other for other in list_names(kind) if find_package(kind, other) == task)
            fitting = f", or one of {others}" if kind == "dataset" else ""
            raise UserError(
                f"{given[name]} is for {package}, {given['TASK']} for {task}: choose a recipe for {package}, such as "
                f"-cfg={RECIPES.get(get_value(values, name), RECIPES[package])}{fitting}"
            )
    if task == "images":
        _check_contents(given)


def _check_contents(given: ConfigView[RunSettings]) -> None:
    """Whole images, boxes and label maps share a package and neither data nor networks; what a network for either is,
    its task says."""
    reads = annotation_type("task", given.values.TASK)
    dataset, model = given.values.DATA.DATASET, given.values.MODEL.NAME
    holds = annotation_type("dataset", dataset)
    if holds is not None and holds != reads:
        fitting = ", ".join(name for name in list_names("dataset") if annotation_type("dataset", name) == reads)
        recipe = RECIPES.get(dataset, RECIPES.get(holds, RECIPES["images"]))
        raise UserError(
            f"{given['DATA.DATASET']} holds {holds}, but {given['TASK']} reads {reads}: choose a recipe for {holds}, "
            f"such as -cfg={recipe}, or one of {fitting}"
        )
    learns = annotation_type("model", model)
    if learns is not None and learns not in (CLASS_LABELS, reads):
        does, task = _NETWORKS[learns]
        raise UserError(
            f"{given['MODEL.NAME']} {does}, but {given['TASK']} does not: choose a recipe for {task}, such as "
            f"-cfg={RECIPES[learns]}"
        )


def check(given: ConfigView[RunSettings]) -> list[str]:
    """Check the merged values and return notices.

    Raises:
        UserError: a key was set that the task does not read, or two values contradict each other.
    """
    task = given.values.TASK
    tables = find_tables(given.values)
    if task not in TABLES:  # nobody knows how it reads the rest
        values = given.values
        chosen = [("task", task), ("dataset", values.DATA.DATASET), ("model", values.MODEL.NAME)]
        tables = [*tables_of_every_run(), *(table for kind, name in chosen for table in own_tables(kind, name))]
    notices = _foreign(given)
    for table in tables:
        notices += table.check(given)
    return [*notices, *_find_unused(given, tables)]


def _whole_files(given: ConfigView[RunSettings]) -> set[str]:
    """The sources that were written by a run: they hold every key, and nobody chose the defaults."""
    names = [key.name for table in tables_of_every_run() for key in table.keys]
    sources = [given.settings[name].source for name in names if name in given]
    return {source for source in sources if sources.count(source) > _SHARE_OF_A_WHOLE * len(names)} - {COMMAND_LINE}


def _foreign(given: ConfigView[RunSettings]) -> list[str]:
    """Notices about keys of BASE files that another task reads; those that were set for this very run are refused."""
    task = given.values.TASK
    known, whole = find_keys(given.values), _whole_files(given)
    wrong = [setting for name, setting in given.settings.items() if name not in known]
    refused = [setting for setting in wrong if not setting.is_base and setting.source not in whole]
    if refused:
        more = ", ".join(f"{setting.name} ({setting.place})" for setting in refused[1 : 1 + _MOST_TOLD])
        more += f" and {len(refused) - 1 - _MOST_TOLD} more" if len(refused) > 1 + _MOST_TOLD else ""
        raise UserError(
            f"{refused[0].place}: {refused[0].name} is read by {_readers(refused[:1])}, not by {task}: leave it out"
            + (f", and so {more}" if more else "")
        )
    notices = []
    for source, own in _by_source(wrong).items():
        names = f"{len(own)} keys" if source in whole else ", ".join(setting.name for setting in own)
        notices.append(f"{source}: no effect: {names}: read by {_readers(own)}, not by {task}")
    return notices


def _by_source(settings: list[KeySetting]) -> dict[str, list[KeySetting]]:
    sources: dict[str, list[KeySetting]] = {}
    for setting in settings:
        sources.setdefault(setting.source, []).append(setting)
    return sources


def _readers(settings: list[KeySetting]) -> str:
    readers = dict.fromkeys(reader for setting in settings for reader in find_readers(setting.name))
    said = []
    for kind in ("task", "dataset", "model"):
        names = [name for other, name in readers if other == kind]
        said += [f"{kind}{'s' if len(names) > 1 else ''} {', '.join(names)}"] if names else []
    return ", ".join(said) or "no task"


def _find_unused(given: ConfigView[RunSettings], tables: list[KeyTable]) -> Iterator[str]:
    """One line per key that was set and that this run does not read.

    Nothing is said of a recipe's training keys in an evaluation, nor of a BASE file's where another file has chosen
    otherwise: that is what recipes and BASE are for.
    """
    whole = _whole_files(given)
    passed = set()  # reported, or not worth it
    if given.values.EVAL:
        passed = {name for table in tables for name in table.of_training()}
        for name, setting in given.settings.items():
            if name in passed and setting.source == COMMAND_LINE:
                yield f"{given[name]}: no effect: it is for training, and {given['EVAL']}"
    defaults = keys()
    for rule in [rule for table in tables for rule in table.find_ignored(given)]:
        because = given.settings.get(rule.because)
        for name, setting in given.settings.items():
            if name in passed or setting.is_implied or not covers(rule.names, name):
                continue
            passed.add(name)
            is_overridden = setting.is_base and because is not None and because.source != setting.source
            if is_overridden or (setting.source in whole and setting.value == defaults[name].default):
                continue
            yield f"{given[name]}: no effect: {rule.why.format(given[rule.because])}"
