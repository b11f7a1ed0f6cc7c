"""Names of models, datasets and tasks, each with the place it is imported from once it is used.

Nothing is imported here: listing names needs no Paddle, and a room is loaded only when one of its names is asked for.
"""

from __future__ import annotations

import difflib
import importlib
from typing import Any, Callable, Dict, List, Union

from .errors import UserError

Target = Union[str, Callable[..., Any]]

_VIT = "paddlevit_dist.images.models.vit:build"
_MINKUNET = "paddlevit_dist.points.models.minkunet:build"

MODELS: Dict[str, Target] = {
    "vit": _VIT,
    "vit_tiny_patch16_224": _VIT,
    "vit_tiny_patch16_384": _VIT,
    "vit_small_patch16_224": _VIT,
    "vit_small_patch16_384": _VIT,
    "vit_small_patch32_224": _VIT,
    "vit_small_patch32_384": _VIT,
    "vit_base_patch16_224": _VIT,
    "vit_base_patch16_384": _VIT,
    "vit_base_patch32_224": _VIT,
    "vit_base_patch32_384": _VIT,
    "vit_large_patch16_224": _VIT,
    "vit_large_patch16_384": _VIT,
    "vit_large_patch32_224": _VIT,
    "vit_large_patch32_384": _VIT,
    "vit_large_patch14_224": _VIT,
    "vit_huge_patch14_224": _VIT,
    "unet3d": "paddlevit_dist.volumes.unet3d:build",
    "minkunet14a": _MINKUNET,
    "minkunet14b": _MINKUNET,
    "minkunet14c": _MINKUNET,
    "minkunet18a": _MINKUNET,
    "minkunet18b": _MINKUNET,
    "minkunet18c": _MINKUNET,
    "minkunet34a": _MINKUNET,
    "minkunet34b": _MINKUNET,
    "minkunet34c": _MINKUNET,
    "minkunet_tutorial": "paddlevit_dist.points.models.minkunet:build_tutorial",
}

DATASETS: Dict[str, Target] = {
    "digits": "paddlevit_dist.images.datasets.digits:Digits",
    "mnist": "paddlevit_dist.images.datasets.idx:Mnist",
    "fashion_mnist": "paddlevit_dist.images.datasets.idx:FashionMnist",
    "cifar10": "paddlevit_dist.images.datasets.cifar:Cifar10",
    "cifar100": "paddlevit_dist.images.datasets.cifar:Cifar100",
    "imagenet2012": "paddlevit_dist.images.datasets.imagenet:ImageNet2012",
    "folder": "paddlevit_dist.images.datasets.folder:ClassFolders",
    "tar": "paddlevit_dist.images.datasets.tar_images:TarImages",
    "landmarks": "paddlevit_dist.volumes.landmarks:Landmarks",
    "synthetic_landmarks": "paddlevit_dist.volumes.phantoms:SyntheticLandmarks",
    "synthetic_rooms": "paddlevit_dist.points.rooms.dataset:SyntheticRooms",
    "scenes": "paddlevit_dist.points.datasets.scenes:Scenes",
    "scannet": "paddlevit_dist.points.datasets.scenes:ScanNet",
}

TASKS: Dict[str, Target] = {
    "classification": "paddlevit_dist.images.classification:Classification",
    "landmarks": "paddlevit_dist.volumes.detection:LandmarkDetection",
    "semantic_segmentation": "paddlevit_dist.points.semantic:SemanticSegmentation",
}

# Tables of the keys that only one room reads; the configuration collects them. These modules import no Paddle.
SETTINGS: List[str] = ["paddlevit_dist.points.settings:KEYS", "paddlevit_dist.volumes.settings:KEYS"]

_TABLES = {"model": MODELS, "dataset": DATASETS, "task": TASKS}


def resolve(kind: str, name: str) -> Any:
    """Import and return what ``name`` stands for among the ``kind`` ("model", "dataset" or "task").

    Raises:
        UserError: nothing is registered under that name; the message has the closest and all valid names.
    """
    table = _TABLES[kind]
    if name not in table:
        hint = closest(name, list(table))
        raise UserError(f"{kind} '{name}' is not known: {hint}valid names: {', '.join(sorted(table))}")
    target = table[name]
    return _import(target) if isinstance(target, str) else target


def room_keys() -> List[Any]:
    """The rows of the table of configuration keys that the rooms add."""
    return [key for target in SETTINGS for key in _import(target)]


def _import(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def closest(name: str, valid: List[str]) -> str:
    """``"did you mean 'x'? "`` for the most similar valid name, or an empty string."""
    matches = difflib.get_close_matches(name, valid, n=1, cutoff=0.6)
    return f"did you mean '{matches[0]}'? " if matches else ""


def register_model(name: str, target: Target) -> None:
    """Make ``create_model(name, ...)`` call ``target(name, num_classes=..., image_size=..., **options)``."""
    MODELS[name] = target


def register_dataset(name: str, target: Target) -> None:
    """Make ``-dataset=name`` build ``target(data_path, split, cache_folder)``."""
    DATASETS[name] = target


def register_task(name: str, target: Target) -> None:
    """Make ``TASK: name`` build ``target(config)``."""
    TASKS[name] = target
