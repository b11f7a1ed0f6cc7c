"""Names of models, datasets and tasks, each with the location it is imported from on first use.

Only tables of names are imported here: listing them does not need Paddle, and a package is loaded when one of its names
is requested. The names of a deleted folder disappear with it.
"""

import difflib
import functools
import multiprocessing
import os
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, NamedTuple

from ..runtime.environment import program
from ..runtime.errors import UserError
from ..runtime.lazy_names import import_object
from . import extension, model_sources, plugins
from .model_names import read_model_names
from .other_names import OTHER_NAMES, SPELLINGS, spellings

_GUESS_DATASET = "paddlevit_dist.images.data.guessing:guess"
_FIND_BOXES = "paddlevit_dist.images.data.box_layouts:find_boxes"

Target = str | Callable[..., Any]

_MISSING_FOLDERS = tuple(
    f"paddlevit_dist.{folder}."
    for folder in ("points", "volumes", "images.detection", "images.segmentation")
    if not os.path.isfile(os.path.join(os.path.dirname(__file__), "..", *folder.split("."), "__init__.py"))
)


def _installed(rows: dict[str, Target]) -> dict[str, Target]:
    """Return the rows whose folder exists."""
    return {name: target for name, target in rows.items() if not str(target).startswith(_MISSING_FOLDERS)}


_IMAGE_MODELS, _DETECTORS = "paddlevit_dist.images.models", "paddlevit_dist.images.detection"
_SPARSE_NETWORKS = "paddlevit_dist.points.sparse"
# Classes with variants. Their names are in model_names.json: run `make reference` after a change of a row or a variant.
MODEL_FAMILIES: tuple[str, ...] = (
    f"{_IMAGE_MODELS}.vit:VisionTransformer",
    f"{_IMAGE_MODELS}.deit:DeiT",
    f"{_IMAGE_MODELS}.deit:DistilledDeiT",
    f"{_IMAGE_MODELS}.swin:SwinTransformer",
    f"{_IMAGE_MODELS}.cait:CaiT",
    f"{_IMAGE_MODELS}.pvt_v2:PyramidVisionTransformer",
    f"{_IMAGE_MODELS}.mit:MixVisionTransformer",
    f"{_IMAGE_MODELS}.mlp_mixer:MlpMixer",
    f"{_IMAGE_MODELS}.convnext:ConvNeXt",
    f"{_IMAGE_MODELS}.resnet:ResNet",
    f"{_IMAGE_MODELS}.hgnetv2:HGNetV2",
    f"{_IMAGE_MODELS}.segformer:SegFormer",
    f"{_IMAGE_MODELS}.segformer:MmsegmentationsSegFormer",
    f"{_IMAGE_MODELS}.upernet:UPerNet",
    f"{_IMAGE_MODELS}.fcn:FCN",
    f"{_IMAGE_MODELS}.fcn:LinearSegmenter",
    f"{_DETECTORS}.detr.network:Detr",
    f"{_DETECTORS}.rtdetr.network:RtDetr",
    f"{_DETECTORS}.rfdetr.network:RfDetr",
    f"{_DETECTORS}.mask_rcnn.network:MaskRCNN",
    f"{_DETECTORS}.mask_rcnn.network:FasterRCNN",
    f"{_SPARSE_NETWORKS}.minkunet:MinkUNet",
    f"{_SPARSE_NETWORKS}.minkunet:MinkClassifier",
    f"{_SPARSE_NETWORKS}.minkunet:TutorialNetwork",
)
MODEL_FAMILIES = tuple(family for family in MODEL_FAMILIES if not family.startswith(_MISSING_FOLDERS))
MODELS = _installed(
    {
        "unet3d": "paddlevit_dist.volumes.unet3d:UNet3D",
        "pointgroup": "paddlevit_dist.points.instances.pointgroup:PointGroup",
        **{name: family for family in MODEL_FAMILIES for name in read_model_names().get(family, ())},
    }
)
MODELS = {**{spelling: MODELS[name] for spelling, name in SPELLINGS.items() if name in MODELS}, **MODELS}

# Layouts of images with label maps, all read by one class.
_LABEL_MAPS = (
    *("label_maps", "ade20k", "cityscapes", "voc_segmentation", "pascal_context", "coco_stuff", "coco_panoptic"),
    *("labelme", "yolo_outlines"),
)

