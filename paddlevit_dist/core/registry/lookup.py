"""Names of models, datasets and tasks, each with the location it is imported from on first use.

Only tables of names are imported here: listing them does not need Paddle, and a package is loaded when one of its names
is requested. The names of a deleted folder disappear with it. See ``features`` for the tables of commands and hooks.
"""

import fnmatch
import functools
import multiprocessing
import os
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, NamedTuple

from ..runtime.environment import program
from ..runtime.errors import UserError
from ..runtime.hints import describe_path, find_similar, looks_like_path
from ..runtime.lazy_names import import_object
from . import features, model_sources, plugins
from .extension_points import FIND_LAYOUTS, GUESS, GUESS_DATASET
from .features import locate, locate_all
from .manifest import Manifest, Target
from .model_names import read_model_names
from .required_methods import require_methods

_WEIGHT_FILES = (".pdparams", ".safetensors", ".npz", ".pth", ".pt", ".bin")

MODELS: dict[str, Target] = {}
DATASETS: dict[str, Target] = {}
TASKS: dict[str, Target] = {}
CALLBACKS: dict[str, Target] = {}
TRANSFORMS: dict[str, Target] = {}
_SCORE_KINDS: dict[str, Target] = {}  # kind of a table of samples -> what computes its scores again
_SCENE_FORMATS: dict[str, Target] = {}  # of files of points -> their reader
KINDS: dict[str, MutableMapping[str, Target]] = {
    "model": MODELS,
    "dataset": DATASETS,
    "task": TASKS,
    "callback": CALLBACKS,
    "transform": TRANSFORMS,
    "score_kind": _SCORE_KINDS,
    "scene_format": _SCENE_FORMATS,
}
MODEL_FAMILIES: list[str] = []  # classes with variants: run `make reference` after a change of one
SPELLINGS: dict[str, str] = {}  # other common spelling of a model's name, which is listed like it -> name
OTHER_NAMES: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
BUNDLED: list[str] = []  # datasets that ship with the package and need no path
REMOTE: list[str] = []  # datasets that are also read from addresses
RECIPES: dict[str, str] = {}  # dataset, else annotations of images, else package -> recipe that messages suggest
RECIPE_FOLDERS: list[str] = []  # of other packages
TABLES: dict[str, Sequence[Any]] = {}  # task -> its own key tables, see ``find_lineage`` for other tasks
_KEY_TABLES: list[Any] = []  # of every run
_ANNOTATIONS: dict[str, list[str]] = {}  # location of a model, dataset or task of images -> annotations


def add(manifest: Manifest) -> None:
    """Add the names of a manifest; later ones win."""
    rows = {each: locate_all(manifest, getattr(manifest, f"{each}s")) for each in KINDS}
    families = [locate(manifest, family) for family in manifest.families]
    MODEL_FAMILIES.extend(families)
    models = rows["model"] | {name: family for family in families for name in read_model_names().get(family, ())}
    rows["model"] = {spelling: models[name] for spelling, name in manifest.aliases.items()} | models
    for kind, added in rows.items():
        KINDS[kind].update(added)
        OTHER_NAMES[kind].update(manifest.spellings.get(kind, {}))
    SPELLINGS.update(manifest.aliases)
    if manifest.annotations is not None:
        located = rows["model"], rows["dataset"], rows["task"], locate_all(manifest, manifest.bridges)
        for target in {target for table in located for target in table.values()}:
            _ANNOTATIONS.setdefault(target, []).append(manifest.annotations)
    BUNDLED.extend(manifest.bundled)
    REMOTE.extend(manifest.remote)
    RECIPES.update(manifest.recipes)
    RECIPE_FOLDERS.extend(manifest.recipe_folders)
    for task, tables in manifest.task_tables.items():
        TABLES[task] = [locate(manifest, table) for table in tables]
    _KEY_TABLES.extend(locate(manifest, table) for table in manifest.key_tables)
    common_tables.cache_clear()


class Registration(NamedTuple):
    """An entry that a user has registered."""

    target: Target  # the model, dataset or task
    tables: Sequence[Any] | None  # key tables that a task reads, as passed to ``register_task``
    keys: list[Any]  # tables of the keys that it adds
    origin: str  # file and line of the call


