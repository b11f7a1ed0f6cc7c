"""Contracts: all that packages may ask of one another. Everything else about an object is private.

- ``dataset``: samples on disk (``Dataset``) and samples with their transforms (``TransformedDataset``)
- ``model``: a network with its variants, key maps and ordered layers
- ``task``: what the engine asks of a subject: training, evaluation, prediction and export; ``metrics``: its scores
- ``figures``: tables, images and point sets that a task hands to the report
- ``truth``: what tables of scored samples hold of the truth
- ``prediction``: inputs without labels, and what is written of them and of an evaluation
- ``sample_checks``: finite numbers, labels in range; ``sample_names``: samples by the names that others give them;
  ``sample_groups``: which samples belong together
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
    "TransformedDataset": "dataset",
    "dataset_class": "dataset",
    "require_finite": "sample_checks",
    "require_label": "sample_checks",
    "require_labels": "sample_checks",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
