"""Find a name of the registry, import what it stands for, and say what a name is for.

Listing names does not need Paddle: a package is loaded when one of its names is requested. The names of a deleted
folder disappear with it.
"""

import fnmatch
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..runtime.environment import program
from ..runtime.errors import UserError
from ..runtime.hints import describe_path, find_similar, looks_like_path
from ..runtime.lazy_names import import_object
from . import model_sources, plugins
from .extension_points import FIND_LAYOUTS, GUESS, GUESS_DATASET
from .manifest import Target
from .names import REGISTRY
from .required_methods import require_methods

_WEIGHT_FILES = (".pdparams", ".safetensors", ".npz", ".pth", ".pt", ".bin")
READ_DECLARED = "paddlevit_dist.core.settings.custom_keys:read_declared"


def resolve(kind: str, name: str) -> Any:
    """Import and return the object registered as ``name`` under ``kind``, a key of ``REGISTRY.kinds``.

    Raises:
        UserError: nothing is registered under that name; the message suggests the closest ones.
    """
    name = find_name(kind, name)
    target = REGISTRY.kinds[kind][name]
    if not isinstance(target, str):
        return target
    target = import_object(target)
    require_methods(target, f"{kind.replace('_', ' ')} '{name}': ")
    registration = REGISTRY.registrations.get((kind, name))
    has_keys = registration is not None and registration.keys
    if find_package(kind, name) is None and import_object(READ_DECLARED)(target) is not None and not has_keys:
        raise UserError(
            f"{kind} '{name}' declares keys in its class, which is imported after they are needed: register the "
            f"class itself, or name the keys, as in register_{kind}('{name}', ..., keys='my_settings:KEYS')"
        )
    return target


def require_derived(target: Any, base: type) -> Any:
    """Return ``target``, a registered class or an object of one, if it is derived from ``base``, or raise UserError."""
    cls = target if isinstance(target, type) else target.__class__
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
    table = REGISTRY.kinds[kind]
    if kind == "model" and ":" in name and (bridged := model_sources.find_bridged(name)):
        if ("model", bridged[0]) not in REGISTRY.registrations:
            REGISTRY.models.update([bridged])
        return bridged[0]
    if name in table:  # also a user's own model by what is another spelling of ours
        return name
    for spelling in _spellings(name):
        spelling = REGISTRY.spellings[kind].get(spelling, spelling)
        if spelling in table:
            return spelling
    if plugins.load_installed():  # they may have registered more names
        return find_name(kind, name)
    raise UserError(_explain_unknown(kind, name))


def _explain_unknown(kind: str, name: str) -> str:
    """Return why a name is refused, with what may be meant by it, and what to do."""
    valid = f"'{program('inspect')} --list' lists all"
    if kind == "model" and (absent := model_sources.explain_unsupported(name)):
        return f"model '{name}': {absent}; {valid}"
    table = REGISTRY.kinds[kind]
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
    return f"{hint} {valid}; {advice}"


def is_weights_name(name: str) -> bool:
    """Return whether a model's name stands for weights, without which it promises too much: tag, owner, path or URL."""
    model = find_name("model", name)
    return name != model and all(
        REGISTRY.spellings["model"].get(other, other) != model for other in _spellings(name, with_weights=False)
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
        else [name for name in sorted(REGISTRY.models) if ":" not in name]
    )
    return [name for name in names if fnmatch.fnmatchcase(name.lower(), pattern.lower())]


def list_names(kind: str, annotations: str | None = None) -> list[str]:
    """Return the registered names of the ``kind``, or those for images with such annotations, in alphabetical order."""
    return [name for name in sorted(REGISTRY.kinds[kind]) if annotations in (None, *annotation_types(kind, name))]


def find_package(kind: str, name: str) -> str | None:
    """Return the package of a built-in name ("images", "points" or "volumes"); None for any other name."""
    target = REGISTRY.kinds[kind].get(name)
    return target.split(".")[1] if isinstance(target, str) and target.startswith("paddlevit_dist.") else None


def find_built_in(task: str) -> str | None:
    """Return a task of this package: the named one, or the nearest that its class is derived from; None without one."""
    return next((name for name in find_lineage(task) if find_package("task", name)), None)


def find_lineage(task: str) -> list[str]:
    """Return the task, and after it the registered tasks that its class is derived from, the nearest first.

    Of a class that a text locates, the bases are known when its module has been imported.
    """
    names = {_locate_class(target): name for name, target in reversed(REGISTRY.tasks.items())}
    places = map(_locate_class, getattr(_find_class(task), "__mro__", ()))
    return list(dict.fromkeys([task, *(names[place] for place in places if place in names)]))


def _find_class(task: str) -> Any:
    """Return the class of a task; None if no such task is registered, or its module is not imported."""
    target = REGISTRY.tasks.get(task)
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
    target = REGISTRY.kinds[kind].get(find_built_in(name) or name if kind == "task" else name)
    return REGISTRY.annotations.get(target, ()) if isinstance(target, str) else ()


def guess_dataset(path: str, task: str | None = None) -> Any:
    """Guess the dataset at ``path``: an object with ``dataset`` and ``reason``, or None.

    ``task`` will read it, if known: several tasks can read some folders. For the tasks of a feature that brings a
    function "guess ANNOTATIONS", this one decides.
    """
    contents = annotation_type("task", task) if task is not None else None
    point = GUESS.get(contents or "")
    guess = None if point is None else point.find()
    return guess(path) if guess is not None else GUESS_DATASET.require()(path, contents)


def find_layouts(dataset: str, folder: str) -> Sequence[Any]:
    """Return the guesses of datasets in a folder that have the annotations of ``dataset``, usually none or one.

    A feature whose annotations have several layouts brings a function "find ANNOTATIONS".
    """
    point = FIND_LAYOUTS.get(annotation_type("dataset", dataset) or "")
    find = None if point is None else point.find()
    return [] if find is None else find(folder, folder)


def is_bundled(dataset: str) -> bool:
    """Return whether a dataset ships with the package and needs no path."""
    return any(dataset in manifest.bundled for manifest in REGISTRY.manifests)


def find_job(values: Any) -> str | None:
    """Return the key of the job that a configuration asks for; None for training or evaluation."""
    return next((key for key in REGISTRY.jobs if values[key]), None)


def build_set(rows: Mapping[str, Target], run: Any) -> list[Any]:
    """Build the hooks or observers of a run whose keys are set."""
    return [import_object(target)(run) for key, target in rows.items() if run.config[key]]
