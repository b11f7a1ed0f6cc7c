"""Train and evaluate vision models with PaddlePaddle on one GPU or many machines, with reproducible results.

The public names are imported on first use, so that ``import paddlevit_dist`` alone does not load Paddle.
"""

import sys
import warnings
import zlib

from .runtime.lazy_names import lazy_names
from .runtime.processor import choose_kernels

__version__ = "0.1.0rc1"

# Used once before Paddle's import: 2.6's library bundles another zlib, to which this one would be bound, and crash.
if "paddle" not in sys.modules:
    zlib.decompress(zlib.compress(b""))

choose_kernels()

# On import, Paddle warns about a missing tool for compiling operators, which this package does not do.
warnings.filterwarnings(
    "ignore", "No ccache found", UserWarning, module=r"paddle\.utils\.cpp_extension\.extension_utils"
)

_NAMES = {
    "Accuracy": "library.meters",
    "Callback": "tasks.callback",
    "CocoAP": "images.detection.meter",
    "EvaluationSampler": "data.sampler",
    "Key": "settings.key",
    "Manifest": "registry.manifest",
    "MeanIoU": "library.meters",
    "Predictor": "inference.predictor",
    "RadialError": "volumes.landmarks.meter",
    "Range": "settings.key",
    "ScanNetAP": "points.instances.meter",
    "Stopped": "runtime.errors",
    "TrainedRun": "library.runs",
    "Trainer": "engine.trainer",
    "TrainingSampler": "data.sampler",
    "UserError": "runtime.errors",
    "VolumeDice": "volumes.segmentation.meter",
    "all_gather": "distributed",
    "barrier": "distributed",
    "broadcast_object": "distributed",
    "create_model": "library.models",
    "create_transform": "images.classification.image_transform",
    "evaluate": "library.runs",
    "is_main": "distributed",
    "list_models": "registry.lookup",
    "load_config": "library.runs",
    "load_weights": "checkpoint.load",
    "open_dataset": "library.data",
    "predict": "library.runs",
    "rank": "distributed",
    "reduce_dict": "distributed",
    "register_callback": "registry.register",
    "register_dataset": "registry.register",
    "register_feature": "registry.register",
    "register_model": "registry.register",
    "register_scene_format": "registry.register",
    "register_score_kind": "registry.register",
    "register_task": "registry.register",
    "register_transform": "registry.register",
    "train": "library.runs",
    "world_size": "distributed",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
