"""What RT-DETR and D-FINE do with images, beside the numbers of the golden file."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.networks.cheap_weights import weights_of_zero
from support.networks.rtdetr_networks import CLASSES, SMALL, make_images, make_network, make_targets

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.lookup import list_models
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.detection.rtdetr import hybrid_network, network
from paddlevit_dist.images.detection.rtdetr.encoder import RepVggBlock
from paddlevit_dist.images.detection.rtdetr.variants import RTDETR

# Millions, as the authors' tables round them.
PUBLISHED = {
    **{"rtdetr_r18vd": 20, "rtdetr_r34vd": 31, "rtdetr_r50vd": 42, "rtdetr_r101vd": 76},
    **{"dfine_n": 4, "dfine_s": 10, "dfine_m": 19, "dfine_l": 31, "dfine_x": 62},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_number_of_parameters_is_the_published_one(name):
    assert name in list_models()
    with paddle.LazyGuard():  # names and shapes only
        network = create_model(name, num_classes=80)
    state = {key: value for key, value in network.state_dict().items() if not key.endswith(("_mean", "_variance"))}
    millions = sum(int(np.prod(value.shape)) for value in state.values()) / 1e6
    assert PUBLISHED[name] - 0.5 < millions < PUBLISHED[name] + 1  # the tables round, or cut off


def test_the_second_version_has_the_parameters_of_the_first():
    for name in PUBLISHED:
        if name.startswith("rtdetr_"):
            second = name.replace("rtdetr_", "rtdetrv2_")
            assert second in list_models() and RTDETR[second] == RTDETR[name]


def test_convolutions_side_by_side_are_one_in_evaluation():
    paddle.seed(0)
    block, random = RepVggBlock(6), np.random.default_rng(0)
    for name, value in block.state_dict().items():
        start = 0.5 if name.endswith("_variance") else 0.0
        value.set_value((start + np.abs(random.standard_normal(value.shape)) * 0.5).astype("float32"))
    x = paddle.to_tensor(random.standard_normal((2, 6, 5, 7)).astype("float32"))
    block.eval()
    apart = paddle.nn.functional.silu(block.conv1(x) + block.conv2(x))
    assert float(apart.std()) > 0.1
    np.testing.assert_allclose(block(x).numpy(), apart.numpy(), rtol=1e-5, atol=1e-5)
    block.train()  # by the statistics of the batch, which move the stored ones
    means = block.conv1.norm.state_dict()["_mean"].numpy().copy()
    learned = block(x).numpy()
    assert (block.conv1.norm.state_dict()["_mean"].numpy() != means).all()
    np.testing.assert_allclose(
        learned, paddle.nn.functional.silu(block.conv1(x) + block.conv2(x)).numpy(), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("name", SMALL)
def test_an_image_gives_the_same_in_any_company(name):
    network, images = make_network(name), make_images(4)
    with paddle.no_grad():
        together, alone = network(images), network(images[2:3])
    assert np.ptp(together["boxes"].numpy(), axis=1).min() > 1e-3
    for part in ("logits", "boxes"):
        np.testing.assert_allclose(alone[part].numpy()[0], together[part].numpy()[2], rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", [(56, 64), (64, 56)])
def test_both_sides_of_an_image_are_multiples(size):
    with weights_of_zero():
        small = create_model("rtdetr_small", num_classes=CLASSES)
    with pytest.raises(UserError, match=f"multiples of 16, not {size[0]} x {size[1]} pixels"):
        small(paddle.zeros([1, 3, *size]))


@pytest.mark.parametrize("name", SMALL)
def test_queries_see_no_denoising_queries_but_their_own_group(name):
    network, images, numbers = make_network(name), make_images(2), [2, 1]
    with paddle.no_grad():
        plain = network(images)
        first = network(images, targets=make_targets(numbers))
        changed = network(images, targets=make_targets(numbers, change=4))  # the second group's first one
    for part in ("layer_logits", "layer_boxes"):
        for other in (first, changed):
            np.testing.assert_allclose(other[part].numpy(), plain[part].numpy(), rtol=0, atol=1e-10)
        apart = np.abs(changed[f"denoising_{part}"].numpy() - first[f"denoising_{part}"].numpy()).max(axis=(0, 3))
        groups = make_targets(numbers).denoising.groups.numpy()
        is_same = groups == groups[:, 4:5]
        assert (apart[is_same] > 1e-9).all() and (apart[~is_same] < 1e-10).all()
        assert is_same.sum(axis=1).tolist() == [4, 2] and apart.shape[1] == 12


@pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", "convnext_tiny", "resnet18"])
def test_another_backbone_takes_images_of_any_size_and_no_options_of_the_usual_one(name):
    with weights_of_zero():
        network = create_model("rtdetr_r18vd", CLASSES, backbone=name, num_queries=20, decoder_layers=1, embed_dim=64)
    network.eval()
    with paddle.no_grad():
        assert network(paddle.zeros([1, 3, 96, 64]))["boxes"].shape == [1, 20, 4]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"backbone": "vit_tiny_patch16_224"}, "strides 16, 16, 16, but RT-DETR needs"),
        ({"feature_levels": (-5, -1)}, "has 4 feature maps: feature_level -5 is out of range"),
        ({"backbone": "mixer_s16_224"}, "has no feature maps: use a ResNet"),
        ({"points": (4, 4)}, r"points \[4, 4\]: expected 3 numbers, one for each map"),
        ({"activation": "tanh"}, "option activation 'tanh' is not known: expected one of .*relu"),
    ],
)
def test_maps_that_cannot_be_fused_are_refused(options, said):
    with pytest.raises(UserError, match=said), weights_of_zero():
        create_model("rtdetr_r18vd", num_classes=CLASSES, **options)


@pytest.mark.parametrize("name", ["rtdetr_r50vd", "dfine_l"])
def test_the_stem_and_batch_norms_of_a_large_backbone_do_not_learn(name):
    with paddle.LazyGuard():
        backbone = create_model(name).backbone
    learning = {key for key, value in backbone.named_parameters() if not value.stop_gradient}
    assert learning and not any(key.startswith(("conv1.", "bn1.", "stem.")) for key in learning)
    assert not any(".bn" in key for key in learning)


@pytest.mark.parametrize(
    "options, mirrors, noise, matchability, fine",
    [
        ({}, False, 100, None, None),
        ({"matchability": 1.5, "denoising": 7}, True, 7, 1.5, None),
        (
            {"is_fine": True, "bins": 16, "up": 0.25, "reg_scale": 8.0, "denoising": 0},
            True,
            None,
            None,
            (16, 0.25, 8.0),
        ),
    ],
)
def test_the_losses_follow_the_options(monkeypatch, options, mirrors, noise, matchability, fine):
    built, loaded = [], []

    def note(*given, name, **named):
        built.append((name, given, named))
        return name

    monkeypatch.setattr(network, "ContrastiveNoise", partial(note, name="ContrastiveNoise"))
    for name in ("VarifocalCriterion", "FineCriterion"):
        monkeypatch.setattr(network, name, SimpleNamespace(build=partial(note, name=name)))
    monkeypatch.setattr(hybrid_network, "load_solver", lambda: loaded.append(1))
    kind = network.RtDetr.criterion("rtdetr_r18vd", 5, {"box": 3}, num_queries=30, **options)
    (_, given, named), (name, sizes, losses) = built
    assert given == (5, noise or 0) and named == {"mirrors": mirrors} and loaded == [1]
    assert name == kind == ("FineCriterion" if fine else "VarifocalCriterion")
    assert sizes == ("rtdetr_r18vd", {"box": 3}, 5, 30, 3)
    expected = {"noise": noise and "ContrastiveNoise", "matchability": matchability}
    assert losses == (expected if fine is None else {**expected, "bins": fine})
    network.RtDetr.criterion("rtdetr_r18vd", 5, None, denoising=9)
    assert built[2][1] == (5, 9) and built[3][2] == {"noise": "ContrastiveNoise", "matchability": None}


def test_maps_with_fewer_cells_than_queries_are_refused():
    network = make_network(SMALL[0])
    height, width = 64, 96
    cells = sum((height // stride) * (width // stride) for stride in (8, 16))
    images = paddle.zeros([1, 3, height, width], network.enc_output[1].weight.dtype)
    with paddle.no_grad():
        network.num_queries = cells
        assert network(images)["boxes"].shape[1] == cells
        network.num_queries = cells + 1
        with pytest.raises(UserError, match=f"have {cells} cells, fewer than MODEL.NUM_QUERIES {cells + 1}: lower"):
            network(images)


def test_the_layers_of_the_decoder_are_recomputed():
    network = make_network(SMALL[0])
    layers = network.recomputed_layers()
    assert list(map(id, layers)) == list(map(id, network.decoder.layers)) and len(layers) > 1


@pytest.mark.parametrize("is_fine", [False, True])
def test_what_no_shape_tells_is_as_the_options_say(is_fine):
    options = {"decoder_layers": 3, "num_heads": 8, "encoder_heads": 2, "num_queries": 40, "points": (3, 5)}
    options |= {"activation": "silu", "is_discrete": not is_fine, "up": 0.25, "reg_scale": 8.0}
    with paddle.LazyGuard():  # names and shapes only
        facts = create_model(
            "dfine_small" if is_fine else "rtdetr_small", num_classes=CLASSES, **options
        ).network_facts()
    own = {
        "decoder_n_points": (3, 5),
        "decoder_method": "default" if is_fine else "discrete",
        "decoder_activation_function": "silu",
        "decoder_attention_heads": 8,
        "encoder_attention_heads": 2,
        "encode_proj_layers": [1],
        "eval_idx": {-1, 2},
        "feat_strides": [8, 16],
        "num_queries": 40,
        **({"reg_scale": 8.0, "up": 0.25} if is_fine else {}),
    }
    assert {name: facts[name] for name in own} == own and facts["model_type"] == ("rt_detr", "rt_detr_v2", "d_fine")
    assert ("up" in facts) is ("reg_scale" in facts) is is_fine
