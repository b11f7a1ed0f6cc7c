"""Models of timm: logits and training losses of PyTorch, weights, options, groups, feature maps."""

import numpy as np
import paddle
import pytest
from support.networks import golden, timm_zoo
from support.processes import ROOT

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.foreign_names import to_torch_names
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.checkpoint.published import is_fetched
from paddlevit_dist.core.distributed.batch_norm import DistributedBatchNorm, convert_batch_norm
from paddlevit_dist.core.registry.model_sources import find_weights_address
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.model_factory import create_model, model_options
from paddlevit_dist.images.expected_input import find_expected_input
from paddlevit_dist.images.models.bridges.timm_model import COMPARED_MODULES, REQUIREMENT, load_timm

pytestmark = timm_zoo.needs_compat
SMALL = ("test_resnet", "test_vit", "test_efficientnet", "test_convnext", "test_nfnet", "test_byobnet", "starnet_s050")


@pytest.fixture(scope="module", autouse=True)
def timm():
    """Import timm outside of the tests, whose seconds are counted."""
    return load_timm()


@pytest.mark.parametrize("name", SMALL)
def test_logits_are_those_of_pytorch(name):
    error, allowed = timm_zoo.make_error(name)
    assert error <= allowed


@pytest.mark.parametrize("name", ["test_efficientnet", "test_convnext", "test_nfnet"])
def test_ten_updates_give_the_losses_of_pytorch(name):
    """The golden losses are of PyTorch in float64, eight images an update."""
    fact = golden.description("timm_training")[name]
    model = create_model(f"timm:{name}", 10)
    timm_zoo.fill(model.network, 11)
    model.train()
    learned = model.parameters()
    if fact["optimizer"] == "sgd":
        optimizer = paddle.optimizer.Momentum(0.01, 0.9, parameters=learned)
    else:
        optimizer = paddle.optimizer.AdamW(1e-3, parameters=learned, weight_decay=0.05)
    losses = []
    for update in range(10):
        images = paddle.to_tensor(golden.recipe().golden_image(100 + update, 8, fact["image_size"]))
        labels = paddle.to_tensor([(3 * update + image) % 10 for image in range(8)])
        loss = paddle.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    np.testing.assert_allclose(losses, fact["losses"], rtol=1e-4)


def test_weights_load_by_names_of_pytorch():
    source, target = (create_model("timm:test_resnet", 5) for _ in range(2))
    report = load_weights(target, {k: v.numpy() for k, v in to_torch_names(source.state_dict()).items()}, strict=True)
    assert report.loaded_fraction == 1.0
    images = paddle.randn([2, 3, 160, 160])
    assert (source.eval()(images).numpy() == target.eval()(images).numpy()).all()


def test_another_number_of_classes_begins_with_a_new_classifier():
    weights = {k: v.numpy() for k, v in create_model("timm:test_vit", 5).state_dict().items()}
    report = load_weights(create_model("timm:test_vit", 7), weights)
    assert sorted(report.reinitialized) == ["head.bias", "head.weight"]


def test_position_embeddings_fit_another_size(capfd):
    """timm's own conversion resamples them; here to the same grid twice as fine, by the mean of which they are found
    again."""
    small, large = create_model("timm:test_vit", 5), create_model("timm:test_vit", 5, image_size=320)
    flat = small.state_dict()
    flat["pos_embed"].set_value(paddle.ones_like(flat["pos_embed"]) * 0.25)
    report = load_weights(large, {name: value.numpy() for name, value in flat.items()}, strict=True)
    assert report.loaded_fraction == 1.0
    assert "resized by timm: pos_embed (1, 101, 64) -> (1, 401, 64)" in report.summary()
    assert "position embedding" not in "".join(capfd.readouterr())  # timm's own line at each conversion
    assert "timm" not in load_weights(small, {name: value.numpy() for name, value in flat.items()}).summary()
    embedding = large.state_dict()["pos_embed"].numpy()
    assert embedding.shape[1] > small.state_dict()["pos_embed"].shape[1]
    np.testing.assert_allclose(embedding, 0.25, rtol=1e-5)


@pytest.mark.parametrize("channels", [1, 6])
def test_the_first_convolution_fits_other_channels(channels):
    """Of an image whose channels are all equal the result stays."""
    color, other = create_model("timm:test_resnet", 5), create_model("timm:test_resnet", 5, in_channels=channels)
    load_weights(other, {name: value.numpy() for name, value in color.state_dict().items()}, strict=True)
    gray = paddle.randn([1, 1, 64, 64])
    expected, found = (model.eval()(gray.tile([1, model.in_channels, 1, 1])).numpy() for model in (color, other))
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)


def test_groups_are_those_of_timm_and_hold_every_parameter_once():
    model = create_model("timm:test_vit", 5)
    groups = model.layer_groups()
    names = [name for group in groups for name in group]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    assert "patch_embed.proj.weight" in groups[0] and "head.weight" in groups[-1]


