"""``predict MODEL.onnx``: an exported model in place of the network of trained weights."""

from pathlib import Path
from typing import Any

import paddle

from ...core.checkpoint.load_report import LoadReport
from ...core.settings.every_run import RunSettings
from ...core.tasks.task import Task
from .descriptions import require_exportable
from .files import explain_undescribed, find_exported
from .scoring import compare_descriptions, load_exported_layer


class ExportReport(LoadReport):
    """The report of an exported model, whose parameters are in its file."""

    def summary(self) -> str:
        """Say what computes the model."""
        return f"an exported model, computed by {self.origin}"


def open_exported(source: str) -> tuple[Path, dict[str, Any], str]:
    """Return the file of the exported model at a path, its description, and why it has none, or "".

    Raises UserError if it is damaged.
    """
    model = find_exported(source)
    return model.file, model.about, "" if model.about else explain_undescribed(model)


def build_exported(config: RunSettings, task: Task) -> tuple[paddle.nn.Layer, LoadReport]:
    """Build the model of EXPORTED as the network of ``predict_step``, in evaluation mode; return it with a report.

    Raises UserError if it does not fit the settings.
    """
    model, exportable = load_exported_layer(config, task), require_exportable(task)
    classifier: Any = task
    if getattr(task, "num_classes", 0) is None and model.num_outputs:  # no record has it, such as with -cfg
        classifier.num_classes = model.num_outputs
    lines = compare_descriptions(model, exportable.export_parts().about, config)
    task.notices = [*task.notices, *(line for line in (model.function.note, *lines) if line)]
    network = exportable.evaluated_model(model)
    network.eval()
    return network, ExportReport(model.source, model.function.computed_by)
