"""PointGroup on the features of a serialized network."""

import json

import numpy as np
import paddle
import pytest
from support.files.raw_scenes import zipped
from support.samples.small_scenes import tensors

from paddlevit_dist import UserError, create_model, load_weights
from paddlevit_dist.core import settings
from paddlevit_dist.core.checkpoint.foreign_names import to_torch_names
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.points.instances.task import InstanceSegmentation
from paddlevit_dist.points.ptv3.weights import to_pointcept
from paddlevit_dist.points.sparse import Plan, SparseTensor

NARROW = {"encoder_depths": (1, 1), "encoder_channels": (6, 12), "encoder_heads": (1, 2), "strides": (2,)}
NARROW |= {"decoder_depths": (1,), "decoder_channels": (6,), "decoder_heads": (1,), "patch_size": 16}
SMALL = "TASK pointgroup MODEL.NAME pointgroup -dataset=synthetic_rooms DATA.VOXEL_SIZE_M 0.15 POINTS.ROOMS.TRAIN 3"
SMALL += " POINTS.ROOMS.VAL 2 POINTS.ROOMS.SPACING_M 0.12 MODEL.OPTIONS.repeats 1 POINTS.INSTANCES.RADIUS_M 0.24"
SMALL += " POINTS.INSTANCES.PREPARE_EPOCHS 0 POINTS.INSTANCES.CLUSTER_POINTS 2"
OPTIONS = json.dumps({"backbone": "ptv3", "backbone_options": NARROW})


def test_a_training_step_reaches_every_parameter():
    task = InstanceSegmentation(settings.load([*SMALL.split(), "MODEL.OPTIONS", OPTIONS]).values)
    samples = task.build_dataset("train", None)
    paddle.seed(0)
    model = task.build_model()
    batch = tensors(task.collate([samples.sample(index, np.random.default_rng(index)) for index in (0, 1)]))
    drawn, draw = [], model.backbone.draw_orders
    model.backbone.draw_orders = lambda seed: drawn.append(seed) or draw(seed)
    terms = task.train_step(model, batch, StepPosition(1, 7, 10))
    assert drawn == [(0, 7)]  # on each rank
    assert terms["score"].count.item() > 1
    paddle.add_n([term.sum * term.weight for term in terms.values() if term.weight]).backward()
    assert not hasattr(model, "unet") and model.width == 6
    for name, parameter in model.named_parameters():
        if not parameter.stop_gradient:
            assert parameter.grad is not None and np.isfinite(parameter.grad.numpy()).all(), name
    model.eval()
    plan = Plan.of_batch(batch)
    features, scores, _ = model.predict_points(SparseTensor(batch["features"], plan=plan), batch["inverse"])
    alone = model.backbone(SparseTensor(batch["features"], plan=plan))
    np.testing.assert_array_equal(features.numpy(), alone.numpy()[batch["inverse"].numpy()])
    assert scores.shape == [len(batch["labels"]), 20] and batch["features"].shape[1] == 3  # colors


def test_published_weights_fill_the_backbone(tmp_path):
    paddle.seed(1)
    source = create_model("sonata_decoder", num_classes=0, in_channels=6, **NARROW)
    linear = {id(layer.weight) for layer in source.sublayers() if isinstance(layer, paddle.nn.Linear)}
    own = {key: value.numpy().T if id(value) in linear else value.numpy() for key, value in source.state_dict().items()}
    state = {key.removeprefix("backbone."): value for key, value in to_pointcept(own)[0].items()}
    zipped(tmp_path / "sonata.pth", {"config": {}, "state_dict": to_torch_names(state)})
    paddle.seed(2)
    model = create_model("pointgroup", in_channels=6, repeats=1, backbone="sonata_decoder", backbone_options=NARROW)
    report = load_weights(model, tmp_path / "sonata.pth", minimum_loaded=0.3)
    assert report.unexpected == [] and any("CC-BY-NC" in notice for notice in report.notices)
    loaded = model.state_dict()
    for key, value in source.state_dict().items():
        np.testing.assert_array_equal(loaded[f"backbone.{key}"].numpy(), value.numpy(), err_msg=key)


def test_a_backbone_without_features_of_voxels_is_refused():
    with pytest.raises(UserError, match="backbone is 'minkunet_tutorial': expected a serialized network, such as ptv3"):
        create_model("pointgroup", backbone="minkunet_tutorial")


def test_each_option_alone_changes_the_network():
    with paddle.LazyGuard():
        plain = create_model("pointgroup", 9, repeats=1, width=8)
        found = create_model("pointgroup", num_classes=7, in_channels=4, repeats=2, width=8)
        narrow = {**NARROW, "decoder_channels": (12,)}
        own = create_model("pointgroup", num_classes=7, backbone="ptv3", backbone_options=narrow, repeats=2)
    assert (len(plain.unet.blocks), len(plain.score_unet.blocks), plain.linear.weight.shape) == (1, 1, [8, 9])
    assert (len(found.unet.blocks), len(found.score_unet.blocks), found.linear.weight.shape) == (2, 2, [8, 7])
    assert found.input_conv[0].weight.shape == [3, 3, 3, 4, 8] and plain.input_conv[0].weight.shape[3] == 6
    widths, level = [], plain.unet
    while True:
        widths.append(level.blocks[0].conv_branch[2].weight.shape[-1])
        if level.is_deepest:
            break
        level = level.u
    assert widths == [8 * number for number in range(1, 8)]
    assert (own.width, len(own.score_unet.blocks), own.linear.weight.shape) == (12, 2, [12, 7])
    assert own.backbone.num_classes == 0 and own.backbone.embedding.stem.conv.in_channels == 6
    assert own.score_unet.u.blocks[0].conv_branch[2].weight.shape[-1] == 24
    norms = [layer for name, layer in own.named_sublayers() if "BatchNorm" in type(layer).__name__]
    assert {norm._epsilon for norm in norms if norm not in own.backbone.sublayers()} == {1e-4}
