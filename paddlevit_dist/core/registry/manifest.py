"""What a feature brings, as strings: the one type that the package's folders, other packages and users fill."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

Target = str | Callable[..., Any]
Targets = Mapping[str, Target]

CLASS_LABELS, BOX_LABELS, MASK_LABELS = "images", "images with boxes", "images with label maps"
TAG_LABELS, NO_LABELS = "images with several labels", "images without labels"
KEYPOINT_LABELS, SEGMENT_LABELS = "images with keypoints", "images with segments"


_NONE: Any = MappingProxyType({})


class Manifest(NamedTuple):
    """The names that a feature adds, each with a location, "module:attribute", that is imported on first use.

    Attributes:
        package: locations that begin with a dot are relative to it.
        requires: modules without which nothing of the feature is there.
        families: classes of models with a table of variants; ``model_names.json`` has their names.
        models: name -> class derived from ``tasks.model.Model``.
        aliases: other spelling of a model's name, listed like it -> name.
        bridges: prefix of models of another package, as in "timm:resnet50" -> class that builds them.
        sources: such a prefix -> module with ``find_address`` and ``list_names``.
        datasets: name -> class that a task reads.
        bundled: datasets that need no path.
        remote: datasets that are also read from addresses.
        tasks: name -> class derived from ``tasks.task.Task``.
        annotations: what its images have: ``CLASS_LABELS``, ``BOX_LABELS``, ``MASK_LABELS``, ``TAG_LABELS``,
            ``KEYPOINT_LABELS``, ``SEGMENT_LABELS`` or ``NO_LABELS``. A dataset in the manifests of several features has
            the annotations of each. Classifiers and probes start from the weights of tasks for ``NO_LABELS``, too.
        task_tables: task -> the key tables that it reads besides ``key_tables``. Any other task reads the
            tables of the registered task that it is derived from, or all keys.
        key_tables: key tables that every run reads.
        recipes: task, dataset, annotations or package -> recipe (-cfg=NAME) that messages suggest; the one of a task
            is also what a run reads that names no data. "DATASET from scratch" has one without published weights.
        recipe_folders: full paths of folders with recipes, which -cfg=NAME finds after the recipes here.
        callbacks: name for -log_to -> class derived from ``Callback``.
        transforms: name for ``DATA.TRANSFORMS`` -> transform of images and label maps.
        score_kinds: kind of a table of samples -> class derived from ``tasks.ScoreKind``.
        scene_formats: format of files of points, for ``prepare scenes`` and ``predict`` -> ``points.SceneReader``.
        spellings: "model", "dataset", "task" or "callback" -> other name, in lower case with underscores -> name.
        commands: command -> function of its words, and help text.
        namings: program whose names of weights ``convert`` writes -> function of a state by our names, with Linear
            weights (out, in), that returns it renamed and the names that have no place there, and help text.
        jobs: key -> function of the ``Configuration`` that runs instead of training or evaluation if the key is set.
        hooks: key -> ``engine.hooks.Hook`` of training if the key is set, built from the trainer.
        observers: key -> ``EvaluationObserver`` that a run that only evaluates has if the key is set, built alike.
        functions: name of one of ``extension_points.POINTS`` -> function or class that the core uses if it is there.
    """

    package: str = ""
    requires: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    models: Targets = _NONE
    aliases: Mapping[str, str] = _NONE
    bridges: Targets = _NONE
    sources: Mapping[str, str] = _NONE
    datasets: Targets = _NONE
    bundled: tuple[str, ...] = ()
    remote: tuple[str, ...] = ()
    tasks: Targets = _NONE
    annotations: str | None = None
    task_tables: Mapping[str, Sequence[Any]] = _NONE
    key_tables: tuple[Any, ...] = ()
    recipes: Mapping[str, str] = _NONE
    recipe_folders: tuple[str, ...] = ()
    callbacks: Targets = _NONE
    transforms: Targets = _NONE
    score_kinds: Targets = _NONE
    scene_formats: Targets = _NONE
    spellings: Mapping[str, Mapping[str, str]] = _NONE
    commands: Mapping[str, tuple[Target, str]] = _NONE
    namings: Mapping[str, tuple[Target, str]] = _NONE
    jobs: Targets = _NONE
    hooks: Targets = _NONE
    observers: Targets = _NONE
    functions: Targets = _NONE
