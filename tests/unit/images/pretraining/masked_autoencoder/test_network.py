"""Masked autoencoders: which pixels reach the encoder, networks with other tokens, and weights."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.pretraining.masked_autoencoder import masks
from paddlevit_dist.images.pretraining.masked_autoencoder.losses import reconstruction_losses
from paddlevit_dist.images.pretraining.masked_autoencoder.network import MaskedAutoencoder

SIZES = {"image_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}
NETWORKS = {
    "vit": {},
    "deit_tiny_distilled_patch16_224": {},
    "vit_small_patch14_reg4_dinov2": {},  # registers, scaled branches, positions of patches
    "vit_medium_patch16_reg4_gap_256": {},  # no class token, its norm follows the mean
    "vit_base_patch16_clip_224": {},  # a norm precedes the first block
}


def make(name="vit", **options):
    paddle.seed(1)
    encoder = create_model(name, 0, **{**SIZES, **options})
    return MaskedAutoencoder(encoder, 0.75, width=8, depth=1, num_heads=2)


def draw(number=2, channels=3):
    generator = np.random.default_rng(0)
    images = paddle.to_tensor(generator.standard_normal((number, channels, 16, 16)).astype(np.float32))
    order = np.stack([masks.draw_order(16, generator) for _ in range(number)])
    return images, paddle.to_tensor(order), paddle.to_tensor(masks.sort_noise(order))


@pytest.mark.parametrize("name", NETWORKS)
def test_encoders_of_all_patches_compute_what_they_compute_without_masks(name):
    model = make(name)
    model.eval()
    model.kept = model.num_patches
    images, _, _ = draw()
    in_order = paddle.arange(16).unsqueeze(0).expand([2, -1])
    expected = model.encoder.fc_norm(model.encoder.tokens(images))
    np.testing.assert_allclose(model.encode(images, in_order).numpy(), expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_trainable_parameter_learns(name):
    model, (images, order, restore) = make(name), draw()
    target = masks.cut_patches(images, 4)
    reconstruction_losses(model(images, order, restore), target, restore, model.kept).sum().backward()
    without = {n for n, p in model.named_parameters() if not p.stop_gradient and (p.grad is None or not p.grad.any())}
    assert without == set()
    assert [n for n, p in model.named_parameters() if p.stop_gradient] == ["pos_embed"]


def test_first_weights_are_uniform_by_the_widths_of_both_sides_and_positions_are_a_table_of_sines():
    model = make(image_size=[12, 20], embed_dim=24)
    sides = {"patch_embed.proj": (24, 3 * 4 * 4), "blocks.0.mlp.fc1": (24, 96), "pretraining_decoder.embed": (24, 8)}
    sides |= {"pretraining_decoder.blocks.0.mlp.fc1": (8, 32), "pretraining_decoder.pred": (8, 48)}
    layers = dict(model.named_sublayers())
    for name, (inputs, outputs) in sides.items():
        largest = float(layers[name].weight.abs().max())
        limit = np.sqrt(6 / (inputs + outputs))
        assert 0.93 * limit < largest <= limit * (1 + 1e-6), name
        assert abs(float(layers[name].weight.mean())) < 0.1 * limit, name
    frequencies = 10000.0 ** (-np.arange(6) / 6)
    expected = np.zeros((16, 24))  # a class token without a position, 3 x 5 patches
    for row in range(3):
        for column in range(5):
            angles = [place * frequencies for place in (column, row)]
            parts = [part(angle) for angle in angles for part in (np.sin, np.cos)]
            expected[1 + 5 * row + column] = np.concatenate(parts)
    np.testing.assert_allclose(model.pos_embed.numpy()[0], expected, atol=1e-6)


def test_masked_pixels_reach_the_loss_alone():
    model, (images, order, restore) = make(), draw()
    hidden = (restore >= model.kept).astype("float32").unsqueeze(-1)
    patches = masks.cut_patches(images, 4)
    changed = masks.join_patches(patches + 3 * hidden, model.grid, 4, 3)
    predictions = [model(each, order, restore).numpy() for each in (images, changed)]
    np.testing.assert_array_equal(*predictions)
    kept_changed = masks.cut_patches(images, 4) + 3 * (1 - hidden)
    losses = [
        reconstruction_losses(paddle.to_tensor(predictions[0]), target, restore, model.kept).numpy()
        for target in (patches, kept_changed, patches + 3 * hidden)
    ]
    np.testing.assert_array_equal(losses[0], losses[1])
    assert (losses[2] > losses[0]).all()
    errors = ((predictions[0] - patches.numpy()) ** 2).mean(axis=2)
    expected = [row[order.numpy()[k, model.kept :]].mean() for k, row in enumerate(errors)]
    np.testing.assert_allclose(losses[0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("resnet18", {}, "ResNet cannot leave out patches"),
        ("vit_small_patch16_dinov3", {"num_heads": 2, "embed_dim": 16}, "positions are not added"),
        ("vit", {"rotary": "grid"}, "positions are not added"),  # besides a table of them
        ("vit", {"embed_dim": 18}, "MODEL.EMBED_DIM 18.*multiple of 4"),
        ("vit", {"pool": "attention"}, "it pools by attention, which would not be trained"),
    ],
)
def test_networks_that_cannot_leave_out_patches_are_refused(name, options, expected):
    encoder = create_model(name, 0, **({} if name == "resnet18" else {**SIZES, **options}))
    with pytest.raises(UserError, match=expected):
        MaskedAutoencoder(encoder, 0.75, 8, 1, 2)


def test_a_share_that_masks_nothing_is_refused():
    with pytest.raises(UserError, match="of 16 patches 0 would be kept"):
        MaskedAutoencoder(create_model("vit", 0, **SIZES), 0.99, 8, 1, 2)


def test_classifiers_load_all_but_their_head():
    model = make()
    classifier = create_model("vit", 5, **SIZES)
    report = load_weights(classifier, model.state_dict())
    assert report.reinitialized == ["head.weight", "head.bias"]
    assert (report.missing, report.unexpected, report.resized) == ([], [], [])
    assert [line for line in report.notices if line.startswith("pretraining_decoder, which")]
    np.testing.assert_array_equal(classifier.pos_embed.numpy(), model.pos_embed.numpy())


def test_positions_of_weights_for_another_size_are_resized():
    smaller, larger = make(), make(image_size=24)
    expected = larger.encoder.resample_parameter("pos_embed", smaller.pos_embed.numpy(), None)
    report = load_weights(larger, smaller.state_dict())
    assert report.resized == ["pos_embed"] and expected.shape == (1, 37, 16)
    np.testing.assert_array_equal(larger.pos_embed.numpy(), expected)


@pytest.mark.parametrize("task", ["classification", "multi_label"])
@pytest.mark.parametrize("source", ["masked_autoencoder", "self_distillation"])
def test_each_task_with_a_classifier_loads_all_but_its_head(task, source):
    words = [word for name, value in SIZES.items() for word in (f"{name.upper()}", str(value))]
    words[::2] = [f"DATA.{name}" if name == "IMAGE_SIZE" else f"MODEL.{name}" for name in words[::2]]
    small = (
        "MASKED_AUTOENCODER.DECODER_WIDTH 16"
        if source == "masked_autoencoder"
        else "SELF_DISTILLATION.SMALL_SIZE 8 SELF_DISTILLATION.OUTPUTS 8 SELF_DISTILLATION.HEAD_WIDTH 8"
    )
    models = []
    for name, more in ((source, small.split()), (task, [])):
        values = settings.load(["TASK", name, "MODEL.NAME", "vit", *words, *more]).values
        models.append(make_task(values).create_network(3))
    report = load_weights(models[1], models[0].state_dict())
    assert report.reinitialized == ["head.weight", "head.bias"]
    assert (report.missing, report.unexpected, report.resized) == ([], [], [])
    np.testing.assert_array_equal(models[1].blocks[0].mlp.fc1.weight, models[0].blocks[0].mlp.fc1.weight)


def test_weights_with_the_authors_names_are_loaded():
    state = {name: np.random.default_rng(0).random(tuple(p.shape), np.float32) for name, p in make().named_parameters()}
    linear = {f"{n}.weight" for n, layer in make().named_sublayers() if isinstance(layer, paddle.nn.Linear)}
    theirs = {}
    for name, value in state.items():
        short = name.removeprefix("pretraining_decoder.")
        new = short if short == name or short == "mask_token" else f"decoder_{short}"
        theirs[new] = value.T if name in linear else value
    model = make()
    report = load_weights(model, {**theirs, "decoder_pos_embed": np.zeros((1, 17, 8), np.float32)})
    assert (report.missing, report.unexpected, report.reinitialized) == ([], [], [])
    for name, parameter in model.named_parameters():
        np.testing.assert_array_equal(parameter.numpy(), state[name], err_msg=name)
