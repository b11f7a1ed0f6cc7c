"""What a feature brings, as strings: the one type that the package's folders, other packages and users fill."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

Target = str | Callable[..., Any]
Targets = Mapping[str, Target]

CLASS_LABELS, BOX_LABELS, MASK_LABELS = "images", "images with boxes", "images with label maps"


_NONE: Any = MappingProxyType({})


class Manifest(NamedTuple):
    """The names that a feature adds, each with a location, "module:attribute", that is imported on first use."""

    #: locations that begin with a dot are relative to it
    package: str = ""
    requires: tuple[str, ...] = ()  # modules without which nothing of the feature is there
    families: tuple[str, ...] = ()  # classes of models with variants; ``model_names.json`` has their names
    models: Targets = _NONE  # name -> class derived from ``tasks.model.Model``
    aliases: Mapping[str, str] = _NONE  # other spelling of a model's name, listed like it -> name
    bridges: Targets = _NONE  # prefix of models of another package, as in "timm:resnet50" -> class that builds them
    sources: Mapping[str, str] = _NONE  # such a prefix -> module with ``find_address`` and ``list_names``
    datasets: Targets = _NONE  # name -> class that a task reads
    bundled: tuple[str, ...] = ()  # datasets that need no path
    tasks: Targets = _NONE  # name -> class derived from ``tasks.task.Task``
    annotations: str | None = None  # of its images: ``CLASS_LABELS``, ``BOX_LABELS`` or ``MASK_LABELS``
    #: task -> the key tables that it reads besides ``key_tables``; any other task reads all keys
    task_tables: Mapping[str, Sequence[Any]] = _NONE
    key_tables: tuple[Any, ...] = ()  # key tables that every run reads
    recipes: Mapping[str, str] = _NONE  # dataset, annotations or package -> recipe (-cfg=NAME) that messages suggest
    callbacks: Targets = _NONE  # name for -log_to -> class derived from ``Callback``
    transforms: Targets = _NONE  # name for ``DATA.TRANSFORMS`` -> transform of images and label maps
    score_kinds: Targets = _NONE  # kind of a table of samples -> class derived from ``tasks.ScoreKind``
    #: "model", "dataset", "task" or "callback" -> other name, in lower case with underscores -> name
    spellings: Mapping[str, Mapping[str, str]] = _NONE
    commands: Mapping[str, tuple[Target, str]] = _NONE  # command -> function of its words, and help text
    jobs: Targets = _NONE  # key -> function of the ``Configuration`` that runs instead of the main job if it is set
    hooks: Targets = _NONE  # key -> ``engine.hooks.Hook`` of training if the key is set, built from the trainer
    #: key -> ``EvaluationObserver`` that a run that only evaluates has if the key is set, built alike
    observers: Targets = _NONE
    functions: Targets = _NONE  # name -> function or class that the core uses if it is there
