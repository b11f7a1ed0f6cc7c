"""What every registered segmentation network must do, by name; computed with reduced dimensions."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from support.networks import segmenters_of_others as others
from support.networks.other_names import arrays, in_torch_layout
from support.networks.segmenters_of_others import CLASSES, ONE_OF_EACH, far_from_the_start, logits, reduced, small
from support.waits import counted_waits

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.families import with_our_names
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.checkpoint.weights import weights_from_mapping
from paddlevit_dist.core.registry.lookup import annotation_type
from paddlevit_dist.core.registry.manifest import MASK_LABELS
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.tasks.model_cost import count_parameters
from paddlevit_dist.core.tasks.model_factory import create_model, variant_options
from paddlevit_dist.images.models.resampling import resize_position_embedding
from paddlevit_dist.images.models.segformer import SegFormerHead
from paddlevit_dist.images.models.segmenter import Segmenter

NAMES = [name for name in REGISTRY.models if annotation_type("model", name) == MASK_LABELS]
NAMES = [name for name in NAMES if not name.startswith("eomt")]  # predicts masks, which the golden tests compare
# Millions of parameters with ADE20K's 150 classes: SegFormer, table 1; Swin, table 3, and ConvNeXt, table 6, with
# UPerNet. FCN's with 21 classes by torchvision's pages, exactly; two more of UPerNet are exact in the golden file.
PUBLISHED = {
    **dict(zip((f"segformer_b{number}" for number in range(6)), (3.8, 13.7, 27.5, 47.3, 64.1, 84.7))),
    "upernet_swin_tiny": 60,
    "upernet_swin_small": 81,
    "upernet_swin_base": 121,
    "upernet_convnext_tiny": 60,
    "upernet_convnext_small": 82,
    "upernet_convnext_base": 122,
    "fcn_resnet50": 35_322_218,
    "fcn_resnet101": 54_314_346,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_number_of_parameters_is_the_published_one(name):
    with paddle.LazyGuard():  # shapes only
        count = count_parameters(create_model(name, num_classes=21 if name.startswith("fcn") else 150))
    published = PUBLISHED[name]
    if name.startswith("fcn"):
        assert count == published
    else:
        assert round(count / 1e6, 1 if isinstance(published, float) else None) == published


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_learns_and_images_of_any_size_get_logits(name):
    paddle.seed(1)
    model = create_model(name, num_classes=CLASSES, dropout=0.0, **reduced(name))
    assert isinstance(model, Segmenter) and model.image_size == (64, 64) and model.in_channels == 3
    for size in ((64, 64), (37, 90)):
        model.eval()
        stride = 8 if name.startswith("fcn") else 4
        patch = variant_options(variant_options(name)["backbone"]).get("patch_size", 16)
        found = logits(model, size)
        assert found.shape[:2] == (2, CLASSES) and np.isfinite(found).all()
        for side, positions in zip(size, found.shape[2:]):  # ConvNeXt rounds down, a ViT's neck has four to a patch
            patches = -(-side // patch)
            of_linear = (side,) if any(length % patch for length in size) else (patches,)  # without the padding
            sides = (side // stride, -(-side // stride), 4 * patches)
            assert positions in (of_linear if name.startswith("linear") else sides)
    model.train()
    outputs = model(paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 3, 64, 64)).astype("float32")))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    assert (len(outputs) == 2) == (model.auxiliary_weight > 0)
    labels = paddle.to_tensor(np.random.default_rng(1).integers(0, CLASSES, (2, 64, 64)))
    large = [F.interpolate(result, size=[64, 64], mode="bilinear") for result in outputs]
    sum(F.cross_entropy(result, labels, axis=1) for result in large).backward()
    for key, parameter in model.named_parameters():
        if not parameter.stop_gradient:
            assert parameter.grad is not None and np.isfinite(parameter.grad.numpy()).all(), key
    groups = model.layer_groups()
    assert sorted(key for group in groups for key in group) == sorted(key for key, _ in model.named_parameters())
    assert all(key.startswith("backbone.") for group in groups[:-1] for key in group)
    assert not any(key.startswith("backbone.") for key in groups[-1])
    assert set(model.no_weight_decay()) <= {key for key, _ in model.named_parameters()}


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_an_image_has_the_same_logits_in_any_batch(name):
    model = small(name, seed=1)
    images = paddle.to_tensor(np.random.default_rng(3).standard_normal((3, 3, 64, 90)).astype("float32"))
    with paddle.no_grad():
        together, alone = model(images).numpy(), model(images[1:2]).numpy()
    np.testing.assert_allclose(together[1:2], alone, rtol=1e-4, atol=1e-4 * np.abs(alone).max())


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_no_network_makes_the_host_wait_for_a_gpu(name):
    model = small(name, seed=1, dropout=0.1)
    model.train()
    images = paddle.randn([2, 3, 64, 90])  # other positions than those that a ViT was built for
    with counted_waits() as waits:
        outputs = model(images)
        sum((result**2).mean() for result in (outputs if isinstance(outputs, tuple) else (outputs,))).backward()
    assert len(waits) == 0, str(waits)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_another_number_of_classes_changes_the_last_layers_alone(name):
    model = small(name, seed=1)
    before = {key: value.numpy().copy() for key, value in model.state_dict().items()}
    model.reset_classifier(3)
    assert logits(model).shape[1] == 3 and model.num_classes == 3
    last = tuple(f"{layer}." for layer in model.classifier_layers)
    after = model.state_dict()
    assert set(after) == set(before)
    changed = {key for key, value in after.items() if value.shape != list(before[key].shape)}
    assert changed == {key for key in before if key.startswith(last)}
    report = load_weights(model, before)
    assert sorted(report.reinitialized) == sorted(changed) and not report.missing
    with pytest.raises(
        UserError, match=f"it has {CLASSES} classes and the model 3: set MODEL.NUM_CLASSES to {CLASSES}"
    ):
        load_weights(model, before, strict=True)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_backbone_begins_with_a_classifiers_weights(name):
    model = small(name, seed=1)
    backbone = variant_options(name)["backbone"]
    options = {key: value for key, value in reduced(name)["backbone_options"].items() if key != "any_size"}
    classifier = far_from_the_start(create_model(backbone, num_classes=7, **options), seed=2)
    report = load_weights(model.pretrained_part, in_torch_layout(classifier))
    assert report.missing == []
    # Of a ViT, positions of 224 pixels become those of 64.
    assert report.resized == (["pos_embed"] if hasattr(classifier, "pos_embed") else [])
    for key, value in model.backbone.state_dict().items():
        if key not in report.resized:
            np.testing.assert_array_equal(value.numpy(), classifier.state_dict()[key].numpy())


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_dropout_is_in_training_alone(name):
    model = small(name, seed=1, dropout=0.5)
    np.testing.assert_array_equal(logits(model), logits(model))
    np.testing.assert_array_equal(logits(model), logits(small(name, seed=1, dropout=0.0)))
    images = paddle.ones([2, 3, 64, 64])
    heads = [getattr(model, head) for head in ("decode_head", "classifier", "dropout") if hasattr(model, head)]
    heads[0].train()
    assert np.abs(model(images).numpy() - model(images).numpy()).max() > 0


# SegFormer's head in the paper's order


def test_segformers_head_is_that_of_the_paper():
    paddle.seed(3)
    head = SegFormerHead((3, 5, 7, 9), channels=6, num_classes=4, dropout=0.0)
    head = far_from_the_start(head, seed=3).to(dtype="float64")
    rng = np.random.default_rng(4)
    sides = ((8, 10), (4, 5), (2, 3), (1, 2))
    maps = [paddle.to_tensor(rng.standard_normal((2, *side, width))) for side, width in zip(sides, (3, 5, 7, 9))]
    enlarged = []
    for number, x in enumerate(maps, start=1):
        x = getattr(head, f"linear_c{number}").proj(x).transpose([0, 3, 1, 2])
        enlarged.insert(0, F.interpolate(x, size=sides[0], mode="bilinear", align_corners=False))
    with paddle.no_grad():
        expected = head.linear_pred(head.linear_fuse(paddle.concat(enlarged, axis=1))).numpy()
        np.testing.assert_allclose(head(maps).numpy(), expected, rtol=0, atol=1e-6)  # its resize has float32 ratios


# ViT


def test_a_vit_of_any_size_is_the_plain_one_with_resampled_positions():
    options = {"depth": 4, "embed_dim": 24, "num_heads": 2, "num_classes": 0}
    model = far_from_the_start(create_model("vit", image_size=64, any_size=True, **options), seed=1)
    images = np.random.default_rng(0).standard_normal((2, 3, 90, 122)).astype("float32")
    padded = np.zeros((2, 3, 96, 128), "float32")
    padded[:, :, :90, :122] = images
    plain = create_model("vit", image_size=(96, 128), **options)
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    prefix, patches = state["pos_embed"][:, :1], state["pos_embed"][:, 1:]
    state["pos_embed"] = np.concatenate([prefix, bicubic(patches, (4, 4), (6, 8))], axis=1)
    load_weights(plain, state)
    plain.eval()
    for found, expected in zip(
        model.feature_maps(paddle.to_tensor(images)), plain.feature_maps(paddle.to_tensor(padded))
    ):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=1e-4)
    smooth = resize_position_embedding(state["pos_embed"], (6, 8), 1)  # what loading would make of them, for comparison
    np.testing.assert_allclose(smooth, state["pos_embed"], rtol=0, atol=1e-6)


def bicubic(patches, old, new):
    """Keys' cubic convolution with a = -0.75 between the centers of pixels, the border repeated, as PyTorch's."""
    result = patches.reshape(*old, -1).astype(np.float64)
    for axis in (0, 1):
        length, a = result.shape[axis], -0.75
        centers = (np.arange(new[axis]) + 0.5) * length / new[axis] - 0.5
        rows = np.zeros((new[axis], length))
        for row, center in enumerate(centers):
            for place in range(int(np.floor(center)) - 1, int(np.floor(center)) + 3):
                d = abs(place - center)
                near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * (d**3 - 5 * d**2 + 8 * d - 4)
                rows[row, min(max(place, 0), length - 1)] += near if d <= 1 else far
        result = np.moveaxis(np.tensordot(rows, result, axes=(1, axis)), 0, axis)
    return result.reshape(1, new[0] * new[1], -1).astype(np.float32)


# Names of other projects


@pytest.mark.parametrize(
    "name, convert, origin",
    [
        ("segformer_b0", others.of_segformers_authors, "the authors' names, Linear weights (out, in)"),
        ("segformer_b0", others.of_paddlesegs_segformer, "PaddleSeg names, Linear weights (in, out)"),
        ("segformer_mmseg_b0", others.of_mmsegmentations_mit, "mmsegmentation names, Linear weights (out, in)"),
        ("segformer_mmseg_b0", others.of_paddlevits_mit, "PaddleViT names, Linear weights (in, out)"),
        ("upernet_swin_tiny", others.of_swins_authors, "the authors' (Swin) names, Linear weights (out, in)"),
        ("upernet_swin_tiny", others.of_mmsegmentations_swin, "mmsegmentation (Swin) names, Linear weights (out, in)"),
        ("upernet_swin_tiny", others.of_paddlevits_upernet, "PaddleViT names, Linear weights (in, out)"),
        ("upernet_convnext_tiny", others.of_convnexts_authors, "the authors' (ConvNeXt) names"),
        ("upernet_convnext_tiny", others.of_mmsegmentations_convnext, "mmsegmentation (ConvNeXt) names"),
        ("upernet_pvtv2_b0", others.of_mits_authors, "the authors' (PVTv2) names, Linear weights (out, in)"),
        ("upernet_vit_base", others.of_mmsegmentations_vit, "mmsegmentation (ViT) names, Linear weights (out, in)"),
        ("upernet_deit_small", others.of_mmsegmentations_vit, "mmsegmentation (ViT) names, Linear weights (out, in)"),
        ("fcn_resnet50", in_torch_layout, "torchvision names, Linear weights (out, in)"),
    ],
)
def test_other_names_give_the_same_logits(name, convert, origin):
    source, model = small(name, seed=1), small(name, seed=2)
    assert np.abs(logits(source) - logits(model)).max() > 1e-3
    report = load_weights(model, convert(source), strict=True)
    np.testing.assert_array_equal(logits(model), logits(source))
    assert report.origin.startswith(origin) and report.unexpected == []


@pytest.mark.parametrize(
    "convert, origin",
    [
        (others.of_mits_authors, "the authors' names, Linear weights (out, in)"),
        (others.of_mmsegmentations_mit, "mmsegmentation names, Linear weights (out, in)"),
        (others.of_paddlevits_mit, "PaddleViT names, Linear weights (in, out)"),
    ],
)
def test_an_mit_classifier_has_the_names_of_others(convert, origin):
    def classifier(seed):
        options = reduced("segformer_b0")["backbone_options"]
        return far_from_the_start(create_model("mit_b0", num_classes=CLASSES, **options), seed)

    source, model = classifier(1), classifier(2)
    report = load_weights(model, convert(source), strict=True)
    np.testing.assert_array_equal(logits(model), logits(source))
    assert report.origin == origin and report.unexpected == []


@pytest.mark.usefixtures("families_once")
@pytest.mark.parametrize(
    "name, convert, origin",
    [
        ("segformer_b0", others.of_segformers_authors, "segformer, the authors' names"),
        ("segformer_mmseg_b0", others.of_paddlevits_mit, "segformer, PaddleViT names"),
        ("upernet_swin_tiny", others.of_mmsegmentations_swin, "upernet, mmsegmentation (Swin) names"),
        ("upernet_vit_base", others.of_mmsegmentations_vit, "upernet, mmsegmentation (ViT) names"),
        ("fcn_resnet50", in_torch_layout, "fcn, torchvision names"),
    ],
)
def test_the_command_that_converts_knows_the_names(name, convert, origin):
    model = small(name, seed=1)
    converted = with_our_names(weights_from_mapping(convert(model), None))
    assert converted.origin.startswith(origin) and converted.unknown == []
    expected = arrays(model)
    assert set(converted.state) == set(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(converted.state[key], value, err_msg=key)


def test_weights_of_the_other_segformer_are_refused_by_name():
    ours, theirs = small("segformer_b0", seed=1), small("segformer_mmseg_b0", seed=1)
    with pytest.raises(
        UserError, match="mmsegmentation's or PaddleViT's SegFormer.*take MODEL.NAME segformer_mmseg_b0"
    ):
        load_weights(ours, others.of_mmsegmentations_mit(theirs))
    with pytest.raises(
        UserError, match="mmsegmentation's or PaddleViT's SegFormer.*take MODEL.NAME segformer_mmseg_b0"
    ):
        load_weights(ours, others.of_paddlevits_mit(theirs))
    for convert in (others.of_segformers_authors, others.of_paddlesegs_segformer):
        with pytest.raises(UserError, match="the authors' SegFormer.*take MODEL.NAME segformer_b0 or its like"):
            load_weights(theirs, convert(ours))
    with pytest.raises(UserError, match="normalizes the last map of its ViT"):
        load_weights(
            small("upernet_deit_small", seed=1), others.of_mmsegmentations_vit(small("upernet_vit_base", seed=1))
        )


def test_mmsegmentations_swin_merges_what_unfold_puts_side_by_side():
    """Its patch merging, computed as mmsegmentation does, with the weights it stores, is ours with what is loaded."""
    model = small("upernet_swin_tiny", seed=1)
    merging = model.backbone.layers[1].downsample
    state = others.of_mmsegmentations_swin(model)
    parts = [state[f"backbone.stages.0.downsample.{name}"] for name in ("norm.weight", "norm.bias", "reduction.weight")]
    scale, shift, weight = (paddle.to_tensor(np.ascontiguousarray(part)) for part in parts)
    x = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 6, 8, 12)).astype("float32"))
    unfolded = F.unfold(x.transpose([0, 3, 1, 2]), 2, strides=2).transpose([0, 2, 1])  # (2, 12, 48)
    expected = F.layer_norm(unfolded, 48, scale, shift) @ weight.t()
    found = merging(x).flatten(1, 2)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=1e-4)
