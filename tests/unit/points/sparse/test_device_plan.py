"""How often a step on scenes makes the host wait for a GPU, counted on a CPU with a GPU's plans."""

import contextlib

import numpy as np
import paddle
import pytest
from support.networks.narrow_minkunets import narrow_networks  # noqa: F401
from support.trainings.updates import PlainAdamW
from support.waits import Waits, counted_waits

from paddlevit_dist.core import settings
from paddlevit_dist.core.engine import CountingCollate, TrainStep
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.points import sparse
from paddlevit_dist.points.sparse.device_plan import batch_products

ROOMS = ["-dataset=synthetic_rooms", "POINTS.ROOMS.TRAIN", "2", "POINTS.ROOMS.SPACING_M", "0.13"]
MINKUNET = ["TASK", "semantic_segmentation", *ROOMS, "MODEL.NAME", "narrow_unet", "DATA.VOXEL_SIZE_M", "0.5"]
LOSSES = ["TRAIN.LOVASZ_WEIGHT", "1.0", "TRAIN.DICE_WEIGHT", "0.5", "POINTS.FOCAL_GAMMA", "2"]
LOSSES += ["TRAIN.SMOOTHING", "0.1", "POINTS.CLASS_WEIGHTS", str([0.5, 1.5] * 10)]
SHAPES = ["TASK", "shape_classification", "-dataset=synthetic_solids", "MODEL.NAME", "narrow_classifier"]
SHAPES += ["SHAPES.VOXEL_SIZE", "0.3", "TRAIN.SMOOTHING", "0.1"]
POINTGROUP = ["TASK", "pointgroup", *ROOMS, "MODEL.NAME", "pointgroup", "DATA.VOXEL_SIZE_M", "0.2"]
POINTGROUP += ["MODEL.OPTIONS.width", "4", "MODEL.OPTIONS.repeats", "1", "POINTS.INSTANCES.RADIUS_M", "0.3"]
POINTGROUP += ["POINTS.INSTANCES.PREPARE_EPOCHS", "0", "POINTS.INSTANCES.CLUSTER_POINTS", "5"]
PTV3 = ["TASK", "semantic_segmentation", *ROOMS, "MODEL.NAME", "ptv3", "DATA.VOXEL_SIZE_M", "0.5"]
PTV3 += [
    "MODEL.OPTIONS",
    "{strides: [2], encoder_depths: [2, 1], encoder_channels: [8, 12], encoder_heads: [1, 2], "
    "decoder_depths: [1], decoder_channels: [8], decoder_heads: [2], patch_size: 32, drop_path: 0}",
]


def update(arguments: list[str], on_gpu: bool) -> tuple[dict[str, float], Waits]:
    """What an update computes on a CPU, or as on a GPU with a GPU's plans; and how often it made the host wait."""
    with batch_products(on_gpu):
        task = resolve("task", arguments[1])(settings.load(arguments).values)
        samples = task.build_dataset("train", None)
        paddle.seed(0)
        model = task.build_model()
        for name, parameter in model.named_parameters():
            if name.startswith("offset_linear."):  # their last bits would decide who is within PointGroup's radius
                parameter.set_value(paddle.zeros_like(parameter))
        arrays = CountingCollate(task)([samples.sample(index, np.random.default_rng(index)) for index in range(2)])
        batch = {k: paddle.to_tensor(v) if isinstance(v, np.ndarray) else v for k, v in arrays.items()}
        learning = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
        updater = TrainStep(
            task,
            model,
            PlainAdamW(parameters=learning),
            TrainingPrecision(False),
            seed=0,
            samples_per_update=2,
            accumulation_steps=1,
            gradient_clip=1.0,
            on_host=not on_gpu,
        )
        with counted_waits() if on_gpu else contextlib.nullcontext() as waits:
            (terms,) = updater([batch], StepPosition(1, 0, 10), 0.01)
    found = {name: term.sum.item() for name, term in terms.items()}
    return {**found, "gradient": updater.gradient_norm}, waits


@pytest.mark.parametrize(
    "arguments, most",
    [([*MINKUNET, *LOSSES], 1), (PTV3, 1), (SHAPES, 1), (POINTGROUP, 4)],
    ids=["MinkUNet14", "ptv3", "shapes", "PointGroup"],
)
def test_an_update_waits_no_more_than_it_must_and_computes_the_same(arguments, most):
    """All wait for the gradients' norm; PointGroup before that for what it clusters."""
    found, waits = update(arguments, on_gpu=True)
    assert len(waits) <= most, str(waits)
    assert found == pytest.approx(update(arguments, on_gpu=False)[0], rel=1e-3)


def test_layers_that_know_the_coordinates_do_not_wait():
    coordinates = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0]])
    x = sparse.SparseTensor(paddle.randn([3, 2]), coordinates)
    other = sparse.SparseTensor(paddle.randn([3, 2]), coordinates[::-1] + [0, 0, 1, 0])
    layers = [sparse.GlobalPooling("max"), sparse.InstanceNorm(2), sparse.DepthwiseConvolution(2)]
    layers += [sparse.PaddedMaxPooling(3, 2, 1), sparse.GenerativeConvolution(2, 2, 3), sparse.PaddedConvolution(2, 2)]
    half = np.array([0, 0.5, 0.5, 0.5])
    with counted_waits() as waits:
        for layer in layers:
            layer(x)
        sparse.broadcast(2.0 * x + other, sparse.GlobalPooling()(x))
        sparse.features_at(sparse.prune(x, coordinates[:, 2] == 0), coordinates + half)
        sparse.to_dense(sparse.PointFeatures(x.features, coordinates + half).splat())
    assert not waits.list, str(waits)


def test_weights_of_classes_matter_by_their_proportions_alone():
    """As with PyTorch, also where they add up to less than 1."""
    ones, tiny = (update([*MINKUNET, "POINTS.CLASS_WEIGHTS", str([one] * 20)], False)[0] for one in (1.0, 1e-7))
    assert tiny["gradient"] == pytest.approx(ones["gradient"], rel=1e-3)
