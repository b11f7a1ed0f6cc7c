"""The functions that the core calls if a feature brings them: their names, and how they are called.

A feature may be absent. A manifest's function with a name that is not declared here is refused: it would be ignored.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from ..runtime.errors import UserError
from ..runtime.lazy_names import import_object
from .manifest import (
    BOX_LABELS,
    CLASS_LABELS,
    KEYPOINT_LABELS,
    MASK_LABELS,
    NO_LABELS,
    SEGMENT_LABELS,
    Manifest,
)
from .names import REGISTRY

POINTS: dict[str, "ExtensionPoint[Any]"] = {}  # name -> point
FunctionT = TypeVar("FunctionT")
Annotations = str  # of images, such as ``BOX_LABELS``


class FolderGuess(NamedTuple):
    """The dataset that reads a folder, why, and the folder inside it that holds the data; "": the folder itself."""

    dataset: str
    reason: str
    path: str = ""


class ExtensionPoint(Generic[FunctionT]):
    """A function or class that the core uses if a feature brings it under this name in ``Manifest.functions``."""

    def __init__(self, name: str) -> None:
        self.name = name
        POINTS[name] = self

    @property
    def is_there(self) -> bool:
        """Whether a feature that is there brings it; it is not imported."""
        return self.name in REGISTRY.functions

    def find(self) -> FunctionT | None:
        """Import and return what a feature brings; None if no feature that is there does."""
        return import_object(REGISTRY.functions.get(self.name))

    def require(self) -> FunctionT:
        """Import and return what a feature brings where a key of the same feature asks for it."""
        return import_object(REGISTRY.functions[self.name])


# Paddle's layers and tensors, trainers and tasks are Any here: the registry is below their packages.
Compute = Callable[..., Any]  # returns a tensor, or None where the compiled function does not apply

# Compiled functions for CPUs
ACCELERATE = ExtensionPoint[Callable[[Any], None]]("accelerate")  # (network)
COMPILED_TRAINING_TRANSFORM = ExtensionPoint[Callable[..., Any]]("CompiledTrainingTransform")  # as TrainingTransform
GAUSSIAN_LOSSES = ExtensionPoint[Compute]("gaussian_losses")  # (maps, cells, weights, deviation)
MOVE_TOWARD = ExtensionPoint[Callable[..., bool]]("move_toward")  # (tensors, goals, share)
NORMALIZED_LINEAR = ExtensionPoint[Compute]("normalized_linear")  # (x, weight, norms)
RESIZED_CROSS_ENTROPY = ExtensionPoint[Compute]("resized_cross_entropy")  # (logits, labels, ignored, weights)
SAMPLE_MAPS = ExtensionPoint[Compute]("sample_maps")  # (maps, points, repeats_border)

# Search for the first layer with a value that is not finite: (trainer) -> function of a step
FIRST_LAYER_FINDER = ExtensionPoint[Callable[[Any], Callable[..., Any]]]("FirstLayerFinder")

# Exported models: of -eval's words, weights and network of a run
# (run, model) -> name of the evaluated model, lines for the log
LOAD_COMPARISON_WEIGHTS = ExtensionPoint[Callable[[Any, Any], tuple[str | Path, list[str]]]]("load_comparison_weights")
# (path) -> the file of the exported model there, and its description
OPEN_EXPORTED = ExtensionPoint[Callable[[str], tuple[Path, dict[str, Any], str]]]("open_exported")
BUILD_EXPORTED = ExtensionPoint[Callable[[Any, Any], tuple[Any, Any]]]("build_exported")  # as ``build_trained``
LOAD_EXPORTED_LAYER = ExtensionPoint[Callable[[Any, Any], Any]]("load_exported_layer")  # (config, task)
# (path) -> the file that describes an exported model, and its content
READ_EXPORTED_ABOUT = ExtensionPoint[Callable[[str], tuple[str, dict[str, Any]]]]("read_exported_about")
# (word) -> KEY=VALUE, the weights that its description names, why it cannot be read; None: no exported model is named
PARSE_EVALUATED_ARGUMENT = ExtensionPoint[Callable[[str], tuple[str, str | None, str] | None]](
    "parse_evaluated_argument"
)

# (weights without a run) -> what files next to them or their published entry say of their images, by name of file
DESCRIBE_INPUT = ExtensionPoint[Callable[[str], dict[str, dict[str, Any]]]]("describe_input")

# Files about results
# (file of intervals, evaluation, facts)
WRITE_EVALUATED = ExtensionPoint[Callable[[Path, Any, dict[str, Any]], None]]("write_evaluated")
WRITE_SCORED = ExtensionPoint[Callable[[Path, Any, str, Any], None]]("write_scored")  # (file, scored, results, groups)
# (run, recorder of figures, facts)
WRITE_EVALUATION_REPORT = ExtensionPoint[Callable[[Any, Any, dict[str, Any]], None]]("write_evaluation_report")
LIST_GALLERIES = ExtensionPoint[Callable[[Path], list[dict[str, Any]]]]("list_galleries")  # (folder of a run)
WRITE_LAST_PAGE = ExtensionPoint[Callable[[Path, Any], None]]("write_last_page")  # (folder, stamp of its metrics)

# (folders of runs and groups of seeds, with their names) -> table of the differences from the first, lines about it
COMPARE_RUNS = ExtensionPoint[Callable[[Mapping[str, str]], tuple[list[list[str]], list[str]]]]("compare_runs")

# Samples of evaluation in the training set
# (config, evaluated datasets by split, folder)
FIND_IN_TRAINING = ExtensionPoint[Callable[[Any, Mapping[str, Any], Path], None]]("find_in_training")
SHOW_LEAKS = ExtensionPoint[Callable[[Any, Any, Any, Path], None]]("show_leaks")  # (config, task, train, folder)

# Files of PaddleViT
EXPLAIN_UNSUPPORTED = ExtensionPoint[Callable[[str], str]]("explain_unsupported")  # (model)
EXPLAIN_OTHER_TASK = ExtensionPoint[Callable[[str], str]]("explain_other_task")  # (file)
# (settings, known names) -> translated settings, lines for the log
ADAPT_CLONE = ExtensionPoint[Callable[[list[Any], Collection[str]], tuple[list[Any], list[str]]]]("adapt_clone")
REFUSE_CLONE_MODEL = ExtensionPoint[Callable[[object, str], None]]("refuse_clone_model")  # (model, origin)

# Input, layout and scores of data. A guess has ``dataset``, ``reason`` and ``path``, "" or the folder inside it is in.
GUESS_DATASET = ExtensionPoint[Callable[[str, Annotations | None], Any]]("guess_dataset")  # (path, annotations)
GUESS: dict[Annotations, ExtensionPoint[Callable[[str], Any]]] = {  # (path)
    annotations: ExtensionPoint(f"guess {annotations}") for annotations in (NO_LABELS, KEYPOINT_LABELS, SEGMENT_LABELS)
}
FIND_LAYOUTS: dict[
    Annotations, ExtensionPoint[Callable[[str, str], Sequence[Any]]]
] = {  # (folder, its name in messages)
    annotations: ExtensionPoint(f"find {annotations}")
    for annotations in (BOX_LABELS, KEYPOINT_LABELS, CLASS_LABELS, MASK_LABELS, SEGMENT_LABELS, NO_LABELS)
}
# The data of a package's tasks in a folder that nothing above recognizes; its UserError begins with the place and says
# how data of the task are laid out: (path, task, place)
GUESS_OF_PACKAGE: dict[str, ExtensionPoint[Callable[[str, str, str], "FolderGuess"]]] = {
    package: ExtensionPoint(f"guess {package}") for package in ("images", "points", "volumes")
}
METRICS: dict[str, ExtensionPoint[Callable[[list[str]], Any]]] = {  # (class names)
    elements: ExtensionPoint(f"metrics of {elements}") for elements in ("pixels", "points")
}


def require_points(manifest: Manifest, place: str) -> None:
    """Raise a ``UserError`` that begins with ``place`` if a manifest brings a function that is never asked for."""
    for name in manifest.functions:
        if name not in POINTS:
            valid = ", ".join(sorted(POINTS))
            raise UserError(f"{place}: function '{name}' is not one that the package calls: expected one of {valid}")


for _manifest in REGISTRY.manifests:
    require_points(_manifest, _manifest.package)