@pytest.mark.parametrize("name", ["poolformerv2_s12", "hrnet_w18_small", "ese_vovnet19b_slim_dw", "resnet18"])
def test_networks_that_take_no_size_are_built_for_any(name):
    """The first three refuse img_size in words of timm's own."""
    model = create_model(f"timm:{name}", 3, image_size=64).eval()
    assert model.image_size == (64, 64)
    assert tuple(model(paddle.randn([1, 3, 64, 64])).shape) == (1, 3)


def test_groups_of_a_network_without_a_matcher_are_twelve_parameters_each():
    """timm's ``auto_group_layers``, which its layer decay uses for such networks."""
    model = create_model("timm:pit_ti_224", 3)
    groups = model.layer_groups()
    assert sorted(sum(groups, [])) == sorted(name for name, _ in model.named_parameters())
    assert {len(group) for group in groups[:-2]} == {12} and groups[-1] == ["head.weight", "head.bias"]


@pytest.mark.parametrize("name", ["test_vit", "pit_ti_224", "pvt_v2_b0"])
def test_a_recorded_network_takes_any_number_of_images(name, tmp_path):
    model = create_model(f"timm:{name}", 3, image_size=64).eval()
    shape = paddle.static.InputSpec([None, 3, 64, 64], "float32", "images")
    images = paddle.randn([3, 3, 64, 64])
    expected = model(images).numpy()
    paddle.jit.save(model, str(tmp_path / "recorded"), [shape])
    found = paddle.jit.load(str(tmp_path / "recorded"))(images).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_recomputed_layers_are_blocks_without_batch_norms():
    assert len(create_model("timm:test_vit", 5).recomputed_layers()) == 6
    assert create_model("timm:test_resnet", 5).recomputed_layers() == []


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_convnext"])
def test_feature_maps_have_the_shapes_that_are_told(name):
    model = create_model(f"timm:{name}", 0).eval()
    side = model.image_size[0]
    maps = model.feature_maps(paddle.randn([1, 3, side, side]))
    expected = [
        (1, channels, side // stride, side // stride)
        for channels, stride in zip(model.feature_channels, model.feature_strides)
    ]
    assert [tuple(one.shape) for one in maps] == expected


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_convnext", "test_efficientnet"])
def test_features_have_the_width_that_is_told(name):
    """Probes put their classifiers on them."""
    model = create_model(f"timm:{name}", 5).eval()
    side = model.image_size[0]
    assert tuple(model.forward_features(paddle.randn([1, 3, side, side])).shape) == (1, model.embed_dim)


def test_a_part_of_a_larger_network_follows_its_mode():
    """Paddle sets the mode of all layers below, but does not call their own ``eval``."""
    inner = create_model("timm:test_vit", 5)
    outer = paddle.nn.Sequential(inner)
    outer.eval()
    outer(paddle.randn([1, 3, 160, 160]))
    assert not inner.network.training
    outer.train()
    outer(paddle.randn([1, 3, 160, 160]))
    assert inner.network.training


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "resnet18"])
def test_maps_of_images_of_any_size_are_those_of_pytorch(name):
    """Positions are interpolated, sides are padded to whole patches, and the last stages are dilated."""
    assert all(error <= allowed for error, allowed in timm_zoo.make_feature_errors(name))


def test_a_model_of_one_size_is_refused_where_images_have_any():
    with pytest.raises(UserError, match="takes images of .* pixels only: choose another"):
        create_model("timm:cait_xxs24_224", 0, any_size=True)
    with pytest.raises(UserError, match="cannot compute maps of 97 x 130 pixels: choose another one"):
        create_model("timm:levit_128s", 0, any_size=True).feature_maps(paddle.randn([1, 3, 97, 130]))


def test_frozen_batch_norms_and_stages_do_not_change_in_training():
    """Compared with the state before a step of SGD with a large rate."""
    model = create_model("timm:test_resnet", 5, frozen_batch_norm=True, frozen_stages=2)
    model.train()
    before = {name: value.numpy() for name, value in model.state_dict().items()}
    optimizer = paddle.optimizer.SGD(1.0, parameters=[one for one in model.parameters() if not one.stop_gradient])
    model(paddle.randn([2, 3, 64, 64])).square().mean().backward()
    optimizer.step()
    changed = {name for name, value in model.state_dict().items() if not np.array_equal(value.numpy(), before[name])}
    norms = {name for name, layer in model.named_sublayers() if "BatchNorm" in type(layer).__name__}
    assert changed and not {name for name in changed if name.rpartition(".")[0] in norms}
    assert not {name for name in changed if name.startswith(("conv1", "layer1"))}
    assert any(name.startswith("layer2") for name in changed)


