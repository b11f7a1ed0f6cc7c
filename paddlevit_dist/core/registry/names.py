"""The names that this package and users bring, and what each stands for: ``REGISTRY`` holds them.

Other files of this package find a name in it (``lookup``), or add one (``register``).
"""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .features import FEATURES, PACKAGE, find_manifest
from .manifest import Manifest, Target, Targets
from .model_names import read_model_names

KINDS = ("model", "dataset", "task", "callback", "transform", "score_kind", "scene_format")


class Registration(NamedTuple):
    """An entry that a user has registered."""

    target: Target  # the model, dataset or task
    tables: Sequence[Any] | None  # key tables that a task reads, as passed to ``register_task``
    keys: list[Any]  # tables of the keys that it adds
    origin: str  # file and line of the call


class Registry:
    """Names by kind, each with what it stands for: a class or function, or the location that it is imported from.

    Attributes:
        manifests: what was added, in this order; what needs no location is read from them.
        absent: features whose folder was deleted.
        kinds: for each of ``KINDS``, name -> class.
        spellings: for each of ``KINDS``, other name -> name.
        aliases: other common spelling of a model's name, which is listed like it -> name.
        families: classes with variants.
        registrations: what users have registered, by kind and name.
        annotations: location of a model, dataset or task of images -> annotations.
        task_tables: task -> its own key tables; ``built_in_tables`` are the ones of tasks of this package.
        key_tables: key tables of every run.
        commands: name -> function and help text.
        namings: program -> function that names weights as it does, and help text.
        bridges: prefix of a model's name that another package builds -> class.
        sources: such a prefix -> module with the names and weights.
        jobs: key -> what runs instead of training or evaluation.
        hooks: key -> hook of training.
        observers: key -> observer of a run that only evaluates.
        functions: name of one of ``extension_points.POINTS`` -> function.
    """

    def __init__(self) -> None:
        self.manifests: list[Manifest] = []
        self.absent: list[str] = []
        self.kinds: dict[str, dict[str, Target]] = {kind: {} for kind in KINDS}
        self.models, self.datasets, self.tasks = self.kinds["model"], self.kinds["dataset"], self.kinds["task"]
        self.spellings: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
        self.aliases: dict[str, str] = {}
        self.families: list[str] = []
        self.registrations: dict[tuple[str, str], Registration] = {}
        self.annotations: dict[str, list[str]] = {}
        self.task_tables: dict[str, Sequence[Any]] = {}
        self.built_in_tables: tuple[Any, ...] = ()
        self.key_tables: list[Any] = []
        self.commands: dict[str, tuple[Target, str]] = {}
        self.namings: dict[str, tuple[Target, str]] = {}
        self.bridges: dict[str, Target] = {}
        self.sources: dict[str, Target] = {}
        self.jobs: dict[str, Target] = {}
        self.hooks: dict[str, Target] = {}
        self.observers: dict[str, Target] = {}
        self.functions: dict[str, Target] = {}

    def add_folders(self, folders: Mapping[str, Manifest | None]) -> None:
        """Add the manifests of this package's folders; None stands for a folder that was deleted."""
        self.absent.extend(folder for folder, manifest in folders.items() if manifest is None)
        for manifest in folders.values():
            if manifest is not None:
                self.add(manifest)
        self.built_in_tables = tuple(table for tables in self.task_tables.values() for table in tables)

    def add(self, manifest: Manifest, key_tables: Sequence[Any] | None = None) -> None:
        """Add all that a manifest names; later ones win. ``key_tables``: its tables, if it does not name them."""
        self.manifests.append(manifest)
        rows = {kind: self.locate_all(manifest, getattr(manifest, f"{kind}s")) for kind in KINDS}
        families = [locate(manifest, family) for family in manifest.families]
        models = rows["model"] | {name: family for family in families for name in read_model_names().get(family, ())}
        rows["model"] = {spelling: models[name] for spelling, name in manifest.aliases.items()} | models
        for kind, added in rows.items():
            self.kinds[kind].update(added)
            self.spellings[kind].update(manifest.spellings.get(kind, {}))
        self.families.extend(families)
        self.aliases.update(manifest.aliases)
        if manifest.annotations is not None:
            of_images = rows["model"], rows["dataset"], rows["task"], self.locate_all(manifest, manifest.bridges)
            for target in {target for table in of_images for target in table.values()}:
                self.annotations.setdefault(target, []).append(manifest.annotations)
        for task, tables in manifest.task_tables.items():
            self.task_tables[task] = [locate(manifest, table) for table in tables]
        tables = manifest.key_tables if key_tables is None else key_tables
        self.key_tables.extend(locate(manifest, table) for table in tables)
        for described, given in ((self.commands, manifest.commands), (self.namings, manifest.namings)):
            described.update((name, (locate(manifest, target), text)) for name, (target, text) in given.items())
        for field in ("bridges", "sources", "jobs", "hooks", "observers", "functions"):
            getattr(self, field).update(self.locate_all(manifest, getattr(manifest, field)))

    def locate_all(self, manifest: Manifest, targets: Targets) -> dict[str, Any]:
        """Return the targets of a table of a manifest, located, without those in the folder of an absent feature."""
        located = {name: locate(manifest, target) for name, target in targets.items()}
        gone = tuple(f"{PACKAGE}.{folder}." for folder in self.absent)
        return {name: target for name, target in located.items() if not str(target).startswith(gone)}


def locate(manifest: Manifest, target: object) -> Any:
    """Return a location of a manifest without leading dots; any other target unchanged."""
    return importlib.util.resolve_name(target, manifest.package) if isinstance(target, str) else target


REGISTRY = Registry()  # some of the folders import it while it is filled
REGISTRY.add_folders({folder: find_manifest(folder) for folder in FEATURES})
