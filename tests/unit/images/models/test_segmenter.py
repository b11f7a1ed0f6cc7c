"""Parts of segmentation networks: what they ask of their backbone, first weights, pooling and resizing."""

import math
import re

import numpy as np
import paddle
import pytest
from paddle import nn

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.models import segmenter, upernet
from paddlevit_dist.images.models.segformer import MmsegmentationsHead, SegFormer
from paddlevit_dist.images.models.segmenter import NormalizedConvolution, Segmenter, pixel_classifier, resize_maps


class Backbone(Model):
    """Three layers, of which it names two."""

    def __init__(self):
        super().__init__()
        self.stem, self.body, self.in_channels = nn.Linear(2, 2), nn.Linear(2, 2), 4

    def resize_parameter(self, name, value):
        return name, value

    def resample_parameter(self, name, value, trained_size):
        return name, value, trained_size

    def no_weight_decay(self):
        return ("stem.weight", "body.bias")

    def layer_groups(self):
        return [["stem.weight"], [], ["body.weight"]]

    def recomputed_layers(self):
        return [self.body]


class Pixels(Segmenter):
    """Has a head and an auxiliary one."""

    classifier_layers = ("decode.conv_seg", "aux")

    def __init__(self, num_classes=5, image_size=(30, 40), backbone="small", backbone_options=None, drop_path=0.0):
        super().__init__(num_classes, image_size, backbone, backbone_options, drop_path)
        self.decode = nn.Layer()
        self.decode.conv_seg, self.aux = pixel_classifier(6, num_classes), pixel_classifier(3, num_classes)


@pytest.fixture
def built(monkeypatch):
    calls = []
    monkeypatch.setattr(
        segmenter, "create_model", lambda *given, **options: calls.append((given, options)) or Backbone()
    )
    monkeypatch.setattr(segmenter, "variant_options", lambda name: {"patch_size": 16} if name == "small" else {})
    return calls


def test_a_backbone_is_built_for_whole_patches(built):
    model = Pixels(drop_path=0.25, backbone_options={"depth": 3})
    assert built == [(("small",), {"num_classes": 0, "image_size": (32, 48), "depth": 3, "drop_path": 0.25})]
    assert (model.image_size, model.in_channels, model.num_classes) == ((30, 40), 4, 5)
    Pixels(image_size=33, backbone_options={"patch_size": 8})
    assert built[1][1] == {"num_classes": 0, "image_size": (40, 40), "patch_size": 8}
    Pixels(image_size=33, backbone="other")
    assert built[2][1] == {"num_classes": 0, "image_size": (33, 33)}


def test_what_concerns_the_backbone_is_asked_of_it(built):
    model = Pixels()
    assert model.pretrained_part is model.backbone and model.recomputed_layers() == [model.backbone.body]
    assert model.resize_parameter("backbone.stem.weight", 3) == ("stem.weight", 3)
    assert model.resize_parameter("decode.conv_seg.weight", 3) is None
    assert model.resample_parameter("backbone.stem.weight", 3, (30, 40)) == ("stem.weight", 3, (30, 40))
    assert model.resample_parameter("aux.weight", 3, (30, 40)) is None
    assert model.no_weight_decay() == ("backbone.stem.weight", "backbone.body.bias")
    heads = ["decode.conv_seg.weight", "decode.conv_seg.bias", "aux.weight", "aux.bias"]
    assert model.layer_groups() == [["backbone.stem.weight"], ["backbone.body.weight"], heads]


class OwnUNet(Segmenter):
    """A network of a user, with an encoder of its own layers, which may be called backbone."""

    classifier_layers = ("last",)

    def __init__(self, num_classes=2, encoder="down"):
        super().__init__()
        self.encoder, self.last = encoder, nn.Conv2D(3, num_classes, 1)
        self.add_sublayer(encoder, nn.Sequential(nn.Conv2D(3, 3, 3, 2, 1), nn.ReLU()))

    def forward(self, images):
        return self.last(self._sub_layers[self.encoder](images))


