"""Keys of keypoints: which datasets read them, and what drawn figures need more room for."""

import pytest

from paddlevit_dist.core.settings import load

TASK = ["TASK", "keypoint_heatmaps"]
VALUES = {
    "KEYPOINTS.NAMES": "['a', 'b']",
    "KEYPOINTS.PAIRS": "['a/b']",
    "KEYPOINTS.SIGMAS": "0.25",
    "KEYPOINTS.SKELETON": "['b/a']",
    "KEYPOINTS.FIGURES": "['hand']",
    "KEYPOINTS.SPACING_MM": "0.5",
    "DATA.SHAPES.CATEGORIES": "['circle']",
}
OF_SHAPES = "it is for synthetic_shapes, segmentation_shapes, panoptic_shapes, drawn_figures, and"
OF_FILES = {
    "KEYPOINTS.FIGURES": "it is for drawn_figures, and",
    "DATA.SHAPES.CATEGORIES": OF_SHAPES,
}
OF_TABLES = {"KEYPOINTS.SPACING_MM": "it is for keypoint_table, and"}
OWN = "figures have their own points:"


@pytest.mark.parametrize(
    ("dataset", "reasons"),
    [
        ("drawn_figures", {**dict.fromkeys(VALUES, OWN), **OF_TABLES, "KEYPOINTS.FIGURES": None}),
        ("coco_keypoints", OF_FILES | OF_TABLES),
        ("yolo_pose", OF_FILES | OF_TABLES),
        ("keypoint_table", OF_FILES),
    ],
)
def test_keys_that_a_dataset_does_not_read_are_told(dataset, reasons):
    words = [word for pair in VALUES.items() for word in pair]
    expected = [
        f"{name} {VALUES[name]} (command line): no effect: {reason} DATA.DATASET {dataset} (-dataset)"
        for name, reason in reasons.items()
        if reason
    ]
    assert sorted(load([*TASK, f"-dataset={dataset}", "-data_path=/data", *words]).notices) == sorted(expected)


def test_drawn_figures_are_fewer_on_larger_images_unless_the_keys_say_otherwise():
    for words, sides, number in (
        (["-dataset=drawn_figures"], [96, 128], [1, 3]),
        (["-dataset=drawn_figures", "DATA.SHAPES.SIDES", "[40, 50]"], [40, 50], [1, 3]),
        (["-dataset=drawn_figures", "DATA.SHAPES.OBJECTS_PER_IMAGE", "[2, 2]"], [96, 128], [2, 2]),
        (["-dataset=coco_keypoints", "-data_path=/data"], [64, 64], [1, 4]),
    ):
        shapes = load([*TASK, *words]).values.DATA.SHAPES
        assert (shapes.SIDES, shapes.OBJECTS_PER_IMAGE) == (sides, number)
