"""What images with several labels bring: a task, its scores, and images of digits."""

from ...core.registry.manifest import TAG_LABELS, Manifest

MANIFEST = Manifest(
    __package__,
    requires=("paddlevit_dist.images.classification.task",),
    annotations=TAG_LABELS,
    datasets={
        "multi_digits": ".digits:MultiDigits",
        "table": "..data.table_images:TableImages",
        "hub": "..data.hub.hub_images:HubImages",
    },
    bundled=("multi_digits",),
    tasks={"multi_label": ".task:MultiLabel"},
    task_tables={"multi_label": ("..settings:IMAGES", "..classification.settings:TABLE", ".settings:TABLE")},
    score_kinds={"labels": ".scores:LabelScores"},
    recipes={"multi_digits": "multi_digits", TAG_LABELS: "multi_digits"},
    spellings={"task": {"multilabel": "multi_label", "multi_label_classification": "multi_label"}},
)