DATASETS = _installed(
    {
        "digits": "paddlevit_dist.images.data.small_sets:Digits",
        "mnist": "paddlevit_dist.images.data.small_sets:Mnist",
        "fashion_mnist": "paddlevit_dist.images.data.small_sets:FashionMnist",
        "cifar10": "paddlevit_dist.images.data.cifar:Cifar10",
        "cifar100": "paddlevit_dist.images.data.cifar:Cifar100",
        "imagenet2012": "paddlevit_dist.images.data.imagenet:ImageNet2012",
        "folder": "paddlevit_dist.images.data.class_folders:ClassFolders",
        "tar": "paddlevit_dist.images.data.tar:TarImages",
        "coco": "paddlevit_dist.images.detection.data.coco:Coco",
        "voc": "paddlevit_dist.images.detection.data.voc:Voc",
        "yolo": "paddlevit_dist.images.detection.data.yolo:Yolo",
        "synthetic_shapes": "paddlevit_dist.images.detection.data.synthetic_shapes:SyntheticShapes",
        "segmentation_shapes": "paddlevit_dist.images.segmentation.data.segmentation_dataset:SegmentationShapes",
        **dict.fromkeys(_LABEL_MAPS, "paddlevit_dist.images.segmentation.data.label_maps:LabelMaps"),
        "landmarks": "paddlevit_dist.volumes.landmarks.dataset:LandmarkDataset",
        "synthetic_landmarks": "paddlevit_dist.volumes.phantoms:SyntheticLandmarks",
        "nnunet": "paddlevit_dist.volumes.segmentation.nnunet:NnUNet",
        "synthetic_organs": "paddlevit_dist.volumes.segmentation.phantoms:SyntheticOrgans",
        "synthetic_rooms": "paddlevit_dist.points.data.rooms:SyntheticRooms",
        "scenes": "paddlevit_dist.points.data.scenes:PreparedScenes",
        "scannet": "paddlevit_dist.points.data.scenes:ScanNet",
        "synthetic_solids": "paddlevit_dist.points.shapes.solids:SyntheticSolids",
        "modelnet10": "paddlevit_dist.points.shapes.data:ModelNet10",
        "modelnet40": "paddlevit_dist.points.shapes.data:ModelNet40",
    }
)

CLASS_LABELS, BOX_LABELS, MASK_LABELS = "images", "images with boxes", "images with label maps"
_ANNOTATIONS = {
    "paddlevit_dist.images.detection.": BOX_LABELS,
    **dict.fromkeys(
        (
            "paddlevit_dist.images.segmentation.",
            "paddlevit_dist.images.models.segformer:",
            "paddlevit_dist.images.models.upernet:",
            "paddlevit_dist.images.models.fcn:",
        ),
        MASK_LABELS,
    ),
}

# Datasets that ship with the package and need no path.
BUNDLED = ("digits", *(name for name in DATASETS if name.startswith("synthetic_")), "segmentation_shapes")

TASKS = _installed(
    {
        "classification": "paddlevit_dist.images.classification.task:Classification",
        "linear_probe": "paddlevit_dist.images.classification.probes:LinearProbe",
        "knn_probe": "paddlevit_dist.images.classification.probes:KnnProbe",
        "landmarks": "paddlevit_dist.volumes.landmarks.task:LandmarkDetection",
        "volume_segmentation": "paddlevit_dist.volumes.segmentation.task:VolumeSegmentation",
        "semantic_segmentation": "paddlevit_dist.points.segmentation.task:SemanticSegmentation",
        "pointgroup": "paddlevit_dist.points.instances.task:InstanceSegmentation",
        "shape_classification": "paddlevit_dist.points.shapes.task:ShapeClassification",
        "detection": "paddlevit_dist.images.detection.task:Detection",
        "image_segmentation": "paddlevit_dist.images.segmentation.task:ImageSegmentation",
    }
)

