"""What an exported network of several labels needs without this package, in addition to what a classifier needs."""

import numpy as np

from ...core.checkpoint.model_record import list_conditions
from ...core.tasks.step_types import ExportParts
from ..classification.export import ImageClassExport
from .curves import sigmoid
from .task import MultiLabel


class LabelExport(ImageClassExport):
    """Describes an exported network of several labels."""

    task: MultiLabel

    def export_parts(self) -> ExportParts:
        """Return what an export contains in addition to the model; PaddleX's predictors know one class an image."""
        parts, thresholds = super().export_parts(), self.task.outputs.thresholds.require_fit()
        output = "logits of the labels; their sigmoid is the probability of each"
        about = {**parts.about, "output": output, "threshold": thresholds.fixed}
        if thresholds.chosen:
            is_of_other = self.task.config.MULTI_LABEL.THRESHOLDS_OF is not None
            about["thresholds"] = dict(thresholds.chosen)
            # Not its folder, which is of this machine.
            about["thresholds_source"] = "of MULTI_LABEL.THRESHOLDS_OF" if is_of_other else thresholds.source
            about["thresholds_settings"] = list_conditions(self.task.config)
        if thresholds.notice:
            about["note"] = thresholds.notice
        return parts._replace(about=about, paddlex=None, is_exclusive=False, choose=self._choose)

    def _choose(self, logits: np.ndarray) -> np.ndarray:
        """Return whether each label is chosen, bool (images, classes), as the scores of an evaluation have it."""
        outputs = self.task.outputs
        return sigmoid(logits) > outputs.thresholds.levels(outputs.names)
