"""The names of task, dataset and model: their spelling, the dataset at a path, and whether the three fit together.

``accepted`` are the settings that count, by name: the last one of each key.
"""

import dataclasses
import os
from collections.abc import Sequence

from yacs.config import CfgNode

from ..registry import lookup
from ..registry.extension_points import GUESS_OF_PACKAGE
from ..registry.lookup import annotation_type, annotation_types, find_package, is_bundled, is_weights_name, list_names
from ..registry.manifest import CLASS_LABELS
from ..registry.names import REGISTRY
from ..runtime.environment import program
from ..runtime.errors import UserError
from ..runtime.files import is_address
from . import files, recipes
from .every_run import DEFAULT_TASK, RunSettings
from .key import show
from .table import COMMAND_LINE, ConfigView, KeySetting, get_value


def resolve_names(accepted: dict[str, KeySetting]) -> tuple[dict[str, KeySetting], list[str]]:
    """Replace names of model, dataset and task by their registered spelling; return notices about the changes."""
    notices = []
    for name, kind in (("MODEL.NAME", "model"), ("DATA.DATASET", "dataset"), ("TASK", "task")):
        setting = accepted.get(name)
        if setting is None:
            continue
        value = _find_name(kind, setting)
        if value != setting.value:
            notices.append(f"{setting.origin}: {name} {show(setting.value)} is called '{value}' here")
            if kind == "model" and is_weights_name(setting.value):
                notices[-1] += ", and does not load its weights: -pretrained=NAME does"
            accepted = {**accepted, name: dataclasses.replace(setting, value=value)}
    return accepted, notices


def _find_name(kind: str, setting: KeySetting) -> str:
    """Return the registered name that a setting means; a UserError names the setting, too."""
    try:
        return lookup.find_name(kind, setting.value)
    except UserError as error:
        raise UserError(f"{setting.origin}: {setting.name}: {error}") from None


def choose_recipe(settings: list[KeySetting], default_recipe: str) -> str | None:
    """Return the recipe of the task, or the default one, if no data is named; else raise ``RecipeMissing``.

    A user's task or dataset reads no recipe: None is returned.
    """
    by_name = {setting.name: setting for setting in settings}
    named = by_name.get("DATA.DATASET") or by_name.get("DATA.DATA_PATH")
    task = _find_name("task", by_name["TASK"]) if "TASK" in by_name else None
    if task is not None and find_package("task", task) is None:
        return None
    reason = ""
    if named is None:
        return default_recipe if task is None else suggest_recipe(task=task)
    if named.name == "DATA.DATASET":
        name = lookup.find_name("dataset", str(named.value))
        package = lookup.find_package("dataset", name)
        if package is None:
            return None
    else:
        guess = lookup.guess_dataset(os.path.expanduser(str(named.value)), task)
        name, reason = (guess.dataset, guess.reason) if guess else ("", "")
        package = lookup.find_package("dataset", name) or CLASS_LABELS
    recipe = suggest_recipe(name, package, task=task)
    raise recipes.RecipeMissing(
        f"{named.origin} {show(named.value)}: no recipe is named: add -cfg={recipe}, for example, or another that "
        f"'{program('inspect recipes')}' lists",
        recipe,
        reason,
    )


def suggest_recipe(*asked: str, task: str | None = None) -> str:
    """Return the recipe of the first of ``asked`` that has one: datasets, annotations of images or packages.

    With a ``task``, one of the task comes before others, if the manifests name one.
    """
    rows = {name: recipe for manifest in REGISTRY.manifests for name, recipe in manifest.recipes.items()}
    of_task = [] if task is None else [task, annotation_type("task", task), find_package("task", task)]
    found = [rows[name] for name in (*asked, *of_task) if name in rows]
    return next((recipe for recipe in found if task in (None, _find_task(recipe))), found[0])


def suggest_without_weights(values: CfgNode) -> str:
    """Return the recipe for a run's dataset and task that starts from random weights; empty if there is none."""
    rows = {name: recipe for manifest in REGISTRY.manifests for name, recipe in manifest.recipes.items()}
    recipe = rows.get(f"{values.DATA.DATASET} from scratch", "")
    return recipe if recipe and _find_task(recipe) == values.TASK else ""


def _find_task(recipe: str) -> str:
    """Return the task of a recipe."""
    return next((each.value for each in reversed(files.read_file(recipe)) if each.name == "TASK"), DEFAULT_TASK)


def reads_no_path(accepted: dict[str, KeySetting], values: CfgNode) -> bool:
    """Find out whether a path was set that nothing would read: no dataset is named, or the recipe's is embedded.

    Raises:
        UserError: one file, or the command line, sets path and embedded dataset together.
    """
    path, dataset = accepted.get("DATA.DATA_PATH"), accepted.get("DATA.DATASET")
    if values.DATA.DATA_PATH is None or path is None:
        return False
    if dataset is None:
        return True
    if not is_bundled(dataset.value):
        return False
    if dataset.source == path.source:
        raise UserError(
            f"DATA.DATA_PATH {path.value} ({path.origin}): dataset {dataset.value} comes with the package and reads no "
            "path: remove the path, or name the dataset at that path"
        )
    return True