# Tables of configuration keys that each task reads in addition to the common ones. Any other task reads all keys. These
# modules do not import Paddle.
_IMAGES_TABLE = "paddlevit_dist.images.settings:IMAGES"
_CLASSIFICATION_TABLES = (_IMAGES_TABLE, "paddlevit_dist.images.classification.settings:TABLE")
_PROBE_TABLES = (*_CLASSIFICATION_TABLES, "paddlevit_dist.images.classification.settings:PROBE_TABLE")
_OBJECTS_TABLE = "paddlevit_dist.images.settings:OBJECTS"
_POINTS_TABLE = "paddlevit_dist.points.settings:TABLE"
_VOLUMES_TABLE = "paddlevit_dist.volumes.settings:VOLUMES"
_LANDMARK_TABLES = (_VOLUMES_TABLE, "paddlevit_dist.volumes.settings:LANDMARKS")

TABLES: dict[str, Sequence[str]] = {
    "classification": _CLASSIFICATION_TABLES,
    "linear_probe": _PROBE_TABLES,
    "knn_probe": _PROBE_TABLES,
    "landmarks": _LANDMARK_TABLES,
    "volume_segmentation": [_VOLUMES_TABLE, "paddlevit_dist.volumes.segmentation.settings:TABLE"],
    "semantic_segmentation": [_POINTS_TABLE, "paddlevit_dist.points.segmentation.settings:TABLE"],
    "pointgroup": [_POINTS_TABLE, "paddlevit_dist.points.instances.settings:TABLE"],
    "shape_classification": ["paddlevit_dist.points.shapes.settings:TABLE"],
    "detection": [_IMAGES_TABLE, _OBJECTS_TABLE, "paddlevit_dist.images.detection.settings:TABLE"],
    "image_segmentation": [_IMAGES_TABLE, _OBJECTS_TABLE, "paddlevit_dist.images.segmentation.settings:TABLE"],
}
TABLES = {task: tables for task, tables in TABLES.items() if task in TASKS}
_BUILT_IN_TABLES = tuple(table for tables in TABLES.values() for table in tables)

# The recipe (-cfg=NAME) that messages suggest: by dataset, else by annotations of images, else by package.
RECIPES = {
    **dict.fromkeys(("mnist", "fashion_mnist"), "vit_mnist"),
    "digits": "vit_digits",
    **dict.fromkeys(("synthetic_solids", "modelnet10", "modelnet40"), "mink_classifier_solids"),
    "synthetic_shapes": "detr_shapes",
    "segmentation_shapes": "segformer_b0_shapes",
    **dict.fromkeys(("coco", "voc", "yolo"), "finetune_detector"),
    **dict.fromkeys(("nnunet", "synthetic_organs"), "volume_unet3d_phantoms"),
    "folder": "finetune_folder",
    "images": "vit_tiny_patch16_224",
    BOX_LABELS: "detr_r50_coco",
    MASK_LABELS: "segformer_b0_shapes",
    **dict.fromkeys(_LABEL_MAPS, "segformer_b0_ade20k"),
    "cityscapes": "segformer_b0_cityscapes",
    "points": "minkunet34c_scannet",
    "volumes": "landmark_unet3d",
}

CALLBACKS: dict[str, Target] = {
    "tensorboard": "paddlevit_dist.logging.event_logs:TensorBoardLog",
    "visualdl": "paddlevit_dist.logging.event_logs:VisualDlLog",
    "wandb": "paddlevit_dist.logging.services:WandbLog",
    "mlflow": "paddlevit_dist.logging.services:MlflowLog",
}

TRANSFORMS: dict[str, Target] = {}  # of users

# By kind of a table of samples: what computes its scores again, see ``tasks.score_kind``.
_SCORE_KINDS = _installed(
    {
        "classes": "paddlevit_dist.metrics.classification_scores:ClassificationScores",
        "confusions": "paddlevit_dist.metrics.confusion:ConfusionScores",
        "landmarks": "paddlevit_dist.volumes.landmarks.metrics:LandmarkScores",
        "volume classes": "paddlevit_dist.volumes.segmentation.metrics:VolumeScores",
        "boxes": "paddlevit_dist.images.detection.evaluation.score_kind:BoxScores",
        "instances": "paddlevit_dist.points.instances.score_kind:InstanceScores",
    }
)

KINDS: dict[str, MutableMapping[str, Target]] = {
    "model": MODELS,
    "dataset": DATASETS,
    "task": TASKS,
    "callback": CALLBACKS,
    "transform": TRANSFORMS,
    "score_kind": _SCORE_KINDS,
}


