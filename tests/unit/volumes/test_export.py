"""An exported landmark network: the same heatmaps, and a description that suffices to find positions with numpy."""

import numpy as np
import paddle
import pytest
import yaml

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.protocols import Exportable
from paddlevit_dist.core.tasks.step_types import ExportParts
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.extensions.export.command import export
from paddlevit_dist.extensions.export.scoring import load_exported_layer
from paddlevit_dist.extensions.export.trained_models import TrainedModel
from paddlevit_dist.volumes.export import NORMALIZATIONS, WEIGHTS, make_example
from paddlevit_dist.volumes.segmentation.regions import LabelRegion
from paddlevit_dist.volumes.segmentation.task import VolumeSegmentation
from paddlevit_dist.volumes.sliding_window import line_weights

SIZE = (12, 10, 14)  # no multiple of what the network halves
NAMES = ("nose", "chin")
RECIPE = ["-cfg=./configs/landmark_unet3d.yaml", "VOLUMES.CROP_SIZE", str(SIZE), "VOLUMES.UNET_WIDTH", "2"]
RECIPE += ["VOLUMES.UNET_DEPTH", "2"]


def trained(*words):
    values = settings.load([*RECIPE, "-eval", "-pretrained=weights.pdparams", *words]).values
    task = make_task(values)
    task.load_meta(CheckpointMeta(2, NAMES, {"spacing_mm": [4.0, 3.0, 3.0]}))
    paddle.seed(3)
    model = task.build_model(2)
    model.head.weight.set_value(paddle.randn(model.head.weight.shape))
    model.eval()
    parts = get_aspect(task, Exportable).export_parts()
    facts = {"model": "unet3d", "num_classes": 2, "input_shape": [None, 1, *SIZE], **parts.about}
    return TrainedModel(model, facts, parts)


@pytest.fixture(scope="module")
def exported_to(tmp_path_factory):
    """The trained weights, and the path of their export without a suffix."""
    found, path = trained(), tmp_path_factory.mktemp("exported") / "heads"
    export(found, str(path))
    return found, path


def test_the_description_names_landmarks_input_and_output(exported_to):
    _, path = exported_to
    about = yaml.safe_load(path.with_name("heads.about.yaml").read_text(encoding="utf-8"))
    assert about["landmarks"] == list(NAMES) and about["preprocessing"]["spacing_mm"] == [4.0, 3.0, 3.0]
    assert about["preprocessing"]["windows"] == list(SIZE) and about["input_name"] == "volume"
    example = np.load(path.with_name("heads.example.npz"))
    assert example["output"].shape == (1, 2, *SIZE)
    with paddle.no_grad():
        maps = paddle.jit.load(str(path))(paddle.to_tensor(example["input"]))
    np.testing.assert_allclose(maps.numpy(), example["output"], atol=1e-5)


RESAMPLING = "linear; before voxels become k times as long, a Gaussian of 0.4247 sqrt(k^2 - 1) voxels"
ORIENTATION = "RAS: the array's axes depth, height, width point up, to the front and to the right"


@pytest.mark.parametrize(
    "words, intensities, others",
    [
        (("VOLUMES.INTENSITY_WINDOW", "null"), "percentiles 0.5 and 99.5 of each volume are mapped to 0 and 1", {}),
        (("VOLUMES.INTENSITY_WINDOW", "[-100,300.5]"), "-100 and 300.5 are mapped to 0 and 1, without clipping", {}),
        (
            ("VOLUMES.NORMALIZE", "[z_score]", "VOLUMES.LOSS", "focal"),
            {"normalize": ["z_score"], "intensity_window": [-1000.0, 1000.0]},
            {"maps": "the sigmoid of the outputs"},
        ),
        (
            ("VOLUMES.DECODING", "soft_argmax", "VOLUMES.SIGMA_MM", "[5,5,5]"),
            "-1000 and 1000 are mapped to 0 and 1, without clipping",
            {
                "reach_voxels": [4, 5, 5],  # 3 deviations of 5 mm in voxels of 4, 3 and 3 mm
                "position": "mean position of the voxels around the highest one, weighted by their values",
            },
        ),
    ],
)
def test_an_export_of_landmarks_describes_what_is_set(words, intensities, others):
    parts = trained(*words).parts
    assert parts.about.pop("normalizations").keys() <= NORMALIZATIONS.keys()
    assert parts.about == {
        "landmarks": ["nose", "chin"],
        "preprocessing": {
            "orientation": ORIENTATION,
            "spacing_mm": [4.0, 3.0, 3.0],
            "resampling": RESAMPLING,
            "intensities": intensities,
            "windows": list(SIZE),
            "overlap": 0.5,
            "outside_of_a_small_volume": 0,
        },
        "output": "one heatmap per landmark, of the input's size",
        "postprocessing": {
            "maps": "the outputs",
            "of_overlapping_windows": WEIGHTS["linear"],
            "position": "highest voxel of the map, then along each axis the vertex of the parabola through the "
            "logarithms of that voxel and its two neighbors, at most half a voxel away",
            "confidence": "value of the map at its highest voxel, limited to 0 to 1",
            **others,
        },
    }
    np.testing.assert_array_equal(parts.example.pop("input"), make_example(SIZE), strict=True)
    expected = ExportParts(1, {}, SIZE, "volume", {}, output_names=("heatmaps",), output_shape=(2, *SIZE))
    assert parts._replace(about={}) == expected