@pytest.mark.parametrize("encoder", ["down", "backbone"])
def test_a_network_of_ones_own_needs_no_registered_backbone(encoder):
    model = OwnUNet.build("own", 4, encoder=encoder)
    assert model(paddle.zeros([1, 3, 8, 8])).shape == [1, 4, 4, 4] and (model.image_size, model.in_channels) == (
        None,
        3,
    )
    assert OwnUNet.build("own", 4, (8, 6)).image_size == (8, 6)
    names = [name for name, _ in model.named_parameters()]
    assert sorted(name for group in model.layer_groups() for name in group) == sorted(names)
    assert model.recomputed_layers() == [] and model.no_weight_decay() == ()
    assert model.resize_parameter(f"{encoder}.0.weight", np.ones((3, 3, 1, 1))) is None
    assert model.pretrained_part is (model if encoder == "down" else model.backbone)
    model.reset_classifier(9)
    assert model.last.weight.shape == [9, 3, 1, 1]


def test_both_heads_are_replaced(built):
    model = Pixels()
    model.reset_classifier(9)
    assert [model.decode.conv_seg.weight.shape, model.aux.weight.shape] == [[9, 6, 1, 1], [9, 3, 1, 1]]
    assert model.num_classes == 9
    segmenter.drop_layers(model.backbone, ["stem", "absent"])
    assert isinstance(model.backbone.stem, nn.Identity) and not hasattr(model.backbone, "absent")


def test_first_weights_have_the_papers_deviations():
    paddle.seed(1)
    assert float(pixel_classifier(200, 50).weight.std()) == pytest.approx(0.01, rel=0.05)
    for size in (1, 3):
        layer = NormalizedConvolution(60, 40, size)
        assert float(layer.conv.weight.std()) == pytest.approx(math.sqrt(2 / (40 * size**2)), rel=0.05)
        assert layer.conv.bias is None
        assert layer(paddle.zeros([1, 60, 5, 4])).shape == [1, 40, 5, 4]
    assert (layer.bn._momentum, layer.bn._epsilon, layer.bn._data_format) == (0.9, 1e-5, "NCHW")
    assert segmenter.batch_norm(3, "NHWC")._data_format == "NHWC"
    layer = NormalizedConvolution(2, 2, 1)
    layer.bn.weight.set_value(paddle.to_tensor([-1.0, -1.0]))
    layer.bn.bias.set_value(paddle.to_tensor([-9.0, 9.0]))
    shown = layer(paddle.ones([1, 2, 2, 2])).numpy()
    assert (shown[0, 0] == 0).all() and (shown[0, 1] > 0).all()


def test_maps_are_resized_between_the_centers_of_positions():
    x = paddle.to_tensor(np.arange(3, dtype="float32").reshape(1, 1, 1, 3))
    assert resize_maps(x, [1, 3]) is x
    np.testing.assert_allclose(resize_maps(x, (1, 6)).numpy().ravel(), [0, 0.25, 0.75, 1.25, 1.75, 2], atol=1e-6)


