"""What each task writes beside its weights of the input that they were trained on, and of the samples."""

import pytest

from paddlevit_dist.core import settings as config
from paddlevit_dist.core.tasks.task_factory import make_task

LIGHT = {"DATA.IMAGENET_MEAN": [0.25, 0.5, 0.75], "DATA.IMAGENET_STD": [0.125, 0.25, 0.5]}
LIGHT_WORDS = "DATA.IMAGENET_MEAN [0.25,0.5,0.75] DATA.IMAGENET_STD [0.125,0.25,0.5]"
DIGITS = (
    "DATA.IMAGE_SIZE 32 DATA.CROP_PCT 0.75 DATA.CROP_MODE squash DATA.IMAGENET_MEAN 0.25 DATA.IMAGENET_STD 0.125 "
    "DATA.EXIF_ROTATE True DATA.INTERPOLATION bilinear",
    {
        **{"DATA.IMAGE_SIZE": 32, "DATA.IMAGE_CHANNELS": 1, "DATA.CROP_PCT": 0.75, "DATA.CROP_MODE": "squash"},
        **{"DATA.IMAGENET_MEAN": [0.25], "DATA.IMAGENET_STD": [0.125], "DATA.EXIF_ROTATE": True},
        "interpolation": "bilinear",
    },
    {"number of classes": 10, "classes": [*"0123456789"], "labels": "a hash"},
)
BOXES = (
    f"DATA.EVAL_SHORTEST_SIDE 96 DATA.EVAL_LONGEST_SIDE 160 DATA.EVAL_RESIZE torchvision {LIGHT_WORDS}",
    {
        **{"DATA.EVAL_SHORTEST_SIDE": 96, "DATA.EVAL_LONGEST_SIDE": 160, "DATA.EVAL_RESIZE": "torchvision", **LIGHT},
        **{"train turned by EXIF": False, "interpolation": "bilinear", "MODEL.MASK_PADDING": False},
    },
    {
        **{"number of classes": 3, "classes": ["circle", "square", "triangle"], "category ids": [1, 2, 3]},
        "turned by EXIF": False,
    },
)
VOXELS = {"DATA.VOXEL_SIZE_M": 0.25, "POINTS.COLOR_RANGE": [0.0, 255.0], "coordinates": "as given"}
VOXEL_WORDS = "DATA.VOXEL_SIZE_M 0.25 POINTS.COLOR_RANGE [0,255]"
SIGNATURES = {  # recipe -> other settings, what they become, and what is said of the samples
    "vit_digits": DIGITS,
    "multi_digits": DIGITS,
    "dfine_shapes": BOXES,
    "mask_rcnn_shapes": BOXES,
    "segformer_b0_shapes": (
        f"DATA.EVAL_SHORTEST_SIDE 96 DATA.EVAL_LONGEST_SIDE 160 DATA.EVAL_DIVISOR 32 DATA.RESIZE opencv {LIGHT_WORDS} "
        "DATA.EXIF_ROTATE False",
        {
            **{"DATA.EVAL_SHORTEST_SIDE": 96, "DATA.EVAL_LONGEST_SIDE": 160, "DATA.EVAL_DIVISOR": 32},
            **{"DATA.RESIZE": "opencv", **LIGHT, "DATA.EXIF_ROTATE": False},
        },
        {"number of classes": 4, "classes": ["background", "circle", "square", "triangle"], "turned by EXIF": False},
    ),
    "minkunet_tutorial": (
        f"{VOXEL_WORDS} POINTS.VOXEL_FEATURES mean POINTS.FEATURES [xyz,rgb]",
        {**VOXELS, "POINTS.VOXEL_FEATURES": "mean", "POINTS.FEATURES": ["xyz", "rgb"]},
        {"classes": "twenty"},
    ),
    "pointgroup_synthetic_rooms": (
        f"{VOXEL_WORDS} POINTS.VOXEL_FEATURES first POINTS.FEATURES [rgb,xyz] POINTS.INSTANCES.SCORE_SCALE 20",
        {
            **{**VOXELS, "POINTS.VOXEL_FEATURES": "first", "POINTS.FEATURES": ["rgb", "xyz"]},
            "POINTS.INSTANCES.SCORE_SCALE": 20.0,
        },
        {"classes": "twenty"},
    ),
    "mink_classifier_solids": (
        "SHAPES.VOXEL_SIZE 0.125 SHAPES.FEATURES [ones]",
        {"SHAPES.VOXEL_SIZE": 0.125, "SHAPES.FEATURES": ["ones"]},
        {"classes": ["ball", "box", "cone", "cylinder", "prism", "pyramid", "torus", "tube"]},
    ),
    "landmark_unet3d": (
        "VOLUMES.INTENSITY_WINDOW [-500,700]",
        {
            **{"orientation": "RAS", "spacing_mm": [4.0, 3.0, 3.0], "intensity_window": [-500.0, 700.0]},
            "normalize": ["percentiles"],
            "landmarks": "chin ear_left ear_right eye_left eye_right nose_tip occiput sella".split(),
        },
        {},
    ),
    "volume_unet3d_phantoms": (
        "VOLUMES.INTENSITY_WINDOW [-500,700]",
        {
            **{"orientation": "RAS", "spacing_mm": [4.0, 3.0, 3.0], "intensity_window": [-500.0, 700.0]},
            **{"normalize": ["ct"], "channels": ["CT"], "label_numbers": [0, 1, 2, 3, 4]},
        },
        {"number of classes": 5, "classes": ["background", "soft tissue", "bone", "brain", "eyes"]},
    ),
}


@pytest.mark.parametrize("recipe", SIGNATURES)
def test_the_signature_has_the_settings_that_the_weights_depend_on(recipe, tmp_path):
    words, expected, of_samples = SIGNATURES[recipe]
    task = make_task(config.load([f"-cfg={recipe}", *words.split()]).values)
    samples = task.build_dataset("train", tmp_path)
    assert task.signature() == expected
    found = task.signature(samples)
    for name, short, length in (("classes", "twenty", 20), ("labels", "a hash", 16)):
        if of_samples.get(name) == short:
            assert len(found.pop(name)) == length
            of_samples = {key: value for key, value in of_samples.items() if key != name}
    assert found == {"samples": len(samples), **of_samples}