REGISTRATIONS: dict[tuple[str, str], Registration] = {}  # by kind and name
READ_DECLARED = "paddlevit_dist.core.settings.custom_keys:read_declared"


def resolve(kind: str, name: str) -> Any:
    """Import and return the object registered as ``name`` under ``kind``, a key of ``KINDS``.

    Raises:
        UserError: nothing is registered under that name; the message suggests the closest ones.
    """
    name = find_name(kind, name)
    target = KINDS[kind][name]
    if not isinstance(target, str):
        return target
    target = import_object(target)
    require_methods(target, f"{kind.replace('_', ' ')} '{name}': ")
    if (
        find_package(kind, name) is None
        and import_object(READ_DECLARED)(target) is not None
        and not custom_tables(kind, name)
    ):
        raise UserError(
            f"{kind} '{name}' declares keys in its class, which is imported after they are needed: register the "
            f"class itself, or name the keys, as in register_{kind}('{name}', ..., keys='my_settings:KEYS')"
        )
    return target


def require_derived(target: Any, base: type) -> Any:
    """Return ``target``, a registered class or an object of one, if it is derived from ``base``, or raise UserError."""
    cls = target if isinstance(target, type) else type(target)
    if not issubclass(cls, base):
        name = getattr(target, "__name__", cls.__name__)
        statement = f"from {base.__module__} import {base.__name__}"
        raise UserError(f"{name} is not derived from {base.__name__}: derive it ('{statement}')")
    return target


def find_name(kind: str, name: str) -> str:
    """Return the registered name for ``name`` or another spelling of it; raises a UserError as ``resolve`` does.

    Other spellings are in capitals, with hyphens, with timm's tag or an owner ("google/vit-base-patch16-224"), or as in
    torchvision or papers ("ViT-B/16").
    """
    table = KINDS[kind]
    if kind == "model" and ":" in name and (bridged := model_sources.find_bridged(name)):
        if ("model", bridged[0]) not in REGISTRATIONS:
            MODELS.update([bridged])
        return bridged[0]
    if name in table:  # also a user's own model by what is another spelling of ours
        return name
    for spelling in _spellings(name):
        spelling = OTHER_NAMES[kind].get(spelling, spelling)
        if spelling in table:
            return spelling
    if plugins.load_installed():  # they may have registered more names
        return find_name(kind, name)
    valid = f"'{program('inspect')} --list' lists all"
    if kind == "model" and (absent := model_sources.explain_unsupported(name)):
        raise UserError(f"model '{name}': {absent}; {valid}")
    near = [f"'{other}'" for other in find_similar(name, table, 3)]
    hint = f"{kind.replace('_', ' ')} '{name}' is not known: "
    suggestions = " or ".join(part for part in (", ".join(near[:-1]), *near[-1:]) if part)
    if looks_like_path(name):
        hint += f"{describe_path(name)};"
    elif suggestions:
        hint += f"did you mean {suggestions}?"
    else:
        hint = hint[:-2] + ":" if table else f"{hint}none is registered:"
    if kind != "model":
        valid = f"valid names: {', '.join(sorted(table))}" if table else f"add one with register_{kind}"
    advice = "import your own with -import=MODULE"
    if multiprocessing.parent_process() is not None:
        advice = (
            'a worker process runs neither the code inside `if __name__ == "__main__"` nor the cells of a notebook: '
            "register it at the top level of a file, and name the file with IMPORTS=['my_things.py'] "
            "(-import=my_things.py)"
        )
    raise UserError(f"{hint} {valid}; {advice}")


def is_weights_name(name: str) -> bool:
    """Return whether a model's name stands for weights, without which it promises too much: tag, owner, path or URL."""
    model = find_name("model", name)
    return name != model and all(
        OTHER_NAMES["model"].get(other, other) != model for other in _spellings(name, with_weights=False)
    )


def as_source(name: str) -> str:
    """Complete a name of weights for ``load_weights``: repositories are on Hugging Face, single names are timm's."""
    is_there = ":" in name or name.startswith(("/", ".", "~")) or os.path.exists(name)
    if is_there or name.count("/") > 1 or name.endswith(_WEIGHT_FILES):
        return name
    return f"hf:{name}" if "/" in name else f"hf:timm/{name}"


