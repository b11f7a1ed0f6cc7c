"""DETRPose as it starts: each option and each argument of its losses alone, and first weights."""

import inspect
import math

import paddle
import pytest
from support.networks.cheap_weights import weights_of_zero
from support.networks.first_weights import is_constant, is_uniform

from paddlevit_dist.images.detection.rtdetr.distributions import DistanceBins
from paddlevit_dist.images.keypoints.detrpose.network import DetrPose

SMALL = {**DetrPose.variants["detrpose_small"], "num_classes": 3, "keypoints": 5}


def build(**options):
    with weights_of_zero():
        return DetrPose(**{**SMALL, **options})


def encoder_layer(model):
    return model.encoder.aifi[0].layers[0]


def sampled(model):
    return model.decoder.layers[1].cross_attn.attention_weights.weight.shape[1]  # of 4 heads


OPTIONS = {  # option -> another value, what is looked at, and what that is then
    "num_classes": (7, lambda model: model.enc_score_head.weight.shape, [64, 7]),
    "keypoints": (4, lambda model: model.keypoint_embedding.weight.shape, [4, 64]),
    "backbone": ("resnet18", lambda model: type(model.backbone.conv1).__name__, "Conv2D"),
    "backbone_options": (
        {"depths": (1, 1, 1), "dims": (32, 48, 96)},
        lambda model: model.backbone.feature_channels[1],
        48,
    ),
    "frozen_batch_norm": (True, lambda model: model.backbone.layer1[0].bn1.weight.stop_gradient, True),
    "frozen_stages": (2, lambda model: model.backbone.layer1[0].conv1.weight.stop_gradient, True),
    "feature_levels": ((-3, -2, -1), lambda model: len(model.encoder_input_proj), 3),
    "encoder_layers": (2, lambda model: len(model.encoder.aifi[0].layers), 2),
    "encoder_feedforward": (96, lambda model: encoder_layer(model).mlp.fc1.weight.shape, [64, 96]),
    "blocks": (2, lambda model: len(model.encoder.fpn_blocks[0].csp_rep1.bottlenecks), 2),
    "expansion": (1.0, lambda model: model.encoder.fpn_blocks[0].conv2.conv.weight.shape[0], 32),
    "embed_dim": (32, lambda model: (model.tgt_embed.weight.shape, model.embed_dim), ([20, 32], 32)),
    "num_heads": (2, lambda model: (encoder_layer(model).self_attn.num_heads, sampled(model)), (2, 8)),
    "feedforward": (96, lambda model: model.decoder.layers[1].mlp.fc1.weight.shape, [64, 96]),
    "decoder_layers": (3, lambda model: (len(model.decoder.layers), len(model.decoder.class_embed)), (3, 3)),
    "num_queries": (11, lambda model: (model.tgt_embed.weight.shape, model.num_queries), ([11, 64], 11)),
    "denoising": (
        0,
        lambda model: [each.weight.stop_gradient for each in (model.denoising_pose_embed, model.denoising_class_embed)],
        [True, True],
    ),
    "points": ((3, 1), sampled, 16),
    "bins": (8, lambda model: model.decoder.pose_embed[1].layers[-1].weight.shape, [64, 18]),
    "up": (0.25, lambda model: model.decoder._bins, DistanceBins(32, 0.25, 4.0)),
    "reg_scale": (8.0, lambda model: model.decoder._bins, DistanceBins(32, 0.5, 8.0)),
    "matchability": (None, lambda model: None, None),  # of the losses
}


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_alone_changes_the_network(name):
    assert set(OPTIONS) == set(inspect.signature(DetrPose.__init__).parameters) - {"self"}
    value, look, expected = OPTIONS[name]
    changed = {name: value, **({"backbone_options": SMALL["backbone_options"]} if name == "backbone" else {})}
    changed |= {"backbone_options": {"depths": (1, 1, 1), "dims": (16, 32, 64)}} if name == "feature_levels" else {}
    assert look(build(**changed)) == expected


SIGMAS = ((0.1, 0.2), (0.3, 0.4))
LOSSES = {  # argument -> what it is without it, and where its value is
    "class_weight": (1.0, lambda criterion: criterion.weights["class"] / 2),
    "keypoints_weight": (10.0, lambda criterion: criterion.weights["keypoints"]),
    "oks_weight": (4.0, lambda criterion: criterion.weights["oks"]),
    "distill_weight": (0.0, lambda criterion: criterion.weights["distill"]),
    "cost_keypoints": (10.0, lambda criterion: criterion.cost[1]),
    "cost_oks": (4.0, lambda criterion: criterion.cost[2]),
    "alpha": (0.25, lambda criterion: criterion.alpha),
    "matchability": (None, lambda criterion: criterion.matchability),
}


@pytest.mark.parametrize("name", LOSSES)
def test_each_argument_of_the_losses_is_handed_through_alone(name):
    changed = DetrPose.criterion("detrpose_small", 2, {"sigmas": SIGMAS, name: 0.375})
    for other, (usual, look) in LOSSES.items():
        assert look(changed) == (0.375 if other == name else usual)
    assert changed.cost[0] == 2.0


def test_the_network_s_options_reach_its_losses_one_by_one():
    def criterion(**options):
        return DetrPose.criterion("detrpose_small", 2, {"sigmas": SIGMAS}, **options)

    plain = criterion()
    assert (plain.num_classes, plain.queries, plain.bins) == (2, 20, DistanceBins(32, 0.5, 4.0))
    assert (plain.noise.queries, plain.noise.sigmas) == (6, SIGMAS)
    assert plain.variances == tuple(tuple(4 * sigma**2 for sigma in row) for row in SIGMAS)
    assert criterion(num_queries=7).queries == 7
    assert criterion(denoising=3).noise.queries == 3 and criterion(denoising=0).noise is None
    assert criterion(matchability=1.5).matchability == 1.5
    for changed in ({"bins": 8}, {"up": 0.25}, {"reg_scale": 8.0}):
        assert criterion(**changed).bins == DistanceBins(32, 0.5, 4.0)._replace(
            **{"number" if name == "bins" else name: value for name, value in changed.items()}
        )


def test_first_weights():
    """Embeddings as Xavier, classes at a probability of 0.01, and poses at the places where queries start."""
    paddle.seed(1)
    model = DetrPose(**{**SMALL, "keypoints": 40, "num_classes": 50, "num_queries": 30, "decoder_layers": 1})
    for rows, layer in ((40, model.keypoint_embedding), (30, model.tgt_embed), (40, model.denoising_pose_embed)):
        assert layer.weight.shape == [rows, 64] and is_uniform(layer.weight, math.sqrt(6 / (rows + 64)))
    assert is_uniform(model.denoising_class_embed.weight, math.sqrt(6 / (51 + 64)))
    assert model.instance_embedding.weight.abs().max() <= math.sqrt(6 / 65)
    assert is_uniform(model.enc_output[0].weight, math.sqrt(6 / 128)) and model.enc_output[1]._epsilon == 1e-5
    for head in (model.enc_score_head, *model.decoder.class_embed):
        assert is_constant(head.bias, -math.log(99)) and is_uniform(head.weight, 1 / 8)
    ends = [model.enc_pose_head, model.decoder.pre_pose_head, *model.decoder.pose_embed]
    for head in (*ends, *(each.reg_conf for each in model.decoder.lqe_layers)):
        assert is_constant(head.layers[-1].weight, 0) and is_constant(head.layers[-1].bias, 0)
        assert not is_constant(head.layers[0].weight, 0)