class Registration(NamedTuple):
    """An entry that a user has registered.

    Attributes:
        target: the model, dataset or task.
        tables: key tables that a task reads, as passed to ``register_task``.
        keys: tables of the keys that it adds.
        origin: file and line of the call.
    """

    target: Target
    tables: Sequence[Any] | None
    keys: list[Any]
    origin: str


REGISTRATIONS: dict[tuple[str, str], Registration] = {}  # by kind and name
READ_DECLARED = "paddlevit_dist.settings.custom_keys:read_declared"


def resolve(kind: str, name: str) -> Any:
    """Import and return the object registered as ``name`` under ``kind``, a key of ``KINDS``.

    Raises:
        UserError: nothing is registered under that name; the message suggests the closest ones.
    """
    name = find_name(kind, name)
    target = KINDS[kind][name]
    if not isinstance(target, str):
        return target
    target = import_object(target)
    if (
        find_package(kind, name) is None
        and import_object(READ_DECLARED)(target) is not None
        and not custom_tables(kind, name)
    ):
        raise UserError(
            f"{kind} '{name}' declares keys in its class, which is imported after they are needed: register the "
            f"class itself, or name the keys, as in register_{kind}('{name}', ..., keys='my_settings:KEYS')"
        )
    return target


def require_derived(target: Any, base: type) -> Any:
    """Return ``target``, a registered class or an object of one, if it is derived from ``base``.

    Raises:
        UserError: it is not.
    """
    cls = target if isinstance(target, type) else type(target)
    if not issubclass(cls, base):
        name = getattr(target, "__name__", cls.__name__)
        statement = f"from {base.__module__} import {base.__name__}"
        raise UserError(f"{name} is not derived from {base.__name__}: derive it ('{statement}')")
    return target


def find_name(kind: str, name: str) -> str:
    """Return the registered name for ``name`` or another spelling of it.

    Other spellings are in capitals, with hyphens, with timm's tag or an owner ("google/vit-base-patch16-224"), or as in
    torchvision or papers ("ViT-B/16").

    Raises:
        UserError: as ``resolve``.
    """
    table = KINDS[kind]
    if kind == "model" and ":" in name and (bridged := model_sources.find_bridged(name)):
        if ("model", bridged[0]) not in REGISTRATIONS:
            MODELS.update([bridged])
        return bridged[0]
    if name in table:
        return name
    for spelling in spellings(name):
        spelling = OTHER_NAMES[kind].get(spelling, spelling)
        if spelling in table:
            return spelling
    if plugins.load_installed():  # they may have registered more names
        return find_name(kind, name)
    valid = f"'{program('inspect')} --list' lists all"
    if kind == "model" and (absent := model_sources.explain_unsupported(name)):
        raise UserError(f"model '{name}': {absent}; {valid}")
    near = [f"'{other}'" for other in difflib.get_close_matches(name.lower(), list(table), n=3, cutoff=0.0)]
    hint = f"{kind} '{name}' is not known: "
    suggestions = " or ".join(part for part in (", ".join(near[:-1]), *near[-1:]) if part)
    hint += f"did you mean {suggestions}?" if suggestions else "none is registered:"
    if kind != "model":
        valid = f"valid names: {', '.join(sorted(table))}" if table else f"add one with register_{kind}"
    advice = "import your own with -import=MODULE"
    if multiprocessing.parent_process() is not None:
        advice = (
            'a worker process runs neither the code inside `if __name__ == "__main__"` nor the cells of a notebook: '
            "register it at the top level of a file, and name the file with IMPORTS=['my_things.py'] "
            "(-import=my_things.py)"
        )
    raise UserError(f"{hint} {valid}; {advice}")


def list_names(kind: str) -> list[str]:
    """Return all registered names of the ``kind``, in alphabetical order."""
    return sorted(KINDS[kind])


def find_package(kind: str, name: str) -> str | None:
    """Return the package of a built-in name ("images", "points" or "volumes"); None for any other name."""
    target = KINDS[kind].get(name)
    return target.split(".")[1] if isinstance(target, str) and target.startswith("paddlevit_dist.") else None