def _spellings(name: str, with_weights: bool = True) -> Iterator[str]:
    """Yield ``name`` and other spellings of it, including names of weights for it."""
    yield name
    plain = name.lower().replace("-", "_")
    joined = plain.replace("/", "_")
    for part in (joined, plain.rpartition("/")[2]) if with_weights else (joined,):
        for stem in (part, part.partition(".")[0]) if with_weights else (part,):  # timm's tag of weights follows a dot
            yield stem
            yield stem.replace("swintransformer_", "swin_")
            yield stem[: -len("_224")] if stem.endswith("_224") else stem  # the only size
    yield plain


def list_models(pattern: str = "*") -> list[str]:
    """Return the registered names that match a shell pattern such as "vit*", ignoring case, in alphabetical order.

    A pattern such as "paddle:*" lists models of another package; a UserError says that there is no such package.
    """
    source, colon, _ = pattern.partition(":")
    names = (
        model_sources.list_bridged_models(source.lower())
        if colon
        else [name for name in sorted(MODELS) if ":" not in name]
    )
    return [name for name in names if fnmatch.fnmatchcase(name.lower(), pattern.lower())]


def list_names(kind: str, annotations: str | None = None) -> list[str]:
    """Return the registered names of the ``kind``, or those for images with such annotations, in alphabetical order."""
    return [name for name in sorted(KINDS[kind]) if annotations in (None, *annotation_types(kind, name))]


def find_package(kind: str, name: str) -> str | None:
    """Return the package of a built-in name ("images", "points" or "volumes"); None for any other name."""
    target = KINDS[kind].get(name)
    return target.split(".")[1] if isinstance(target, str) and target.startswith("paddlevit_dist.") else None


def find_built_in(task: str) -> str | None:
    """Return a task of this package: the named one, or the nearest that its class is derived from; None without one."""
    return next((name for name in find_lineage(task, to_tables=False) if find_package("task", name)), None)


def find_lineage(task: str, to_tables: bool = True) -> list[str]:
    """Return the task, and after it the registered tasks that its class is derived from, the nearest first.

    ``to_tables``: end with the first that has its own key tables; the tasks before it inherit them. If none has, the
    task reads all keys. Of a class that a text locates, the bases are known when its module has been imported.
    """
    names = {_locate_class(target): name for name, target in reversed(TASKS.items())}
    places = map(_locate_class, getattr(_find_class(task), "__mro__", ()))
    lineage = list(dict.fromkeys([task, *(names[place] for place in places if place in names)]))
    end = next((number for number, name in enumerate(lineage) if name in TABLES), len(lineage))
    return lineage[: end + 1] if to_tables else lineage


def reads_all_keys(task: str | None) -> bool:
    """Return whether a task has no key tables, neither its own nor a task's that its class is derived from.

    This imports the class of a user's task.
    """
    target = TASKS.get(task or "")
    if isinstance(target, str) and task not in TABLES:
        import_object(target)
    return task is None or find_lineage(task)[-1] not in TABLES


def _find_class(task: str) -> Any:
    """Return the class of a task; None if no such task is registered, or its module is not imported."""
    target = TASKS.get(task)
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    return getattr(sys.modules.get(module), attribute, None)


def _locate_class(target: Target) -> str:
    """Return the location of a registered class, or of any other."""
    return target if isinstance(target, str) else f"{target.__module__}:{getattr(target, '__qualname__', '')}"


def annotation_type(kind: str, name: str) -> str | None:
    """Return the annotations of images that a built-in name is for, the first of several; None for any other name.

    It is one of CLASS_LABELS, BOX_LABELS, MASK_LABELS, TAG_LABELS and NO_LABELS. A model for CLASS_LABELS may be part
    of another model. A user's task has the annotations of ``find_built_in``.
    """
    return next(iter(annotation_types(kind, name)), None)


def annotation_types(kind: str, name: str) -> Sequence[str]:
    """Return all annotations of images that a name is for, see ``annotation_type``."""
    target = KINDS[kind].get(find_built_in(name) or name if kind == "task" else name)
    return _ANNOTATIONS.get(target, ()) if isinstance(target, str) else ()


def guess_dataset(path: str, task: str | None = None) -> Any:
    """Guess the dataset at ``path``: an object with ``dataset`` and ``reason``, or None.

    ``task`` will read it, if known: several tasks can read some folders. For the tasks of a feature that brings a
    function "guess ANNOTATIONS", this one decides.
    """
    contents = annotation_type("task", task) if task is not None else None
    point = GUESS.get(contents or "")
    guess = None if point is None else point.find()
    return guess(path) if guess is not None else GUESS_DATASET.require()(path, contents)


