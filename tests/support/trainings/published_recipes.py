"""For each recipe a tiny set in the layout that it reads, and words that make it small.

What is cut are sizes of networks, images and batches, and epochs; backbones start from scratch.
"""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from paddlevit_dist.core import settings
from support.files import label_map_layouts, segment_layouts
from support.files.nnunet_folders import raw_data
from support.processes import ROOT
from support.samples import published_images as images
from support.samples.published_keypoints import LAYOUTS as KEYPOINTS
from support.samples.published_volumes import write_landmark_folders
from support.trainings.recipe_steps import reduced
from support.trainings.scene_recipes import CLUSTERS, narrow
from support.trainings.store_recipes import COARSE
from support.trainings.store_recipes import LAYOUTS as SCENES


class Layout(NamedTuple):
    """A tiny set as it is published.

    Attributes:
        write: writes it into a folder.
        dataset: its names; the first is given to recipes of other data.
        prepare: words of ``prepare`` that make a store of it, if a page says so.
        words: further words of a recipe.
    """

    write: Callable[[Path], Any]
    dataset: tuple[str, ...]
    prepare: str = ""
    words: tuple[str, ...] = ()


_OF_KEYPOINTS = ("coco_keypoints", "yolo_pose", "keypoint_table")
_OF_SEGMENTS = {f"segments of {name}": write for name, write in segment_layouts.LAYOUTS.items()}
_ONE_SPLIT = ("label_maps", "labelme")  # exports of labeling tools
_PREPARED_AS = {"pth": "pth", "ply": "ply --classes={raw}/classes.txt", "pcd": "scenes --classes={raw}/classes.txt"}
LAYOUTS = {
    "synsets": Layout(images.write_synsets, ("folder", "imagenet2012", "unlabeled")),
    "lists": Layout(images.write_lists, ("imagenet2012",)),
    "kit": Layout(images.write_kit, ("imagenet2012",)),
    "class tars": Layout(images.write_class_tars, ("tar",), "images {raw} {store} --shorter_side=32"),
    "clothes": Layout(images.write_clothes, ("fashion_mnist", "mnist")),
    "chexpert": Layout(images.write_chexpert, ("table",)),
    "coco": Layout(images.write_coco_2017, ("coco",)),
    "voc": Layout(images.write_voc_2007, ("voc",)),
    "yolo": Layout(images.write_yolo_labels, ("yolo",)),
    **{
        name: Layout(write, (name,), words=("DATA.VAL_FRACTION", "0.5") if name in _ONE_SPLIT else ())
        for name, (write, *_) in label_map_layouts.LAYOUTS.items()
    },
    **{name: Layout(write, ("panoptic",)) for name, write in _OF_SEGMENTS.items()},
    **{
        name: Layout(write, ("scenes",), f"{_PREPARED_AS.get(name, 'scenes')} {{raw}} {{store}}")
        for name, (write, prepare) in SCENES.items()
        if prepare is not None
    },
    "scannet": Layout(SCENES["scannet"][0], ("scannet",), "scannet {raw} {store}"),
    "modelnet40": Layout(SCENES["modelnet40"][0], ("modelnet40",)),
    "nnunet": Layout(raw_data, ("nnunet",)),
    "landmarks": Layout(write_landmark_folders, ("landmarks",)),
    **{name: Layout(KEYPOINTS[name], (name,)) for name in _OF_KEYPOINTS},
}
WITHOUT_CLASS = ("landmarks", *_OF_KEYPOINTS, *_OF_SEGMENTS)  # whose outputs are points, or queries
#: the layout of each data set that recipes name
_OF_DATASET = {
    "imagenet2012": "synsets",
    "folder": "synsets",
    "unlabeled": "synsets",
    "fashion_mnist": "clothes",
    "mnist": "clothes",
    "panoptic": "segments of coco",
}
#: recipes of data that the package has or draws, on the layout of somebody's own data; and further layouts of ImageNet
_OF_RECIPE = {
    "vit_digits": "synsets",
    "multi_digits": "chexpert",
    "dino_digits": "synsets",
    "mae_digits": "synsets",
    "detr_shapes": "voc",
    "dfine_shapes": "coco",
    "rtdetr_shapes": "yolo",
    "mask_rcnn_shapes": "coco",
    "rfdetr_seg_shapes": "coco",
    "heatmap_figures": "yolo_pose",
    "vitpose_figures": "keypoint_table",
    "detrpose_figures": "coco_keypoints",
    "segformer_b0_shapes": "voc_segmentation",
    "eomt_shapes": "voc_segmentation",
    "eomt_panoptic_shapes": "segments of own_ids",
    "eomt_ade20k_panoptic_large_640": "segments of ade20k_instances",
    "eomt_ade20k_panoptic_large_1280": "segments of ade20k",
    "mink_classifier_solids": "modelnet40",
    "minkunet14_synthetic_rooms": "semantic_kitti",
    "minkunet_tutorial": "s3dis",
    "minkunet_tutorial_original": "pcd",
    "minkunet34c_nuscenes": "nuscenes",
    "ptv3_nuscenes": "nuscenes",
    "ptv3_s3dis": "areas of pointcept",
    "ptv3_scannet": "pointcept",
    "ptv3_scannet_sonata": "pointcept",
    "ptv3_synthetic_rooms": "pcd",
    "pointgroup_synthetic_rooms": "pth",
    "landmark_unet3d": "landmarks",
    "volume_unet3d_phantoms": "nnunet",
    "probe_knn": "synsets",
    "probe_linear": "synsets",
    "resnet18": "lists",
    "resnet34": "class tars",
    "resnet50": "kit",
}
#: a small recipe for each layout that none names, or only large ones
SMALL = {
    "coco": "dfine_shapes",
    **dict.fromkeys(_OF_KEYPOINTS, "heatmap_figures"),
    "ade20k": "segformer_b0_ade20k",
    **dict.fromkeys(_OF_SEGMENTS, "eomt_panoptic_shapes"),
    **dict.fromkeys(
        ("pascal_context", "coco_stuff", "coco_panoptic", "label_maps", "labelme", "yolo_outlines"),
        "segformer_b0_shapes",
    ),
    **dict.fromkeys(("scannet", "nuscenes", "semantic_kitti", "ply"), "minkunet_tutorial"),
}


