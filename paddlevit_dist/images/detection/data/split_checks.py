"""Checks of a split of images with boxes that need no image: missing files, and more objects than can be detected."""

from ....core.runtime.errors import UserError
from ....core.runtime.printing import count
from .detection_dataset import DetectionDataset


def note_crowded(
    dataset: DetectionDataset, split: str, model_limit: tuple[str, int] | None, max_detections: int | None
) -> list[str]:
    """Return notices on images with more objects than the model detects, or more of a category than count.

    Args:
        model_limit: see ``Detector.most_objects``.
        max_detections: detections per image and category that the evaluation counts; None for training.
    """
    objects, lines = dataset.object_counts(), []
    limits = (
        [(0, "objects", model_limit[1], f"that the model detects in an image ({model_limit[0]})")]
        if model_limit
        else []
    )
    if max_detections is not None:
        limits.append((1, "objects of a category", max_detections, "counted detections (-max_detections)"))
    for column, kind, most, reason in limits:
        crowded = objects[:, column][objects[:, column] > most]
        if len(crowded):
            lines.append(
                f"{len(crowded):,} of {count(len(objects), f'{split} image')} with more {kind} than the {most:,} "
                f"{reason}, up to {crowded.max():,}: {(crowded - most).sum():,} objects exceed this limit"
            )
    return lines


def check_files(dataset: DetectionDataset, split: str, is_replaced: bool) -> list[str]:
    """Return notices on unlabeled images and replaced missing files; raise UserError if they are not replaced."""
    unannotated = dataset.list_unannotated()
    lines = []
    if unannotated:
        number = count(len(unannotated), "image")
        lines = [f"{number} without annotations in the folder of {split} skipped, such as {unannotated[0]}"]
    missing = dataset.missing()
    if not len(missing):
        return lines
    shown = ", ".join(map(dataset.describe, missing[:3]))
    scope = f"{len(missing):,} of {len(dataset):,} images of {split} are missing, such as {shown}"
    if is_replaced and len(missing) < len(dataset):
        return [*lines, f"{scope}: the next images replace them (DATA.ON_INVALID_SAMPLE skip)"]
    skip = ", or set DATA.ON_INVALID_SAMPLE skip" if split == "train" else ""
    raise UserError(f"{scope}: restore them, remove them from the annotations{skip}")
