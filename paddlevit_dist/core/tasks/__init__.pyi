"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .aspects import TaskAspect, get_aspect, has_aspect
from .callback import Callback, RunFacts
from .class_labels import require_label
from .dataset import Dataset, TransformedDataset, dataset_class
from .figures import Chart, ConfusionMatrix, FigureTable, Gallery, PointSet, SliceStack
from .measured_task import MeasuredScores, MeasuredTask
from .metrics import Metrics, PerSampleMetrics, SampleTable, TableMetrics
from .model import Model
from .model_factory import create_configured
from .prediction import CheckpointMeta, InputSamples, PredictionRecord, PredictionWriter
from .protocols import (
    AnnotationMatching,
    Capturable,
    Checkable,
    CheckpointMatching,
    DatasetSaving,
    Drawable,
    EnsembleMember,
    Ensembling,
    Exportable,
    FeatureCaching,
    LogContributor,
    ModelChecking,
    ParameterGrouping,
    Predictable,
    Recomputable,
    Reportable,
    Restorable,
    SampleChecking,
    StateKeeping,
)
from .sample_checks import BadSample, require_finite, require_labels
from .score_kind import ScoreKind, join_arrays
from .step_types import EvaluationStep, ExportParts, LossTerm, StepPosition, TaskTraits, enter_value
from .task import Task
from .task_state import TaskState, WeightAverage

__all__ = [
    "AnnotationMatching",
    "BadSample",
    "Callback",
    "Capturable",
    "Chart",
    "Checkable",
    "CheckpointMatching",
    "CheckpointMeta",
    "ConfusionMatrix",
    "Dataset",
    "DatasetSaving",
    "Drawable",
    "EnsembleMember",
    "Ensembling",
    "EvaluationStep",
    "ExportParts",
    "Exportable",
    "FeatureCaching",
    "FigureTable",
    "Gallery",
    "InputSamples",
    "LogContributor",
    "LossTerm",
    "MeasuredScores",
    "MeasuredTask",
    "Metrics",
    "Model",
    "ModelChecking",
    "ParameterGrouping",
    "PerSampleMetrics",
    "PointSet",
    "Predictable",
    "PredictionRecord",
    "PredictionWriter",
    "Recomputable",
    "Reportable",
    "Restorable",
    "RunFacts",
    "SampleChecking",
    "SampleTable",
    "ScoreKind",
    "SliceStack",
    "StateKeeping",
    "StepPosition",
    "TableMetrics",
    "Task",
    "TaskAspect",
    "TaskState",
    "TaskTraits",
    "TransformedDataset",
    "WeightAverage",
    "create_configured",
    "dataset_class",
    "enter_value",
    "get_aspect",
    "has_aspect",
    "join_arrays",
    "require_finite",
    "require_label",
    "require_labels",
]