def annotation_type(kind: str, name: str) -> str | None:
    """Return the annotations that a built-in name of the package "images" is for; None for any other name.

    It is one of CLASS_LABELS, BOX_LABELS and MASK_LABELS. A model for CLASS_LABELS may be part of another model.
    """
    target = KINDS[kind].get(name)
    if find_package(kind, name) != "images" or not isinstance(target, str):
        return None
    return next((labels for location, labels in _ANNOTATIONS.items() if target.startswith(location)), CLASS_LABELS)


def guess_dataset(path: str, task: str | None = None) -> Any:
    """Guess the dataset at ``path``: an object with ``dataset`` and ``reason``, or None.

    Args:
        path: folder or file of the data.
        task: the task that will read it, if known: several tasks can read some folders.
    """
    return import_object(_GUESS_DATASET)(path, annotation_type("task", task) if task is not None else None)


def find_box_datasets(folder: str) -> list[str]:
    """Return the datasets of images with boxes in a folder, usually none or one."""
    return [guess.dataset for guess in import_object(_FIND_BOXES)(folder, folder)]


def key_tables(task: str | None = None, dataset: str | None = None, model: str | None = None) -> list[Any]:
    """Return the key tables that a run of ``task`` reads, the engine's first, those for users' keys last.

    All tables are returned for None or for a task without tables.
    """
    if task in TABLES:
        chosen = [("task", task), ("dataset", dataset), ("model", model)]
        tables = [*TABLES[task]]
    else:
        chosen = list(REGISTRATIONS)
        tables = [*_BUILT_IN_TABLES, *(table for tables in TABLES.values() for table in tables)]
    tables += [table for kind, name in chosen for table in custom_tables(kind, name or "")]
    return list(dict.fromkeys([*common_tables(), *map(_table, dict.fromkeys(tables))]))


def known_tables(task: str | None = None) -> list[Any]:
    """Return the tables whose keys a configuration of ``task`` contains: its own and all of users' names.

    All tables are returned for None, and for a task of a user: the rules of a table may read keys of others.
    """
    task = task if task in TABLES and find_package("task", task) is not None else None
    custom = [table for kind, name in REGISTRATIONS for table in custom_tables(kind, name)]
    return list(dict.fromkeys([*key_tables(task), *custom]))


def iterate_tables() -> Iterator[Any]:
    """Yield every table once, the tables of every run first; each is imported when it is reached."""
    yield from common_tables()
    of_tasks = [*_BUILT_IN_TABLES, *(table for tables in TABLES.values() for table in tables)]
    yield from map(_table, dict.fromkeys(of_tasks))


@functools.cache
def common_tables() -> tuple[Any, ...]:
    """Return the engine's key table and the tables of the installed extensions."""
    return (import_object("paddlevit_dist.engine.settings:TABLE"), *extension.find_tables())


def custom_tables(kind: str, name: str) -> list[Any]:
    """Return the tables of the keys that a user has registered with a name."""
    registration = REGISTRATIONS.get((kind, name))
    return list(registration.keys) if registration is not None and name in KINDS[kind] else []


def list_other_tables(kind: str, name: str) -> list[Any]:
    """Return all tables but the ones that a user has registered with this name."""
    custom = [table for entry in REGISTRATIONS if entry != (kind, name) for table in custom_tables(*entry)]
    return [*common_tables(), *map(_table, _BUILT_IN_TABLES), *custom]


def find_readers(key: str) -> list[tuple[str, str]]:
    """Return kind and name of the tasks and users' entries whose tables contain ``key``."""
    tasks = [
        ("task", task)
        for task, tables in TABLES.items()
        if any(row.name == key for table in tables for row in _table(table).keys)
    ]
    custom = [
        entry
        for entry in REGISTRATIONS
        if any(row.name == key for table in custom_tables(*entry) for row in table.keys)
    ]
    return list(dict.fromkeys([*tasks, *custom]))


_import_table = functools.cache(import_object)


def _table(table: Any) -> Any:
    return _import_table(table) if isinstance(table, str) else table


def closest(name: str, valid: list[str]) -> str:
    """Return ``"did you mean 'x'? "`` for the most similar valid name, or an empty text."""
    matches = difflib.get_close_matches(name, valid, n=1, cutoff=0.6)
    return f"did you mean '{matches[0]}'? " if matches else ""
