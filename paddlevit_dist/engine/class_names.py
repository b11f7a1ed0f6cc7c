"""Class names of weights that a run starts from or evaluates, and of its data."""

from ..checkpoint.class_rows import ClassNames, get_class_names, read_class_names
from ..checkpoint.load import LoadReport
from ..distributed import broadcast_object, is_main
from ..runtime.errors import UserError
from ..tasks.dataset import TransformedDataset
from ..tasks.task import Task
from .compatibility import CheckpointDiff, report_or_raise, show


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
    return None if names is None or ours is None else ClassNames(names[0], ours, names[1])


def compare_classes(
    diff: CheckpointDiff, samples: TransformedDataset, names: ClassNames | None, report: LoadReport
) -> list[str]:
    """Compare the classes of evaluated weights with the classes of the data; return log lines.

    Raises UserError if the data have classes that the weights do not have, or the outputs of the data's classes are
    unknown; unless -allow_changes is given. ``names``, of both sides, are None for a checkpoint of this package, or if
    the data name no classes.
    """
    if names is None:
        return diff.classes(samples)
    if report.classes_by_name is not None:
        matched, classes = report.classes_by_name
        if matched == classes:
            return []
        theirs, ours = (show(", ".join(side)) for side in (names.theirs or report.outputs[classes:], names.ours))
        message = f"{diff.source} has {matched:,} of the data's {classes:,} classes ({ours}); its own are {theirs}"
        return report_or_raise(diff.use, "classes", message, diff.config, "evaluate data of its classes")
    if names.theirs is not None and list(names.theirs) == list(names.ours):
        return []
    outputs = diff.config.MODEL.NUM_CLASSES
    if diff.config.TASK == "classification" and outputs is not None and outputs > len(names.ours):
        message = (
            f"{diff.source} has {outputs:,} classes and names none of the {len(names.ours):,} of the data "
            f"({show(', '.join(names.ours))}), so that it is unknown which of its outputs are meant"
        )
        remedy = "name folders as its classes are named (WordNet ids for ImageNet)"
        return report_or_raise(diff.use, "classes", message, diff.config, remedy)
    if names.theirs is None:
        return diff.classes(samples)
    return [
        f"note: {diff.source} has other class names ({show(', '.join(names.theirs))}) than the data "
        f"({show(', '.join(names.ours))}): the score assumes that both are in the same order"
    ]
