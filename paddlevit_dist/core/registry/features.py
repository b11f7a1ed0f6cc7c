"""The manifests of this package's folders and of users, and what they add to the command line and to runs.

Each folder of ``FEATURES`` can be deleted but ``images.classification``, ``images.models`` and folders of the core:
what its manifest names is gone then, with what other manifests name in it, and the rest of the package works. A row is
imported when a run needs it.
"""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from typing import Any

from ..runtime.lazy_names import import_object
from .manifest import Manifest, Target, Targets

# The engine's keys come first. If several folders name a dataset, its annotations are first what the first of these
# folders says (``lookup.annotation_type``). Otherwise, the order is that of commands in the overview, and of jobs,
# hooks and observers.
FEATURES = (
    "core.engine",
    "core.metrics",
    "core.logging",
    "core.commands",
    "images.classification",
    "images.models",
    "images.models.bridges",
    "volumes",
    "points",
    "images.multi_label",
    "images.pretraining",
    "images.detection",
    "images.segmentation",
    "images.panoptic",
    "images.keypoints",
    "extensions.cpu_kernels",
    "extensions.gpu_kernels",
    "extensions.debug",
    "extensions.report",
    "extensions.export",
    "extensions.leakage",
    "extensions.compare",
)
_PACKAGE = "paddlevit_dist"

MANIFESTS: list[Manifest] = []
ABSENT: list[str] = []  # features whose folder was deleted
COMMANDS: dict[str, tuple[Target, str]] = {}  # name -> function and help text
NAMINGS: dict[str, tuple[Target, str]] = {}  # program -> function that names weights as it does, and help text
JOBS: dict[str, Target] = {}  # key -> what runs instead of training or evaluation
HOOKS: dict[str, Target] = {}  # key -> hook of training
OBSERVERS: dict[str, Target] = {}  # key -> observer of a run that only evaluates
FUNCTIONS: dict[str, Target] = {}  # name of one of ``extension_points.POINTS`` -> function
BRIDGES: dict[str, Target] = {}  # prefix of a model's name that another package builds -> class
SOURCES: dict[str, str] = {}  # such a prefix -> module with the names and weights


def locate(manifest: Manifest, target: object) -> Any:
    """Return a location of a manifest without leading dots; any other target unchanged."""
    return importlib.util.resolve_name(target, manifest.package) if isinstance(target, str) else target


def locate_all(manifest: Manifest, targets: Targets) -> dict[str, Any]:
    """Return the targets of a table of a manifest, located, without those in the folder of an absent feature."""
    located = {name: locate(manifest, target) for name, target in targets.items()}
    gone = tuple(f"{_PACKAGE}.{folder}." for folder in ABSENT)
    return {name: target for name, target in located.items() if not str(target).startswith(gone)}


def add(manifest: Manifest) -> None:
    """Add the rows of a manifest; later ones win."""
    MANIFESTS.append(manifest)
    for described, given in ((COMMANDS, manifest.commands), (NAMINGS, manifest.namings)):
        described.update((name, (locate(manifest, target), text)) for name, (target, text) in given.items())
    for table, rows in (
        (JOBS, manifest.jobs),
        (HOOKS, manifest.hooks),
        (OBSERVERS, manifest.observers),
        (BRIDGES, manifest.bridges),
        (SOURCES, manifest.sources),
        (FUNCTIONS, manifest.functions),
    ):
        table.update(locate_all(manifest, rows))


def find_job(values: Any) -> str | None:
    """Return the key of the job that a configuration asks for; None for training or evaluation."""
    return next((key for key in JOBS if values[key]), None)


def build_set(rows: dict[str, Target], run: Any) -> list[Any]:
    """Build the hooks or observers of a run whose keys are set."""
    return [import_object(target)(run) for key, target in rows.items() if run.config[key]]


def find_manifest(folder: str) -> Manifest | None:
    """Return the manifest of a folder; None if the folder was deleted, or a module that it requires does not exist.

    Raises:
        ModuleNotFoundError: the folder has no manifest, or a folder of the core does not exist.
    """
    name, above = f"{_PACKAGE}.{folder}", folder.split(".")[:-1]
    places = [os.path.join(place, *above) for place in sys.modules[_PACKAGE].__path__]  # not of another installed copy
    package = PathFinder.find_spec(name, places)
    is_deleted = package is None or package.origin is None  # Python's caches may remain
    if is_deleted and above[:1] != ["core"]:
        return None
    inside = None if package is None else package.submodule_search_locations
    if is_deleted or PathFinder.find_spec(f"{name}.manifest", inside) is None:
        raise ModuleNotFoundError(f"FEATURES of {__name__} lists {folder}, but there is no {name}.manifest", name=name)
    manifest = import_object(f"{name}.manifest:MANIFEST")
    return manifest if all(map(_is_there, manifest.requires)) else None


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package of the module is not there
        return False


_found = {folder: find_manifest(folder) for folder in FEATURES}
ABSENT.extend(folder for folder, manifest in _found.items() if manifest is None)
for _manifest in _found.values():
    if _manifest is not None:
        add(_manifest)