def is_of_another_layout(accepted: dict[str, KeySetting]) -> bool:
    """Return whether -data_path has the annotations of the recipe's dataset, in another layout that its task reads."""
    path, dataset = accepted.get("DATA.DATA_PATH"), accepted.get("DATA.DATASET")
    if path is None or dataset is None or path.source != COMMAND_LINE or dataset.source == COMMAND_LINE:
        return False
    try:
        layouts = lookup.find_layouts(dataset.value, path.value) if path.value else []
    except UserError:
        if accepted.keys() & {"DATA.TRAIN_ANNOTATIONS", "DATA.VAL_ANNOTATIONS"}:  # they may be outside of the folder
            return False
        raise
    is_there = any(layout.dataset == dataset.value and not layout.path for layout in layouts)
    return len({layout.path or layout.dataset for layout in layouts}) == 1 and not is_there


def guess_dataset(accepted: dict[str, KeySetting], values: CfgNode) -> tuple[dict[str, KeySetting], list[str]]:
    """Guess the dataset from the files at DATA.DATA_PATH, and set it in ``values``.

    Returns the accepted settings with the one of the guessed dataset, and a notice that says why it is this one.
    Raises UserError: the files are of no known dataset.
    """
    path, named = values.DATA.DATA_PATH, accepted.get("DATA.DATASET")
    instead = f" instead of {named.value} ({named.origin})" if named else ""
    instead += ", which reads no path" if named and is_bundled(named.value) else ""
    guess = lookup.guess_dataset(path, values.TASK)
    if guess is None:
        place = f"DATA.DATA_PATH {path} ({accepted['DATA.DATA_PATH'].origin})"
        package = find_package("task", lookup.find_built_in(values.TASK) or values.TASK)
        point = GUESS_OF_PACKAGE.get(package or "")
        guess_data = None if point is None else point.find()
        guess = None if guess_data is None else guess_data(path, values.TASK, place)
    if guess is None:
        own = ", ".join(name for name in list_names("dataset") if find_package("dataset", name) is None)
        raise UserError(
            f"{place}: no dataset is named, and the files there are not recognized: name your own with -dataset=NAME: "
            f"{own or 'none is registered, see register_dataset'}"
        )
    reason = f"guessed: {guess.reason}"
    guessed = {"DATA.DATASET": KeySetting("DATA.DATASET", guess.dataset, "guessed from DATA.DATA_PATH", reason)}
    values.DATA.DATASET = guess.dataset
    if guess.path:
        values.DATA.DATA_PATH = guess.path
        guessed["DATA.DATA_PATH"] = dataclasses.replace(accepted["DATA.DATA_PATH"], value=guess.path)
    return {**accepted, **guessed}, [f"dataset: {guess.dataset}{instead}, since {guess.reason}"]


def check_task_dataset_model(config: ConfigView[RunSettings]) -> None:
    """Check that task, dataset and model fit together, else raise a UserError; a user's own fit anything."""
    values = config.values
    task = find_package("task", values.TASK)
    for name, kind in (("DATA.DATASET", "dataset"), ("MODEL.NAME", "model")):
        package = find_package(kind, get_value(values, name))
        if task is not None and package is not None and task != package:
            fitting = [other for other in list_names(kind) if find_package(kind, other) == task]
            recipe = suggest_recipe(get_value(values, name), package)
            raise UserError(
                f"{config[name]} is for {package}, {config['TASK']} for {task}: "
                + _recommend(config, name, package, recipe, fitting if kind == "dataset" else ())
            )
    if task == "images":  # only images are registered with types of annotations; a user's task may read any
        _check_annotation_types(config)
    path, dataset = values.DATA.DATA_PATH, values.DATA.DATASET
    is_remote = any(dataset in manifest.remote for manifest in REGISTRY.manifests)
    reads_files = not is_remote and find_package("dataset", dataset) is not None
    if path is not None and is_address(path) and reads_files:
        raise UserError(
            f"{config['DATA.DATA_PATH']}: dataset {dataset} reads files of this machine: add -dataset=tar for tar "
            "files of images with classes, or copy other data to this machine"
        )


def _check_annotation_types(config: ConfigView[RunSettings]) -> None:
    """Check dataset and model against the task's type of annotations: classes, boxes or label maps."""
    reads = annotation_type("task", config.values.TASK)
    dataset, model = config.values.DATA.DATASET, config.values.MODEL.NAME
    holds = annotation_type("dataset", dataset)
    if holds is not None and reads not in annotation_types("dataset", dataset):
        fitting = list_names("dataset", reads)
        recipe = suggest_recipe(dataset, holds, CLASS_LABELS)
        raise UserError(
            f"{config['DATA.DATASET']} contains {holds}, but {config['TASK']} reads {reads}: "
            + _recommend(config, "DATA.DATASET", holds, recipe, fitting)
        )
    learns = annotation_type("model", model)
    if learns is not None and learns not in (CLASS_LABELS, reads):
        raise UserError(
            f"{config['MODEL.NAME']} is for {learns}, but {config['TASK']} reads {reads}: "
            + _recommend(config, "MODEL.NAME", learns, suggest_recipe(learns))
        )


def _recommend(config: ConfigView[RunSettings], name: str, kind: str, recipe: str, fitting: Sequence[str] = ()) -> str:
    """Return what to do about a TASK that does not fit key ``name``, whose recipe it may have been given for.

    ``fitting`` are values of the key that fit the task.
    """
    others = ", ".join(fitting)
    task, other = config.settings.get("TASK"), config.settings.get(name)
    if task is not None and task.source == COMMAND_LINE and (other is None or other.source != COMMAND_LINE):
        return f"leave out TASK for {kind}" + (f", or choose one of {others}" if others else "")
    return f"choose a recipe for {kind}, such as -cfg={recipe}" + (f", or one of {others}" if others else "")