@pytest.mark.parametrize("has_regions", [False, True])
def test_an_export_of_label_maps_describes_what_is_set(has_regions):
    words = ["VOLUMES.NORMALIZE", "[ct, z_score]", "VOLUMES.INTENSITY_WINDOW", "[-160, 240]", "VOLUMES.OVERLAP", "0.25"]
    words += ["VOLUMES.CROP_SIZE", "[8, 12, 10]", "VOLUMES.WINDOW_WEIGHTS", "gaussian"]
    words += ["VOLUMES.LARGEST_COMPONENT", "[liver]"] * has_regions
    task = VolumeSegmentation(settings.load(["-cfg=./configs/volume_unet3d_phantoms.yaml", *words]).values)
    task.class_names, task.numbers = ["background", "spleen", "liver"], [0, 7, 3]
    task.channels, task.spacing, task.within = ["CT", "PET"], np.array([2.5, 1, 1]), "nonzero"
    regions, last = {}, "the largest of the outputs, after linear resampling to the stored spacing"
    if has_regions:
        task.class_names, task.regions = ["organs", "liver"], [LabelRegion((1, 2), 1), LabelRegion((2,), 2)]
        regions = {"regions": {"organs": [7, 3], "liver": [3]}, "regions_class_order": [7, 3]}
        last = "after linear resampling to the stored spacing, 0; then for each region in order its number of "
        last += "regions_class_order where its output is above 0"
    parts = get_aspect(task, Exportable).export_parts()
    assert parts.about == {
        "classes": task.class_names,
        "label_numbers": [0, 7, 3],
        **regions,
        "channels": ["CT", "PET"],
        "preprocessing": {
            "orientation": ORIENTATION,
            "spacing_mm": [2.5, 1.0, 1.0],
            "resampling": RESAMPLING,
            "normalize": ["ct", "z_score"],
            "intensity_window": [-160.0, 240.0],
            "z_score": "nonzero",
            "windows": [8, 12, 10],
            "overlap": 0.25,
            "outside_of_a_small_volume": 0,
        },
        "normalizations": {kind: NORMALIZATIONS[kind] for kind in ("ct", "z_score")},
        "output": f"one map per {'region' if has_regions else 'class'}, of the input's size",
        "postprocessing": {
            "of_overlapping_windows": WEIGHTS["gaussian"],
            "class": last,
            **({"largest_component": ["liver"]} if has_regions else {}),
        },
    }
    image = make_example((8, 12, 10))
    np.testing.assert_array_equal(parts.example.pop("input"), np.concatenate([image, image], axis=1), strict=True)
    expected = ExportParts(2, {}, (8, 12, 10), "volume", {}, output_shape=(3 - has_regions, 8, 12, 10))
    assert parts._replace(about={}) == expected


@pytest.mark.parametrize(("kind", "formula"), [("linear", "min(i + 1, n - i)"), ("gaussian", "exp(-32 ((i - (n - 1)")])
def test_described_weights_of_windows_are_those_of_predictions(kind, formula):
    assert formula in WEIGHTS[kind]
    i, n = np.arange(11), 11
    weights = np.minimum(i + 1, n - i) / 6 if kind == "linear" else np.exp(-32 * ((i - (n - 1) / 2) / n) ** 2)
    np.testing.assert_allclose(line_weights(11, kind), weights, rtol=1e-6)


def test_an_example_is_a_ball_in_noise():
    example = make_example((8, 12, 9))
    assert example.shape == (1, 1, 8, 12, 9) and example.dtype == np.float32
    noise = 0.1 * np.random.default_rng(0).random((8, 12, 9))
    for place in np.ndindex(8, 12, 9):
        distance = sum((at - (length - 1) / 2) ** 2 for at, length in zip(place, (8, 12, 9))) ** 0.5
        assert example[(0, 0, *place)] == pytest.approx(noise[place] + (0.8 if distance < 2 else 0), abs=1e-6)


def test_the_exported_network_finds_what_the_trained_one_finds(exported_to):
    """In a volume of several windows."""
    found, path = exported_to
    values = settings.load([*RECIPE, "-eval", f"EXPORTED={path}", "-pretrained=none"]).values
    task = make_task(values)
    task.load_meta(CheckpointMeta(2, NAMES, {"spacing_mm": [4.0, 3.0, 3.0]}))
    exported = get_aspect(task, Exportable).evaluated_model(load_exported_layer(values, task))
    volume = paddle.to_tensor(np.random.default_rng(1).random((1, 15, 13, 20), np.float32))
    with paddle.no_grad():
        places, confidences = task.find(exported, volume)
        expected_places, expected_confidences = task.find(found.model, volume)
    np.testing.assert_allclose(places, expected_places, atol=1e-3)
    np.testing.assert_allclose(confidences, expected_confidences, atol=1e-5)
