"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .callback import Callback, RunFacts
from .dataset import Dataset, TransformedDataset, dataset_class
from .figures import Chart, ConfusionMatrix, FigureTable, Gallery, PointSet
from .metrics import Metrics, SampleTable
from .model import Model
from .prediction import CheckpointMeta, InputSamples, PredictionRecord, PredictionWriter
from .sample_checks import BadSample, require_finite, require_label, require_labels
from .task import EvaluationStep, ExportParts, LossTerm, StepPosition, Task, TaskTraits

__all__ = [
    "BadSample",
    "Callback",
    "Chart",
    "CheckpointMeta",
    "ConfusionMatrix",
    "Dataset",
    "EvaluationStep",
    "ExportParts",
    "FigureTable",
    "Gallery",
    "InputSamples",
    "LossTerm",
    "Metrics",
    "Model",
    "PointSet",
    "PredictionRecord",
    "PredictionWriter",
    "RunFacts",
    "SampleTable",
    "StepPosition",
    "Task",
    "TaskTraits",
    "TransformedDataset",
    "dataset_class",
    "require_finite",
    "require_label",
    "require_labels",
]
