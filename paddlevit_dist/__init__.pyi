"""The public names: ``__init__`` imports each on first use, and type checkers read it here."""

from .checkpoint.load import load_weights
from .data.sampler import EvaluationSampler, TrainingSampler
from .distributed import all_gather, barrier, broadcast_object, is_main, rank, reduce_dict, world_size
from .engine.trainer import Trainer
from .images.classification.image_transform import create_transform
from .images.detection.meter import CocoAP
from .inference.predictor import Predictor
from .library.data import open_dataset
from .library.meters import Accuracy, MeanIoU
from .library.models import create_model
from .library.runs import TrainedRun, evaluate, load_config, predict, train
from .points.instances.meter import ScanNetAP
from .registry.lookup import list_models
from .registry.manifest import Manifest
from .registry.register import (
    register_callback,
    register_dataset,
    register_feature,
    register_model,
    register_scene_format,
    register_score_kind,
    register_task,
    register_transform,
)
from .runtime.errors import Stopped, UserError
from .settings.key import Key, Range
from .tasks.callback import Callback
from .volumes.landmarks.meter import RadialError
from .volumes.segmentation.meter import VolumeDice

__all__ = [
    "Accuracy",
    "Callback",
    "CocoAP",
    "EvaluationSampler",
    "Key",
    "Manifest",
    "MeanIoU",
    "Predictor",
    "RadialError",
    "Range",
    "ScanNetAP",
    "Stopped",
    "TrainedRun",
    "Trainer",
    "TrainingSampler",
    "UserError",
    "VolumeDice",
    "all_gather",
    "barrier",
    "broadcast_object",
    "create_model",
    "create_transform",
    "evaluate",
    "is_main",
    "list_models",
    "load_config",
    "load_weights",
    "open_dataset",
    "predict",
    "rank",
    "reduce_dict",
    "register_callback",
    "register_dataset",
    "register_feature",
    "register_model",
    "register_scene_format",
    "register_score_kind",
    "register_task",
    "register_transform",
    "train",
    "world_size",
]
__version__: str