@pytest.mark.parametrize(
    ("head", "backbone"),
    [
        ("upernet_deit_small", "timm:test_vit"),
        ("fcn_resnet50", "timm:test_resnet"),
        ("linear_dinov3_small", "timm:test_vit"),
    ],
)
def test_segmenters_learn_on_backbones_of_timm(head, backbone):
    options = {"channels": 8, "auxiliary_channels": 8} if head.startswith("upernet") else {}
    model = create_model(head, 3, image_size=72, backbone=backbone, **options)
    outputs = model(paddle.randn([2, 3, 66, 90]))
    sum(one.mean() for one in (outputs if isinstance(outputs, tuple) else [outputs])).backward()
    learning = {name: one for name, one in model.named_parameters() if not one.stop_gradient}
    silent = [name for name, one in learning.items() if one.grad is None]
    assert len(learning) > 20 and silent == []


def test_mask_rcnn_fixes_the_first_stages_of_a_backbone_of_timm():
    body = create_model("mask_rcnn_resnet50_fpn", 3, backbone="timm:test_resnet").pretrained_part
    fixed = {name.partition(".")[0] for name, one in body.named_parameters() if one.stop_gradient}
    learning = {name.partition(".")[0] for name, one in body.named_parameters() if not one.stop_gradient}
    assert {"conv1", "bn1", "layer1"} <= fixed and learning == {"layer2", "layer3", "layer4"}


def test_batch_norms_of_timm_can_be_shared_by_processes():
    model = convert_batch_norm(create_model("timm:test_efficientnet", 5))
    norms = [layer for layer in model.sublayers() if "BatchNorm" in type(layer).__name__]
    assert len(norms) > 10
    assert all(isinstance(norm, DistributedBatchNorm) and norm.synchronized for norm in norms)
    # An activation that follows is still there.
    act = next(
        norm for norm in norms if type(norm).__name__ == "BatchNormAct2d" and type(norm.act).__name__ != "Identity"
    )
    x = paddle.randn([4, act.num_features, 3, 3])
    np.testing.assert_allclose(act(x).numpy(), act.act(act._normalize(x)).numpy(), rtol=1e-6)


def test_the_version_that_is_asked_for_is_that_of_the_extra():
    assert f'TIMM = "{REQUIREMENT}"' in (ROOT / "setup.py").read_text(encoding="utf-8")


def test_unknown_names_and_options_are_one_line():
    with pytest.raises(UserError, match="no model 'mobilenetv4_conv_smal': did you mean mobilenetv4_conv_small"):
        create_model("timm:mobilenetv4_conv_smal")
    with pytest.raises(
        UserError, match="timm:test_resnet' has no option 'embed_dimension': valid options: block, layers"
    ):
        create_model("timm:test_resnet", embed_dimension=3)


def test_compared_modules_are_those_of_the_golden_files(timm):
    names = [name for file in ("timm_zoo", "timm_zoo_more") for name in golden.description(file)["models"]]
    of_modules = {module: set(timm.list_models(module=module)) for module in timm.list_modules()}
    assert {module for module, models in of_modules.items() if models & set(names)} == COMPARED_MODULES


def test_a_file_of_timm_that_was_not_compared_is_told(timm):
    other = sorted(set(timm.list_modules()) - COMPARED_MODULES)[0]
    notices = model_options(f"timm:{timm.list_models(module=other)[0]}").notices
    assert ["has been compared" in notice for notice in notices] == [True]
    assert model_options("timm:test_resnet").notices == []


def test_a_faster_network_of_ours_is_told():
    assert "MODEL.NAME vit_tiny_patch16_224" in model_options("timm:vit_tiny_patch16_224").notices[0]
    assert model_options("timm:test_vit").notices == []


def test_weights_are_where_timm_says():
    assert find_weights_address("timm:resnet50.tv_in1k") == "hf:timm/resnet50.tv_in1k"
    assert find_weights_address("timm:resnet50") == "hf:timm/resnet50.a1_in1k"
    assert find_weights_address("timm:rdnet_tiny.nv_in1k") == "hf:naver-ai/rdnet_tiny.nv_in1k"
    assert find_weights_address("timm:gcvit_tiny").startswith("https://")
    with pytest.raises(UserError, match="timm has no such weights of resnet50: expected one of the tags a1_in1k"):
        find_weights_address("timm:resnet50.mine")
    assert is_fetched("timm:resnet50.tv_in1k")


def test_images_are_prepared_as_timm_says():
    """The values of two rows of timm's own table."""
    words = ["-dataset=folder", "-data_path=x", "MODEL.NAME", "timm:resnet50"]
    for source, crop, how in (("timm:resnet50.tv_in1k", 0.875, "bilinear"), ("timm:resnet50.a1_in1k", 0.95, "bicubic")):
        expected = find_expected_input(load([*words, f"-pretrained={source}"]).values).expected
        assert (expected.crop_pct, expected.interpolation) == (crop, how)
    clip = load(["-dataset=folder", "-data_path=x", "MODEL.NAME", "timm:vit_base_patch16_clip_224"]).values
    assert clip.DATA.IMAGENET_MEAN[0] == pytest.approx(0.48145466)
