"""Contracts between packages: everything that they may use of one another. All other attributes are private.

- ``dataset``: samples on disk (``Dataset``) and samples with their transforms (``TransformedDataset``)
- ``model``: a network with its variants, key maps and ordered layers
- ``task``: what training and evaluation call; ``step_types``: the values that are exchanged
- ``protocols``: what one feature asks in addition, such as a prediction; ``aspects``: finds the class that does it
- ``metrics``: scores and tables of samples; ``score_kind``: computes scores again from these tables
- ``figures``: tables, images and point sets that a task gives to the report
- ``prediction``: inputs without labels, and the files of a prediction or an evaluation
- ``sample_checks``: finite numbers, labels in range; ``sample_names``: matches names from other programs' results;
  ``sample_groups``: samples that belong together
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "AnnotationMatching": "protocols",
    "BadSample": "sample_checks",
    "Callback": "callback",
    "Chart": "figures",
    "Checkable": "protocols",
    "CheckpointMatching": "protocols",
    "CheckpointMeta": "prediction",
    "ConfusionMatrix": "figures",
    "Dataset": "dataset",
    "DatasetSaving": "protocols",
    "Drawable": "protocols",
    "EnsembleMember": "protocols",
    "Ensembling": "protocols",
    "EvaluationStep": "step_types",
    "ExportParts": "step_types",
    "Exportable": "protocols",
    "FeatureCaching": "protocols",
    "FigureTable": "figures",
    "Gallery": "figures",
    "InputSamples": "prediction",
    "LogContributor": "protocols",
    "LossTerm": "step_types",
    "Metrics": "metrics",
    "Model": "model",
    "ModelChecking": "protocols",
    "ParameterGrouping": "protocols",
    "PerSampleMetrics": "metrics",
    "PointSet": "figures",
    "Predictable": "protocols",
    "PredictionRecord": "prediction",
    "PredictionWriter": "prediction",
    "Recomputable": "protocols",
    "Reportable": "protocols",
    "Restorable": "protocols",
    "RunFacts": "callback",
    "SampleChecking": "protocols",
    "SampleTable": "metrics",
    "ScoreKind": "score_kind",
    "StepPosition": "step_types",
    "TableMetrics": "metrics",
    "Task": "task",
    "TaskAspect": "aspects",
    "TaskTraits": "step_types",
    "TransformedDataset": "dataset",
    "dataset_class": "dataset",
    "get_aspect": "aspects",
    "has_aspect": "aspects",
    "join_arrays": "score_kind",
    "require_finite": "sample_checks",
    "require_label": "sample_checks",
    "require_labels": "sample_checks",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
