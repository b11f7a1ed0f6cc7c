"""The folders of this package that bring names, and their manifests.

Each folder of ``FEATURES`` can be deleted but ``images.classification``, ``images.models`` and folders of the core:
what its manifest names is gone then, with what other manifests name in it, and the rest of the package works. A row is
imported when a run needs it.
"""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

from ..runtime.lazy_names import import_object
from .manifest import Manifest

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
PACKAGE = "paddlevit_dist"


def find_manifest(folder: str) -> Manifest | None:
    """Return the manifest of a folder; None if the folder was deleted, or a module that it requires does not exist.

    Raises:
        ModuleNotFoundError: the folder has no manifest, or a folder of the core does not exist.
    """
    name, above = f"{PACKAGE}.{folder}", folder.split(".")[:-1]
    places = [os.path.join(place, *above) for place in sys.modules[PACKAGE].__path__]  # not of another installed copy
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
