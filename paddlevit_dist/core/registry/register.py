"""Functions that register models, datasets, tasks, other parts and whole features of users."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.errors import UserError
from ..runtime.lazy_names import import_object
from ..runtime.printing import shorten
from . import extension_points
from .lookup import READ_DECLARED
from .manifest import Manifest, Target
from .names import REGISTRY, Registration, locate
from .required_methods import require_methods, require_read_names

_AS_TABLES = "paddlevit_dist.core.settings.custom_keys:as_tables"
_LIST_OTHER_TABLES = "paddlevit_dist.core.settings.key_tables:list_other_tables"
_CHECK_OPTIONS = "paddlevit_dist.core.settings.custom_keys:check_options"
_UNIQUE = ("command", "naming", "job", "hook", "observer", "bridge")  # besides the registry's kinds


def register_model(name: str, target: Target, keys: object = None, replace: bool = False) -> None:
    """Register a model, so that ``create_model(name, ...)`` builds it.

    Args:
        name: the name.
        target: a class derived from ``tasks.model.Model``, or its location, "module:attribute".
        keys: configuration keys of the model: a list of ``Key``, a ``KeyTable`` or its location. None: the attribute
            ``keys`` of ``target``, if it is a class. A run that uses the name reads them.
        replace: replace an entry of this name.

    Raises:
        UserError: the target is not such a class, the name or a key is in use, or a default is not a valid value of
            its key.
    """
    _register("model", name, target, keys, replace)


def register_dataset(name: str, target: Target, keys: object = None, replace: bool = False) -> None:
    """Register a dataset, so that ``-dataset=name`` opens it; ``keys`` and ``replace`` are as in ``register_model``.

    ``target`` is a class derived from what the task reads, such as ``ImageDataset``, or its location; or any class with
    a length and samples by index, such as a ``paddle.io.Dataset``, that takes some of ``data_path``, ``split`` and
    ``cache_folder``.
    """
    _register("dataset", name, target, keys, replace)


def register_task(
    name: str, target: Target, tables: Sequence[Any] | None = None, keys: object = None, replace: bool = False
) -> None:
    """Register a task, so that ``TASK: name`` builds ``target(config)``, a ``tasks.task.Task``.

    Args:
        name: the name.
        target: a class derived from ``tasks.task.Task``, or its location, "module:attribute".
        tables: the key tables that it reads in addition to the engine's and to ``keys``, each a ``KeyTable`` or its
            location; any other key is then rejected. None: the tables and the keys of the nearest registered task that
            ``target`` is derived from; without one, it may read all keys.
        keys: configuration keys of the task, as in ``register_model``.
        replace: replace an entry of this name.
    """
    _register("task", name, target, keys, replace, tables)


def register_callback(name: str, target: Target) -> None:
    """Register a callback, so that with ``-log_to=name`` ``target()``, a ``Callback``, follows the run in rank 0.

    Raises:
        UserError: the name is not a text, or the target is neither a class nor a function.
    """
    _require_nameable("callback", name, target, _caller())
    REGISTRY.kinds["callback"][name] = target


def register_transform(name: str, target: Callable[..., Any], replace: bool = False) -> None:
    """Register a transform of training images and their label maps for ``DATA.TRANSFORMS [name]``.

    The result is a dictionary with "image" and "mask"; arrays are uint8 (height, width, 3) and (height, width), and may
    change their size.

    Args:
        name: the name.
        target: called as ``target(image=pixels, mask=labels)``: an object of albumentations or any other with
            ``set_random_seed``; or a function that also gets ``generator``, the source of all its random numbers.
        replace: replace an entry of this name.

    Raises:
        UserError: the name is in use.
    """
    _register("transform", name, target, None, replace)


def register_score_kind(name: str, target: Target, replace: bool = False) -> None:
    """Register a kind of scores, so that ``compare``, ``search`` and ``-plan`` read tables of samples of this kind.

    ``name`` is the ``kind`` of the ``SampleTable`` that the metrics return, ``target`` a class derived from
    ``tasks.ScoreKind``, or its location, "module:attribute". Raises UserError: the name is in use, and ``replace`` was
    not given.
    """
    if hasattr(target, "check_methods"):  # of a class; that of a location is checked when it is imported
        target.check_methods()
    _register("score_kind", name, target, None, replace)


def register_scene_format(name: str, target: Target, replace: bool = False) -> None:
    """Register a format of files of points, so that ``prepare scenes`` and ``predict`` find and read them.

    ``target`` is a class derived from ``points.SceneReader`` or ``points.TableReader``, or its location,
    "module:attribute". Its files are looked for first. Raises UserError: the name is in
    use, and ``replace`` was not given.
    """
    _register("scene_format", name, target, None, replace)


def register_feature(manifest: Manifest) -> None:
    """Register all that a ``Manifest`` names; a second call with the same manifest changes nothing.

    Its ``key_tables`` may also be lists of ``Key``. Raises UserError: a name or a key is in use, or a default is not a
    valid value of its key.
    """
    origin = _caller()
    if not isinstance(manifest, Manifest):
        raise UserError(f"{origin}: register_feature({manifest!r}): expected a Manifest")
    if manifest in REGISTRY.manifests:
        return
    unique = {kind: getattr(REGISTRY, f"{kind}s") for kind in _UNIQUE}
    for kind, table in (*REGISTRY.kinds.items(), *unique.items()):
        for name, target in REGISTRY.locate_all(manifest, getattr(manifest, f"{kind}s")).items():
            if name in table and table[name] != target:
                raise UserError(f"{origin}: {kind.replace('_', ' ')} '{name}' is registered twice: choose another name")
    for folder in manifest.recipe_folders:
        if not (os.path.isabs(folder) and os.path.isdir(folder)):
            advice = "str(Path(__file__).with_name('recipes'))"
            raise UserError(f"{origin}: recipe folder {folder!r} is not the full path of a folder: write {advice}")
    extension_points.require_points(manifest, origin)
    keys = [key_table for declared in manifest.key_tables for key_table in _as_tables(manifest, declared, origin)]
    others = import_object(_LIST_OTHER_TABLES)()
    known = {row.name for key_table in (*keys, *others) for row in key_table.keys}
    for kind in ("job", "hook", "observer"):
        for name in getattr(manifest, f"{kind}s"):
            if name not in known:
                raise UserError(f"{origin}: {kind} '{name}' is for a key that does not exist: add it to key_tables")
    REGISTRY.add(manifest, keys)


def _as_tables(manifest: Manifest, declared: object, origin: str) -> list[Any]:
    place = f"{origin}: {manifest.package}"
    return import_object(_AS_TABLES)(locate(manifest, declared), place, import_object(_LIST_OTHER_TABLES)())


def _register(
    kind: str, name: str, target: Target, keys: object, replace: bool, tables: Sequence[Any] | None = None
) -> None:
    origin = _caller()
    _require_nameable(kind, name, target, origin)
    model = getattr(sys.modules.get("paddlevit_dist.core.tasks.model"), "Model", type(None))  # it imports Paddle
    is_model = isinstance(target, str) or (isinstance(target, type) and issubclass(target, model))
    if kind == "model" and not is_model:
        raise UserError(
            f"{origin}: model '{name}': {shorten(getattr(target, '__name__', repr(target)))} is not a class derived "
            "from Model: derive one ('from paddlevit_dist.core.tasks import Model')"
        )
    for part in (target, *getattr(target, "aspects", {}).values()):  # those that are names when they are imported
        require_methods(part, f"{origin}: {kind.replace('_', ' ')} '{name}': ")
        require_read_names(part, f"{origin}: {kind.replace('_', ' ')} '{name}': ")
    before, existing = REGISTRY.kinds[kind].get(name), REGISTRY.registrations.get((kind, name))
    if before is not None and not replace and _identity(before) != _identity(target):
        first = existing.origin if existing is not None else "this package has one"
        raise UserError(
            f"{origin}: {kind.replace('_', ' ')} '{name}' is registered twice ({first}): choose another name, or "
            "replace=True"
        )
    declared = import_object(READ_DECLARED)(target) if keys is None else keys
    entry_tables = []
    if declared is not None:
        others = import_object(_LIST_OTHER_TABLES)(kind, name)
        entry_tables = import_object(_AS_TABLES)(declared, f"{origin}: {kind} '{name}'", others)
        if kind == "model" and hasattr(target, "require_options"):
            import_object(_CHECK_OPTIONS)(target, entry_tables, f"{origin}: {kind} '{name}'")
    if tables is not None:
        _require_tables(tables, f"{origin}: task '{name}'")
    REGISTRY.kinds[kind][name] = target
    if kind == "task":
        REGISTRY.task_tables.pop(name, None)
    if tables is not None:
        REGISTRY.task_tables[name] = list(tables)
    REGISTRY.registrations[kind, name] = Registration(target, tables, entry_tables, origin)


def _require_tables(tables: Any, place: str) -> None:
    given = tables if isinstance(tables, (list, tuple)) else [tables]
    wrong = [each for each in given if isinstance(each, str) and ":" not in each]
    if given is not tables or wrong:
        raise UserError(
            f"{place}: tables={tables!r}: expected a list of tables of keys, each a KeyTable or where one is, such as "
            "'paddlevit_dist.images.settings:IMAGES'; [] for none; without tables it has the tables of its parent class"
        )


def _require_nameable(kind: str, name: object, target: object, origin: str) -> None:
    if not isinstance(name, str) or not name or not (callable(target) or isinstance(target, str)):
        raise UserError(f"{origin}: register_{kind}({name!r}, {target!r}): expected a name, and a class or a function")


def _identity(target: Target) -> Any:
    """Return a value that is equal for the same class or function of a module that was imported again."""
    name = getattr(target, "__qualname__", None)
    if name is None:
        return target
    module = getattr(target, "__module__", "")
    line = target.__code__.co_firstlineno if "<lambda>" in name and hasattr(target, "__code__") else None
    return getattr(sys.modules.get(module), "__file__", None) or module, name, line


def _caller() -> str:
    """Return file and line of the first caller outside of this file."""
    frame: Any = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
