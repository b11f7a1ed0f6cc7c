"""What is known of weights without a run that are exported: the input that they expect, and their classes."""

from typing import TYPE_CHECKING, Any, cast

from ...core.runtime.errors import UserError
from .descriptions import require_exportable

if TYPE_CHECKING:
    from ...images.classification.settings import ClassificationSettings

Size = int | tuple[int, int] | None  # pixels of a side, or (height, width)


def make_classifier_parts(source: str, name: str, image_size: Size, in_channels: int | None) -> tuple[Any, Any]:
    """Return the ``Exportable`` of a classifier without a run and its ``ExportParts``, and the size of its images.

    Weights that nothing describes have the input that is usual for their model, as in an evaluation, and a note. Both
    are None, and the size is unchanged, if there is none, or if images do not have three channels.
    """
    from ...core import settings
    from ...core.settings.command_line import format_words
    from ...core.tasks.task_factory import make_task
    from ...images.expected_input import find_expected_input

    if in_channels not in (None, 3):
        return None, image_size
    words = ["TASK", "classification", "MODEL.NAME", name, "-dataset=folder", "-eval", f"-pretrained={source}"]
    size = format_words({"DATA.IMAGE_SIZE": image_size}) if image_size else []
    values = cast("ClassificationSettings", settings.load([*words, *size]).values)
    match = find_expected_input(values)
    if match is None:
        return None, image_size
    exportable = require_exportable(make_task(values))
    parts = exportable.export_parts()
    if not match.is_described:
        note = f"nothing next to {source} says what the weights expect of images: the input is usual for {match.source}"
        parts = parts._replace(about={**parts.about, "note": note})
    return (exportable, parts), values.DATA.IMAGE_SIZE


def find_class_names(source: str, number: int) -> dict[str, Any]:
    """Return "classes", the names of a classifier's outputs if they are known, and perhaps a "note" about them."""
    from ...core.checkpoint.output_names import are_names, read_class_names
    from ...images.imagenet_classes import names_by_synset

    names = read_class_names(source)[0]
    if not are_names(names or ()) and number == len(names_by_synset()):
        note = f"the weights do not name their {number:,} classes; ImageNet's names are used"
        return {"classes": list(names_by_synset().values()), "note": note}
    return {"classes": names} if names is not None and len(names) == number else {}


def find_detection(name: str) -> tuple[str, str] | None:
    """Return the task that a detector was trained for and a dataset of it; None for other networks."""
    from ...core.registry.lookup import annotation_type, resolve
    from ...core.registry.manifest import BOX_LABELS, KEYPOINT_LABELS

    tasks = {BOX_LABELS: ("detection", "coco"), KEYPOINT_LABELS: ("keypoint_detection", "coco_keypoints")}
    return tasks.get(str(annotation_type("model", name))) if hasattr(resolve("model", name), "is_exportable") else None


def make_detector_parts(source: str, name: str, image_size: Size, task: str, dataset: str) -> tuple[Any, Any]:
    """Return the ``Exportable`` of a detector without a run, with default settings, and its ``ExportParts``.

    Raises:
        UserError: no size is given, or the model computes parts on the host.
    """
    from ...core import settings
    from ...core.registry.lookup import resolve
    from ...core.tasks.task_factory import make_task
    from ...images.expected_input import find_object_input

    family = resolve("model", name)
    if not image_size:
        raise UserError(
            f"export: {name} takes images of any size, and an exported model takes one size: add "
            "-image_size=HEIGHTxWIDTH, or export the run's folder"
        )
    size = list(image_size) if isinstance(image_size, tuple) else [image_size] * 2
    words = ["TASK", task, "MODEL.NAME", name, f"-dataset={dataset}", "-num_classes=1", "-eval"]
    words += [f"-pretrained={source}", "DETECTION.EXPORT_SIZE", str(size)]
    if not family.takes_padding:  # also its authors evaluate it on images of one size
        words += ["DETECTION.EVAL_BATCHING", "one_size"]
    values = settings.load(words).values
    notes: list[str] = []
    if find_object_input(values, is_hub_asked=True).file is None:
        values = settings.load([*words, *family.published_input]).values
        notes.append(
            f"the weights do not store the normalization of images: {name}'s published one is used; or export a run"
        )
    exportable = require_exportable(make_task(values))
    parts = exportable.export_parts()
    if "note" in parts.about:
        notes.append(parts.about["note"])
    return exportable, parts._replace(about={**parts.about, **({"note": "; ".join(notes)} if notes else {})})


def make_segmenter_parts(source: str, name: str, size: tuple[int, int], num_classes: int) -> tuple[Any, Any]:
    """Return the ``Exportable`` of a segmenter without a run, with default settings, and its ``ExportParts``.

    ``size`` is the height and width of its images in pixels.
    """
    from ...core import settings
    from ...core.tasks.task_factory import make_task
    from ...images.expected_input import find_object_input

    words = ["TASK", "image_segmentation", "MODEL.NAME", name, "-dataset=label_maps", f"-num_classes={num_classes}"]
    values = settings.load([*words, "-eval", f"-pretrained={source}", "SEGMENTATION.CROP", str(list(size))]).values
    exportable = require_exportable(make_task(values))
    parts = exportable.export_parts()
    if find_object_input(values, is_hub_asked=True).file is None:
        note = "the weights do not store the normalization of images: ImageNet's is used; or export a run"
        parts = parts._replace(about={**parts.about, "note": note})
    return exportable, parts