#: recipes that no tiny set can show, each with the reason
CANNOT: dict[str, str] = {}


def list_recipes() -> list[str]:
    """The names of all recipes, as ``inspect recipes`` lists them."""
    return sorted(path.stem for path in (ROOT / "configs").glob("*.yaml"))


@functools.cache
def load(recipe: str) -> Any:
    return settings.load([f"-cfg={ROOT / 'configs' / recipe}.yaml"]).values


def find_layout(recipe: str) -> str:
    """The layout that a recipe reads."""
    if recipe in _OF_RECIPE:
        return _OF_RECIPE[recipe]
    dataset = load(recipe).DATA.DATASET
    return _OF_DATASET.get(dataset, dataset)


_SHORT = (
    "-ngpus=1 -accum_iter=1 -num_workers=0 -epochs=1 VALIDATE_FREQ 1 REPORT False REPORT_FREQ 1 "
    "TRAIN.WARMUP_STEPS None TRAIN.WARMUP_EPOCHS 0"
).split()
_SIDES = (
    "-batch_size=2 DATA.SHORTEST_SIDES [64] DATA.CROP_SHORTEST_SIDES [64] DATA.CROP_SIDES [48,64] "
    "DATA.EVAL_SHORTEST_SIDE 64"
).split()
_MAPS = (
    "-batch_size=1 DATA.CROP_SIZE [64,96] DATA.BASE_SHORTEST_SIDE 64 DATA.EVAL_SHORTEST_SIDE 64 "
    "SEGMENTATION.CROP [64,48] SEGMENTATION.STRIDE [32,32]"
).split()
_VOLUMES = (
    "-batch_size=1 VOLUMES.CROP_SIZE [8,10,12] VOLUMES.UNET_WIDTH 2 VOLUMES.UNET_DEPTH 2 VOLUMES.SPACING_MM [2,1.5,1] "
    "VOLUMES.INTENSITY_WINDOW None"
).split()
_DECODER = [
    word for name in ("WIDTH 16", "DEPTH 1", "HEADS 2") for word in f"MASKED_AUTOENCODER.DECODER_{name}".split()
]
_HEAD = "OUTPUTS 16,HEAD_WIDTH 16,BOTTLENECK 8,SMALL_VIEWS 1,SMALL_SIZE 32,FROZEN_EPOCHS 0"
_HEAD = [word for name in _HEAD.split(",") for word in f"SELF_DISTILLATION.{name}".split()]
_FEW_POINTS = (
    "POINTS.INSTANCES.CLUSTER_POINTS 3 POINTS.INSTANCES.MIN_PREDICTION_POINTS 3 POINTS.INSTANCES.SCORE_THRESHOLD 0"
).split()