@pytest.mark.parametrize("side, length", [(1, 5), (2, 5), (3, 7), (6, 4), (3, 3)])
def test_means_of_windows_cover_all_positions(side, length):
    pool, values = upernet.MeanPooling(side), np.random.default_rng(0).normal(size=length).astype(np.float32)
    windows = pool.weigh_windows(length).numpy()
    edges = [(number * length // side, -(-(number + 1) * length // side)) for number in range(side)]
    expected = [values[first:last].mean() for first, last in edges]
    np.testing.assert_allclose(windows @ values, expected, rtol=1e-5, atol=1e-6)
    assert windows.dtype == np.float32 and windows.shape == (side, length)
    x = paddle.to_tensor(np.outer(values, np.ones(4, np.float32))[None, None])
    np.testing.assert_allclose(pool(x).numpy()[0, 0, :, 0], expected, rtol=1e-4, atol=1e-5)


def test_a_recorded_network_of_one_size_has_the_same_means():
    pool, x = upernet.MeanPooling(3), paddle.to_tensor(np.random.default_rng(0).normal(size=(1, 2, 7, 5)), "float32")
    recorded = paddle.jit.to_static(pool, input_spec=[paddle.static.InputSpec(x.shape, "float32")], full_graph=True)
    np.testing.assert_allclose(recorded(x).numpy(), nn.functional.adaptive_avg_pool2d(x, 3).numpy(), atol=1e-6)


def test_a_neck_has_four_resolutions():
    neck, maps = upernet.ViTNeck(2), [paddle.full([1, 2, 4, 6], float(level)) for level in range(4)]
    for convolution in (*neck.lateral_convs, *neck.convs):
        kernel = np.zeros(convolution.weight.shape, np.float32)
        kernel[range(2), range(2), kernel.shape[2] // 2, kernel.shape[3] // 2] = 1.0
        convolution.weight.set_value(kernel)
        convolution.bias.set_value(np.zeros(2, np.float32))
    found = neck(maps)
    assert [list(each.shape[2:]) for each in found] == [[16, 24], [8, 12], [4, 6], [2, 3]]
    for level, each in enumerate(found):
        np.testing.assert_allclose(each.numpy(), level, atol=1e-6)


def test_heads_drop_whole_channels_at_their_rates():
    head, other = upernet.UPerHead([4, 8], 6, 3, 0.3), upernet.AuxiliaryHead(4, 6, 3, 0.4)
    assert (head.dropout.p, other.dropout.p) == (0.3, 0.4)
    assert isinstance(head.dropout, nn.Dropout2D) and isinstance(other.dropout, nn.Dropout2D)
    assert head([paddle.zeros([1, 4, 8, 6]), paddle.zeros([1, 8, 4, 3])]).shape == [1, 3, 8, 6]


IMAGES = paddle.to_tensor(np.random.default_rng(4).standard_normal((2, 3, 32, 48)).astype("float32"))


def test_fcn_classifies_the_last_map_and_in_training_also_the_one_before():
    backbone = {"depths": (1, 1, 1, 1), "dims": (8, 8, 12, 16)}
    model = create_model("fcn_resnet50", num_classes=3, image_size=32, dropout=0.0, backbone_options=backbone)
    start = model.classifier[0].weight  # 64 channels to 16
    assert float(start.std()) == pytest.approx(math.sqrt(2 / (9 * 16)), rel=0.05)
    maps = model.backbone.feature_maps(IMAGES)
    assert [each.shape[2:] for each in maps[-2:]] == [[4, 6], [4, 6]]  # an eighth
    for is_training in (True, False):
        model.train() if is_training else model.eval()
        maps = model.backbone.feature_maps(IMAGES)
        outputs = model(IMAGES)
        assert isinstance(outputs, tuple) == is_training
        pairs = zip(outputs if is_training else (outputs,), (model.classifier, model.aux_classifier), maps[:-3:-1])
        for found, head, x in pairs:
            x = nn.functional.conv2d(x, head[0].weight, padding=1)
            axes = [0, 2, 3]
            mean, variance = (x.mean(axes), x.var(axes, unbiased=False)) if is_training else (
                head[1]._mean, head[1]._variance
            )  # fmt: skip
            x = (x - mean[:, None, None]) / paddle.sqrt(variance[:, None, None] + 1e-5)
            expected = paddle.einsum("nchw,kc->nkhw", nn.functional.relu(x), head[4].weight[:, :, 0, 0])
            np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-5)


def test_a_linear_segmenter_classifies_each_normalized_patch():
    backbone = {"depth": 2, "embed_dim": 12, "num_heads": 2, "patch_size": 8}
    name = "linear_dinov2_small"
    model = create_model(name, num_classes=3, image_size=32, dropout=0.0, backbone_options=backbone)
    model.eval()
    model.norm.bias.set_value(np.arange(12, dtype="float32"))
    *_, last = model.backbone.feature_maps(IMAGES)
    moved = last / math.sqrt(1 + 1e-5) + paddle.arange(12, dtype="float32").reshape([12, 1, 1])
    expected = paddle.einsum("nchw,kc->nkhw", moved, model.head.weight[:, :, 0, 0])
    found = model(IMAGES)
    assert found.shape == [2, 3, 4, 6]
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-5)
    cut = IMAGES[:, :, :27, :42]  # padded with zeros to whole patches, whose logits are not stretched over the image
    whole = nn.functional.interpolate(model(nn.functional.pad(cut, [0, 6, 0, 5])), (32, 48), mode="bilinear").numpy()
    np.testing.assert_allclose(model(cut).numpy(), whole[:, :, :27, :42], atol=1e-6)


def test_mmsegmentations_head_normalizes_each_map_before_it_is_enlarged():
    paddle.seed(2)
    head, rng = MmsegmentationsHead((4, 6), 5, 3, 0.0), np.random.default_rng(5)
    head.eval()
    maps = [rng.normal(size=shape).astype("float32") for shape in ((2, 4, 6, 4), (2, 2, 3, 6))]
    scale = 1 / math.sqrt(1 + 1e-5)  # of a batch norm without statistics
    parts = []
    for x, layer in zip(maps, head.convs):
        parts.append(np.maximum(x @ layer.conv.weight.numpy()[:, :, 0, 0].T * scale, 0).transpose(0, 3, 1, 2))
    parts[1] = resize_maps(paddle.to_tensor(parts[1]), (4, 6)).numpy()
    fused = np.einsum("nchw,kc->nkhw", np.concatenate(parts, 1), head.fusion_conv.conv.weight.numpy()[:, :, 0, 0])
    expected = np.einsum("nchw,kc->nkhw", np.maximum(fused * scale, 0), head.conv_seg.weight.numpy()[:, :, 0, 0])
    found = head(list(map(paddle.to_tensor, maps))).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    "name, theirs, other",
    [
        ("segformer_b0", "decode_head.fusion_conv.conv.weight", "segformer_mmseg_b0"),
        ("segformer_mmseg_b0", "decode_head.linear_c.0.proj.weight", "segformer_b0"),
        ("segformer_mmseg_b0", "decode_head.linear_c1.proj.weight", "segformer_b0"),
    ],
)
def test_weights_of_the_other_segformer_are_refused_with_its_name(name, theirs, other):
    sizes = {"embed_dims": (4, 4, 4, 4), "num_heads": (1, 1, 1, 1), "depths": (1, 1, 1, 1)}
    model = create_model(name, num_classes=3, channels=4, image_size=32, backbone_options=sizes)
    with pytest.raises(UserError, match=f"another network than this model's: take MODEL.NAME {other} or"):
        model.list_source_notices("", {"backbone.x": 0, theirs: 0})
    assert model.list_source_notices("", {"backbone.x": 0}) == []


