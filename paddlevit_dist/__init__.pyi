"""The public names: ``__init__`` imports each on first use, and type checkers read it here."""

from .core.checkpoint.load import load_weights
from .core.data.sampler import EvaluationSampler, TrainingSampler
from .core.distributed import (
    all_gather,
    barrier,
    broadcast_object,
    convert_batch_norm,
    is_main,
    rank,
    reduce_dict,
    world_size,
)
from .core.engine.trainer import Trainer
from .core.inference.predictor import Predictor
from .core.launch import launch_workers, plan_processes
from .core.library.data import open_dataset
from .core.library.meters import Accuracy, MeanIoU, Meter, MeterScores
from .core.library.models import create_model
from .core.library.runs import TrainedRun, evaluate, load_config, predict, train
from .core.registry.lookup import list_models
from .core.registry.manifest import Manifest
from .core.registry.register import (
    register_callback,
    register_dataset,
    register_feature,
    register_model,
    register_scene_format,
    register_score_kind,
    register_task,
    register_transform,
)
from .core.runtime.errors import Stopped, UserError
from .core.runtime.outages import StorageOutage
from .core.settings.key import Key, Range
from .core.tasks.callback import Callback
from .images.classification.image_transform import create_transform
from .images.detection.meter import CocoAP
from .points.instances.meter import ScanNetAP
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
    "Meter",
    "MeterScores",
    "Predictor",
    "RadialError",
    "Range",
    "ScanNetAP",
    "Stopped",
    "StorageOutage",
    "TrainedRun",
    "Trainer",
    "TrainingSampler",
    "UserError",
    "VolumeDice",
    "all_gather",
    "barrier",
    "broadcast_object",
    "convert_batch_norm",
    "create_model",
    "create_transform",
    "evaluate",
    "is_main",
    "launch_workers",
    "list_models",
    "load_config",
    "load_weights",
    "open_dataset",
    "plan_processes",
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
