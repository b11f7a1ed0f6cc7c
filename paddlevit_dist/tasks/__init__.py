"""Contracts between packages: everything that they may use of one another. All other attributes are private.

- ``dataset``: samples on disk (``Dataset``) and samples with their transforms (``TransformedDataset``)
- ``model``: a network with its variants, key maps and ordered layers
- ``task``: what the engine calls: training, evaluation, prediction and export; ``step_types``: the values
  that it exchanges; ``metrics``: its scores
- ``figures``: tables, images and point sets that a task gives to the report
- ``truth``: ground truth in tables of scored samples
- ``prediction``: inputs without labels, and the files of a prediction or an evaluation
- ``sample_checks``: finite numbers, labels in range; ``sample_names``: matches names from other programs' results;
  ``sample_groups``: samples that belong together
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "BadSample": "sample_checks",
    "Callback": "callback",
    "Chart": "figures",
    "CheckpointMeta": "prediction",
    "ConfusionMatrix": "figures",
    "Dataset": "dataset",
    "EvaluationStep": "task",
    "ExportParts": "task",
    "FigureTable": "figures",
    "Gallery": "figures",
    "InputSamples": "prediction",
    "LossTerm": "task",
    "Metrics": "metrics",
    "Model": "model",
    "PointSet": "figures",
    "PredictionRecord": "prediction",
    "PredictionWriter": "prediction",
    "RunFacts": "callback",
    "SampleTable": "metrics",
    "StepPosition": "task",
    "Task": "task",
    "TaskTraits": "task",
    "TransformedDataset": "dataset",
    "dataset_class": "dataset",
    "require_finite": "sample_checks",
    "require_label": "sample_checks",
    "require_labels": "sample_checks",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
