"""Class names of weights that a run starts from or evaluates, and of its data."""

from ..checkpoint.class_rows import ClassNames
from ..checkpoint.load_report import LoadReport
from ..checkpoint.output_names import are_names, get_class_names, mean_numbers, read_class_names
from ..distributed import broadcast_object, is_main
from ..registry.lookup import find_built_in
from ..runtime.errors import UserError
from ..tasks.dataset import TransformedDataset
from ..tasks.task import Task
from .compatibility import CheckpointDiff, report_or_raise, show

_RENAME = "name the data's classes as the weights do (often a line for each in classes.txt, 'FOLDER NAME' for folders)"


def find_class_names(task: Task, samples: TransformedDataset, source: str) -> ClassNames | None:
    """Return the class names of the weights and of the samples, read by the main process; None if the data have none.

    Raises UserError if the names cannot be read; on every rank.
    """
    ours = get_class_names({"samples": task.signature(samples)}, task.signature())
    names, problem = None, None
    if is_main() and ours:
        try:
            names = read_class_names(source)
        except UserError as error:
            problem = str(error)
    names, problem = broadcast_object((names, problem))
    if problem is not None:
        raise UserError(problem)
    if names is None or ours is None:
        return None
    theirs = names[0] if are_names(names[0] or ()) or mean_numbers(ours, names[0] or ()) else None
    return ClassNames(theirs, ours, names[1])


def compare_classes(
    diff: CheckpointDiff, samples: TransformedDataset, names: ClassNames | None, report: LoadReport
) -> list[str]:
    """Compare the classes of evaluated weights with the classes of the data; return log lines.

    ``names``, of both sides, are None if the data name no classes. Raises UserError if both sides name their classes
    and none is matched by name, or it is unknown which outputs belong to the data's classes. Unless -allow_changes is
    given, also if the weights lack some of the data's classes.
    """
    if names is None:
        return diff.classes(samples)
    if report.classes_by_name is not None:
        matched, classes = report.classes_by_name
        if matched == classes:
            others = report.outputs[classes:] if str(find_built_in(diff.config.TASK)).endswith("segmentation") else ()
            told = f"{diff.source} has {len(others):,} classes that the data lack ({show(', '.join(others))})"
            return [f"note: {told}: each that is predicted counts in mIoU, as 0"] if others else []
        theirs, ours = (show(", ".join(side)) for side in (names.theirs or report.outputs[classes:], names.ours))
        message = f"{diff.source} has {matched:,} of the data's {classes:,} classes ({ours}); its own are {theirs}"
        return report_or_raise(diff.use, "classes", message, diff.config, "evaluate data of its classes")
    outputs, ours = diff.config.MODEL.NUM_CLASSES, show(", ".join(names.ours))
    if names.theirs is not None:
        if list(names.theirs) == list(names.ours):
            return []
        theirs = show(", ".join(names.theirs))
        raise UserError(f"{diff.source} has other class names ({theirs}) than the data ({ours}); {_RENAME}")
    if outputs is not None and outputs > len(names.ours):
        if not are_names(names.ours):
            return [f"note: classes of {diff.source} are unknown or numbers: {ours} are its first outputs"]
        raise UserError(
            f"{diff.source} has {outputs:,} classes and names none of the {len(names.ours):,} of the data ({ours}), so "
            f"that it is unknown which of its outputs are meant; use data that list all {outputs:,} in its order, or "
            "name classes as published weights do (WordNet ids for ImageNet)"
        )
    return diff.classes(samples)
