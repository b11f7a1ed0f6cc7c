"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .data import OpenedSamples, open_dataset
from .meters import Accuracy, CocoAP, MeanIoU, Meter, MeterScores, RadialError, ScanNetAP, VolumeDice
from .models import FeatureMaps, ImageTransform, create_model, create_transform
from .runs import TrainedRun, evaluate, load_config, predict, train

__all__ = [
    "Accuracy",
    "CocoAP",
    "FeatureMaps",
    "ImageTransform",
    "MeanIoU",
    "Meter",
    "MeterScores",
    "OpenedSamples",
    "RadialError",
    "ScanNetAP",
    "TrainedRun",
    "VolumeDice",
    "create_model",
    "create_transform",
    "evaluate",
    "load_config",
    "open_dataset",
    "predict",
    "train",
]