def test_a_classifier_that_a_head_inherits_is_left_out_where_another_is_used():
    used, unused = ({f"decode_head.{name}.weight": 0 for name in names} for names in (["conv_seg"], ["linear_pred"]))
    rename = SegFormer.key_maps["the authors'"]
    assert rename(used) == used and rename({**used, **unused}) == unused


def test_paddlevit_s_layers_in_a_row_have_two_names():
    pattern = r"^(decoder|aux_decoder)\.(\w+)\.(\d)\."
    found = [upernet._in_sequence(re.match(pattern, name)) for name in ("decoder.x.0.", "aux_decoder.y.1.")]
    assert found == ["decode_head.x.conv.", "auxiliary_head.y.bn."]


@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize("name", ["upernet_deit_small", "upernet_vit_base"])  # without and with a norm
def test_weights_with_a_last_norm_need_a_network_with_one(name, has_norm):
    backbone = {"depth": 12, "embed_dim": 8, "num_heads": 1}
    sizes = {"channels": 8, "auxiliary_channels": 8, "image_size": 32}
    model = create_model(name, num_classes=3, backbone_options=backbone, **sizes)
    state = {"backbone.norm.weight" if has_norm else "backbone.blocks.0.norm1.weight": np.ones(8)}
    if has_norm and name == "upernet_deit_small":
        with pytest.raises(UserError, match="normalizes the last map of its ViT.*build it with has_last_norm=True"):
            model.list_source_notices("mmsegmentation", state)
    else:
        assert model.list_source_notices("mmsegmentation", state) == []