def find_layouts(dataset: str, folder: str) -> list[str]:
    """Return the datasets in a folder that have the annotations of ``dataset``, usually none or one.

    A feature whose annotations have several layouts brings a function "find ANNOTATIONS".
    """
    point = FIND_LAYOUTS.get(annotation_type("dataset", dataset) or "")
    find = None if point is None else point.find()
    return [] if find is None else [guess.dataset for guess in find(folder, folder)]


def key_tables(task: str | None = None, dataset: str | None = None, model: str | None = None) -> list[Any]:
    """Return the key tables that a run of ``task`` reads, the engine's first, those for users' keys last.

    All tables are returned for None, or if ``reads_all_keys``.
    """
    if task is not None and not reads_all_keys(task):
        lineage = find_lineage(task)
        chosen = [*(("task", name) for name in lineage), ("dataset", dataset), ("model", model)]
        tables = [*TABLES[lineage[-1]]]
    else:
        chosen = list(REGISTRATIONS)
        tables = [*_BUILT_IN_TABLES, *(table for group in TABLES.values() for table in group)]
    tables += [table for kind, name in chosen for table in custom_tables(kind, name or "")]
    return list(dict.fromkeys([*common_tables(), *map(import_object, dict.fromkeys(tables))]))


def rule_tables(task: str, dataset: str | None, model: str | None, default_task: str) -> list[Any]:
    """Return the tables whose rules complete the values of a run: those that it reads.

    Rules of different tasks contradict one another. So a task that reads all keys has the rules of ``default_task`` and
    of the keys that it adds.
    """
    if not reads_all_keys(task):
        return key_tables(task, dataset, model)
    return list(dict.fromkeys([*key_tables(default_task, dataset, model), *custom_tables("task", task)]))


def known_tables(task: str | None = None) -> list[Any]:
    """Return the tables whose keys a configuration of ``task`` contains: its own and all of users' names.

    All tables are returned for None, and for a task of a user that names tables: their rules may read keys of others.
    """
    if task is not None and (reads_all_keys(task) or find_package("task", find_lineage(task)[-1]) is None):
        task = None
    custom = [table for kind, name in REGISTRATIONS for table in custom_tables(kind, name)]
    return list(dict.fromkeys([*key_tables(task), *custom]))


def iterate_tables() -> Iterator[Any]:
    """Yield every table once, the tables of every run first; each is imported when it is reached."""
    yield from common_tables()
    of_tasks = [*_BUILT_IN_TABLES, *(table for group in TABLES.values() for table in group)]
    yield from map(import_object, dict.fromkeys(of_tasks))


@functools.cache
def common_tables() -> tuple[Any, ...]:
    """Return the key tables that every run reads: the engine's first, then the ones of other features."""
    return tuple(map(import_object, _KEY_TABLES))


def custom_tables(kind: str, name: str) -> list[Any]:
    """Return the tables of the keys that a user has registered with a name."""
    registration = REGISTRATIONS.get((kind, name))
    return list(registration.keys) if registration is not None and name in KINDS[kind] else []


def list_other_tables(kind: str = "", name: str = "") -> list[Any]:
    """Return all tables but the ones that a user has registered with this name."""
    custom = [table for entry in REGISTRATIONS if entry != (kind, name) for table in custom_tables(*entry)]
    return [*common_tables(), *map(import_object, _BUILT_IN_TABLES), *custom]


def find_readers(key: str) -> list[tuple[str, str]]:
    """Return kind and name of the tasks and users' entries whose tables contain ``key``."""
    tasks = [
        ("task", task)
        for task, tables in TABLES.items()
        if any(row.name == key for table in tables for row in import_object(table).keys)
    ]
    custom = [
        entry
        for entry in REGISTRATIONS
        if any(row.name == key for table in custom_tables(*entry) for row in table.keys)
    ]
    return list(dict.fromkeys([*tasks, *custom]))


for _manifest in features.MANIFESTS:
    add(_manifest)
_BUILT_IN_TABLES = tuple(table for group in TABLES.values() for table in group)
