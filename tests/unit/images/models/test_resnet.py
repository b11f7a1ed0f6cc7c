"""ResNets as backbones: padded batches, dilation, fixed batch norms and parts that do not learn."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import count_classes, load_weights
from paddlevit_dist.core.checkpoint.weights import weights_from_mapping
from paddlevit_dist.core.tasks.model_factory import create_model

SMALL = {"depths": (1, 2, 1, 2), "dims": (4, 6, 8, 10)}
NAMES = ("resnet18", "resnet50")  # two convolutions in a block, and three
SIZES = ((33, 50), (64, 47), (1, 1), (50, 64))  # height, width


def small(name, **options):
    """A float64 backbone in which everything counts, fixed batch norms too."""
    model = create_model(name, num_classes=0, **{**SMALL, **options}).to(dtype="float64")
    rng = np.random.default_rng(3)
    for key, value in model.state_dict().items():
        start = 0.0 if key.endswith((".bias", "._mean")) else 1.0
        drawn = rng.standard_normal(value.shape)
        drawn = np.sqrt(2.0 / drawn[0].size) * drawn if value.ndim == 4 else start + 0.3 * drawn
        value.set_value(np.abs(drawn) if key.endswith("._variance") else drawn)
    model.eval()
    return model


def images():
    """A list of images (3, height, width), and the batch that they are padded to at the right and the bottom."""
    rng = np.random.default_rng(4)
    each = [rng.standard_normal((3, *size)) for size in SIZES]
    batch = np.zeros((len(each), 3, max(h for h, _ in SIZES), max(w for _, w in SIZES)))
    for row, image in zip(batch, each):
        row[:, : image.shape[1], : image.shape[2]] = image
    return each, batch


def features(model, images, *sizes):
    with paddle.no_grad():
        return [found.numpy() for found in model.feature_maps(paddle.to_tensor(images), *map(paddle.to_tensor, sizes))]


@pytest.mark.parametrize("dilation", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_with_mask_padding_an_image_in_a_padded_batch_gives_the_numbers_of_the_image_alone(name, dilation):
    model = small(name, mask_padding=True, frozen_batch_norm=True, dilation=dilation)
    each, batch = images()
    together = features(model, batch, np.array(SIZES))
    plainly = features(small(name, frozen_batch_norm=True, dilation=dilation), batch)
    for number, image in enumerate(each):
        alone = features(model, image[None], np.array([SIZES[number]]))
        for found, padded, expected, stride in zip(together, plainly, alone, model.feature_strides):
            height, width = (-(-side // stride) for side in SIZES[number])
            assert expected.shape[2:] == (height, width)
            np.testing.assert_allclose(found[number, :, :height, :width], expected[0], rtol=0, atol=1e-12)
            assert not found[number, :, height:].any() and not found[number, :, :, width:].any()
            if SIZES[number] == (33, 50):  # what the option is for
                assert np.abs(padded[number, :, :height, :width] - expected[0]).max() > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_a_dilated_last_stage_has_the_plain_ones_numbers_at_every_other_position(name):
    image = np.random.default_rng(5).standard_normal((1, 3, 75, 96))
    plain, dilated = small(name), small(name, dilation=1)
    assert (plain.feature_strides, dilated.feature_strides) == ((4, 8, 16, 32), (4, 8, 16, 16))
    expected, found = features(plain, image), features(dilated, image)
    assert found[3].shape[2:] == found[2].shape[2:] == (5, 6)
    np.testing.assert_allclose(found[3][:, :, ::2, ::2], expected[3], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found[2], expected[2])


@pytest.mark.parametrize("name", NAMES)
def test_two_dilated_stages_have_the_plain_ones_numbers_at_every_other_and_every_fourth_position(name):
    image = np.random.default_rng(5).standard_normal((1, 3, 75, 96))
    plain, dilated = small(name), small(name, dilation=2)
    assert dilated.feature_strides == (4, 8, 8, 8)
    expected, found = features(plain, image), features(dilated, image)
    np.testing.assert_allclose(found[2][:, :, ::2, ::2], expected[2], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found[3][:, :, ::4, ::4], expected[3], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_fixed_batch_norms_compute_as_in_an_evaluation_and_do_not_learn(name):
    learning, fixed = small(name), small(name, frozen_batch_norm=True, frozen_stages=2)
    assert list(learning.state_dict()) == list(fixed.state_dict())
    image = np.random.default_rng(6).standard_normal((2, 3, 40, 48))
    before = {key: value.numpy().copy() for key, value in fixed.state_dict().items()}
    fixed.train()
    maps = fixed.feature_maps(paddle.to_tensor(image))
    for found, expected in zip(maps, features(learning, image)):
        np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)

    (maps[3] ** 2).sum().backward()
    for key, value in fixed.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[key], err_msg=key)
    with_gradient = {key for key, value in fixed.named_parameters() if value.grad is not None}
    convolutions = {key for key, value in fixed.state_dict().items() if value.ndim == 4}
    frozen = {key for key in convolutions if key.startswith(("conv1.", "layer1."))}
    assert with_gradient == convolutions - frozen and len(frozen) > 1
    # A step along the gradient changes the sum as a difference of sums says.
    parameter = dict(fixed.named_parameters())["layer2.0.conv1.weight"]
    slope, step = np.sqrt((parameter.grad.numpy() ** 2).sum()), 1e-7
    direction = parameter.grad.numpy() / slope
    sums = []
    for sign in (1, -1):
        parameter.set_value(before["layer2.0.conv1.weight"] + sign * step * direction)
        sums.append((features(fixed, image)[3] ** 2).sum())
    assert (sums[0] - sums[1]) / (2 * step) == pytest.approx(slope, rel=1e-4)


def test_parts_that_do_not_learn_keep_their_statistics_and_all_others_change_them():
    model = small("resnet18", frozen_stages=3)
    before = {key: value.numpy().copy() for key, value in model.state_dict().items()}
    model.train()
    model.feature_maps(paddle.to_tensor(np.random.default_rng(7).standard_normal((2, 3, 40, 48))))
    changed = {key for key, value in model.state_dict().items() if (value.numpy() != before[key]).any()}
    statistics = {key for key in before if key.endswith(("._mean", "._variance"))}
    assert changed == {key for key in statistics if key.startswith(("layer3.", "layer4."))}
    assert model.recomputed_layers() == []  # batch norms would count a batch twice
    assert len(small("resnet18", frozen_batch_norm=True).recomputed_layers()) == sum(SMALL["depths"])


@pytest.mark.parametrize(
    "options",
    [
        {"frozen_stages": 6},
        {"frozen_stages": -1},
        {"dims": (4, 8, 16)},
        {"dilation": True, "dims": (4,), "depths": (1,)},
    ],
)
def test_options_that_do_not_fit_are_refused(options):
    with pytest.raises(UserError, match=next(iter(options))):
        small("resnet18", **options)


def test_a_resnet_vd_does_not_mask_padding():
    with pytest.raises(UserError, match="^MODEL.MASK_PADDING: a ResNet-vd's shortcuts pool what is padded: use a Res"):
        small("resnet18", is_vd=True, mask_padding=True)


def test_a_batch_norm_of_fcn_with_the_name_of_transformers_classifier_is_no_classifier():
    backbone = {name: tensor.numpy() for name, tensor in create_model("resnet18", 0, **SMALL).state_dict().items()}
    norm = {f"classifier.1.{part}": np.ones(5, "float32") for part in ("weight", "bias", "_mean", "_variance")}
    ours = create_model("resnet18", 3, **SMALL)
    weights = weights_from_mapping({**backbone, **norm})
    assert count_classes(ours, weights) is None
    report = load_weights(ours, weights, minimum_loaded=0.5)
    assert sorted(report.reinitialized) == ["fc.bias", "fc.weight"] and sorted(report.unexpected) == sorted(norm)
    head = {"classifier.1.weight": np.ones((3, 10), "float32"), "classifier.1.bias": np.ones(3, "float32")}
    assert count_classes(ours, weights_from_mapping({**backbone, **head})) == 3
    assert load_weights(ours, {**backbone, **head}, strict=True).reinitialized == []
