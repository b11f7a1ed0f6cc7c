"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .data import OpenedSamples, open_dataset
from .meters import Accuracy, MeanIoU, Meter, MeterScores
from .models import FeatureMaps, create_model
from .runs import TrainedRun, evaluate, load_config, predict, train

__all__ = [
    "Accuracy",
    "FeatureMaps",
    "MeanIoU",
    "Meter",
    "MeterScores",
    "OpenedSamples",
    "TrainedRun",
    "create_model",
    "evaluate",
    "load_config",
    "open_dataset",
    "predict",
    "train",
]