def _cut_classifier(recipe: str) -> list[str]:
    if load(recipe).DATA.IMAGE_SIZE < 100:
        return ["-batch_size=4"]
    _, size, *words = reduced(load(recipe).MODEL.NAME)
    if load(recipe).DATA.IMAGE_SIZE == 384:  # fine-tuned from 224 pixels: positions are resized here, too
        size = str(int(size) * 7 // 4 if size != "64" or "patch16" in recipe else 96)
    return [f"-batch_size={4 if recipe != 'resnet50' else 500}", "-image_size", size, *words]


def _cut_queries(recipe: str) -> list[str]:
    """Two blocks of published widths, which both see the queries, but of S, B and small networks all."""
    if re.search("_(small|base)_|_shapes$", recipe):
        return ["MODEL.OPTIONS.loss_points", "256"]
    patch = "" if "dinov3" in recipe else "patch_size: 16, "
    epsilon = "norm_epsilon: 1.0e-06, " if "dinov3" in recipe else ""
    sizes = f"{{{patch}{epsilon}depth: 2}}"
    course = "num_blocks: 2, annealing: [[0, 1], [1, 2]]"
    return ["MODEL.OPTIONS", f"{{backbone_options: {sizes}, {course}, loss_points: 256}}"]


def _cut_segments(recipe: str) -> list[str]:
    return ["-batch_size=1", "PANOPTIC.INPUT_SIZE", "[64,96]", *_cut_queries(recipe)]


def _cut_maps(recipe: str) -> list[str]:
    if not recipe.startswith("eomt"):
        return _MAPS
    sides = "-batch_size=1 DATA.CROP_SIZE [64,64] DATA.BASE_SHORTEST_SIDE 64 DATA.EVAL_SHORTEST_SIDE 64"
    return [*sides.split(), "DATA.BASE_LONGEST_SIDE", "64", *_cut_queries(recipe)]


def _cut_detector(recipe: str) -> list[str]:
    values = load(recipe)
    if values.MODEL.TYPE == "eomt":
        sides = ["DATA.SHORTEST_SIDES", "[64]", "DATA.EVAL_SHORTEST_SIDE", "64", "DATA.EVAL_LONGEST_SIDE", "64"]
        return ["-batch_size=2", *sides, *_cut_queries(recipe)]
    words = list(_SIDES)
    if values.MODEL.TYPE == "detr":
        words += ["MODEL.OPTIONS.encoder_layers", "1"]
    if values.MODEL.TYPE != "mask_rcnn":
        words += ["MODEL.OPTIONS.decoder_layers", "2", "MODEL.NUM_QUERIES", "10"]
    if values.DATA.BATCH_SIDES:
        words += ["DATA.BATCH_SIDES", "[96]", "DATA.NO_AUGMENT_EPOCHS", "0"]
    if recipe == "rfdetr_base_coco":  # sides are multiples of 56
        words = [re.sub(r"\b(64|96)\b", "112", word) for word in words]
    if recipe.startswith("rfdetr_seg_"):  # of 24, and of 16 for drawn shapes
        words = [re.sub(r"\b64\b", "96", word) for word in words]
    return words


_CUTS: dict[str, Callable[[str], list[str]]] = {
    "classification": _cut_classifier,
    "linear_probe": _cut_classifier,
    "multi_label": _cut_classifier,
    "masked_autoencoder": lambda recipe: [*_cut_classifier(recipe), *_DECODER],
    "self_distillation": lambda recipe: [*_cut_classifier(recipe), *_HEAD],
    "knn_probe": lambda recipe: [*_cut_classifier(recipe), "PROBE.KNN_K", "3"],
    "detection": _cut_detector,
    "keypoint_detection": _cut_detector,
    "keypoint_heatmaps": lambda recipe: ["-batch_size=2", "HEATMAPS.CROP_SIZE", "[64,64]"],
    "image_segmentation": _cut_maps,
    "panoptic_segmentation": _cut_segments,
    "semantic_segmentation": lambda recipe: [
        *("-batch_size=2", *COARSE),
        *(narrow(recipe) if recipe.startswith("ptv3") else ()),
    ],
    "pointgroup": lambda recipe: ["-batch_size=2", *COARSE, *CLUSTERS, *_FEW_POINTS],
    "shape_classification": lambda recipe: ["-batch_size=2", "SHAPES.VOXEL_SIZE", "0.25"],
    "landmarks": lambda recipe: [*_VOLUMES, "VOLUMES.MIRROR_PAIRS", "[eye_left:eye_right]"],
    "volume_segmentation": lambda recipe: [*_VOLUMES, "VOLUMES.NORMALIZE", "[percentiles, z_score]"],
}


def cut(recipe: str) -> list[str]:
    """Words that make a recipe small."""
    values = load(recipe)
    words = [*_SHORT, *_CUTS[values.TASK](recipe)]
    if values.MODEL.get("BACKBONE_PRETRAINED"):
        words += ["MODEL.BACKBONE_PRETRAINED", "None"]
    return words
