"""What the metrics of classifiers and label maps bring: their scores of tables of samples."""

from ..registry.manifest import Manifest

MANIFEST = Manifest(
    __package__,
    score_kinds={
        "classes": ".classification_scores:ClassificationScores",
        "confusions": ".confusion:ConfusionScores",
        "measures": "paddlevit_dist.core.tasks.measured_task:MeasuredScores",
    },
)
