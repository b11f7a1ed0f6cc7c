"""The network: sizes, parameters, and weights with a wrapper's prefix."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError, create_model
from paddlevit_dist.volumes.unet3d import InstanceNorm3D, UNet3D


def counted_by_hand(width: int, depth: int, blocks: int, classes: int) -> int:
    """Convolutions without bias, normalizations with scale, shift and two statistics, a head with bias."""

    def convolution(a, b, kernel):
        return a * b * kernel**3 + 4 * b

    widths = [width * 2**level for level in range(depth + 1)]
    levels = [*widths, *widths[:-1]]
    total = convolution(1, width, 3) + sum(blocks * 2 * convolution(w, w, 3) for w in levels)
    total += sum(convolution(a, b, 2) + convolution(b, a, 1) for a, b in zip(widths, widths[1:]))
    return total + width * classes + classes


@pytest.mark.parametrize("width, depth, blocks", [(4, 1, 1), (8, 3, 1), (4, 2, 2)])
def test_width_depth_and_blocks_are_what_they_say(width, depth, blocks):
    model = create_model("unet3d", num_classes=5, width=width, depth=depth, blocks=blocks)
    assert sum(int(np.prod(p.shape)) for p in model.parameters()) == counted_by_hand(width, depth, blocks, 5)


@pytest.mark.parametrize("shape", [(8, 8, 8), (9, 12, 15), (1, 5, 2)])
def test_maps_have_the_size_of_the_volume(shape):
    model = create_model("unet3d", num_classes=3, width=4, depth=2)
    model.eval()
    assert model(paddle.randn([2, 1, *shape])).shape == [2, 3, *shape]
    assert model.forward_features(paddle.randn([2, 1, *shape])).shape == [2, 4, *shape]


def correlate(x, weight, stride=(1, 1, 1)):
    """Convolution as networks have it, of (inputs, depth, height, width), padded with zeros; float64."""
    sides = weight.shape[2:]
    padded = np.pad(x, [(0, 0), *(((side - 1) // 2,) * 2 for side in sides)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, sides, axis=(1, 2, 3))
    return np.einsum("idhwabc,oiabc->odhw", windows[:, :: stride[0], :: stride[1], :: stride[2]], weight)


class PlainUNet:
    """A residual U-Net in NumPy, float64: two levels below the first, two blocks each, and a head for the second.

    Args:
        values: the parameters by the names of ``UNet3D``.
        slope: of the activation below 0.
    """

    strides = [(1, 2, 2), (2, 1, 2)]

    def __init__(self, values: dict[str, np.ndarray], slope: float) -> None:
        self.values, self.slope = values, slope

    def normalize(self, x, name):
        scale, shift = self.values.get(f"{name}.scale", self.values.get(f"{name}.weight")), self.values[f"{name}.bias"]
        if f"{name}._mean" in self.values:
            mean, variance = self.values[f"{name}._mean"], self.values[f"{name}._variance"]
        else:
            mean, variance = x.mean(axis=(1, 2, 3)), x.var(axis=(1, 2, 3))
        mean, factor, shift = (v.reshape(-1, 1, 1, 1) for v in (mean, scale / np.sqrt(variance + 1e-5), shift))
        return (x - mean) * factor + shift

    def activate(self, x):
        return np.where(x > 0, x, self.slope * x)

    def change(self, x, name, stride=(1, 1, 1)):
        return self.normalize(correlate(x, self.values[f"{name}.conv.weight"], stride), f"{name}.norm")

    def run_blocks(self, x, name):
        for block in (f"{name}.blocks.0", f"{name}.blocks.1"):
            inner = correlate(x, self.values[f"{block}.conv1.weight"])
            inner = correlate(
                self.activate(self.normalize(inner, f"{block}.norm1")), self.values[f"{block}.conv2.weight"]
            )
            x = self.activate(x + self.normalize(inner, f"{block}.norm2"))
        return x

    def head(self, x, name):
        weight, bias = self.values[f"{name}.weight"][..., 0, 0, 0], self.values[f"{name}.bias"]
        return np.einsum("oi,idhw->odhw", weight, x) + bias.reshape(-1, 1, 1, 1)

    def __call__(self, volume):
        """The maps of both heads, of a volume whose sides the strides divide."""
        skips = [self.run_blocks(self.activate(self.change(volume, "stem")), "encoder.0")]
        for level, stride in enumerate(self.strides):
            x = self.activate(self.change(skips[-1], f"down.{level}", stride))
            skips.append(self.run_blocks(x, f"encoder.{level + 1}"))
        x, maps = skips.pop(), {}
        for level in (1, 0):
            x = self.change(x, f"up.{level}")
            for axis, times in enumerate(self.strides[level], 1):
                x = x.repeat(times, axis)
            x = self.run_blocks(self.activate(x + skips[level]), f"decoder.{level}")
            maps[level] = self.head(x, f"side_heads.{level - 1}" if level else "head")
        return maps[0], maps[1]


@pytest.mark.parametrize(("norm", "slope"), [("batch", 0.0), ("instance", 0.01)])
def test_maps_are_those_of_numpys_residual_u_net(norm, slope):
    """Of a size that needs padding."""
    kernels, activation = [(1, 3, 3), (3, 1, 3), (3, 3, 3)], "leaky_relu" if slope else "relu"
    model = UNet3D(
        3, in_channels=2, width=2, depth=2, blocks=2, norm=norm, activation=activation,
        supervised=1, kernels=kernels, strides=PlainUNet.strides, max_width=3,
    )  # fmt: skip
    generator, values = np.random.default_rng(0), {}
    for name, tensor in model.state_dict().items():
        drawn = (
            generator.uniform(0.5, 1.5, tensor.shape) if "_variance" in name else generator.normal(0, 0.5, tensor.shape)
        )
        values[name] = drawn.astype(np.float32)
    model.set_state_dict(values)
    volume = generator.normal(size=(2, 3, 5, 7))
    maps, coarse = PlainUNet(values, slope)(np.pad(volume, ((0, 0), (0, 1), (0, 1), (0, 1))))
    expected = [maps[:, :3, :5, :7], coarse[:, :3, :3, :4]]

    tensor = paddle.to_tensor(volume[None].astype(np.float32))
    model.eval()
    np.testing.assert_allclose(model(tensor)[0].numpy(), expected[0], rtol=1e-4, atol=2e-4)
    if norm == "instance":  # whose statistics are the volume's own in training, too
        model.train()
        for maps, of_level in zip(model(tensor), expected, strict=True):
            np.testing.assert_allclose(maps[0].numpy(), of_level, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("size", [(3, 4, 5), (13, 14, 15)])  # the larger one is summed in float64
def test_instances_are_normalized_with_the_layers_numbers(size):
    layer, x = InstanceNorm3D(2, epsilon=0.5), np.random.default_rng(0).normal(3, 2, (2, 2, *size)).astype(np.float32)
    layer.scale.set_value(np.array([2.0, -0.5], np.float32))
    layer.bias.set_value(np.array([1.0, 7.0], np.float32))
    mean, variance = (each(x, axis=(2, 3, 4), keepdims=True) for each in (np.mean, np.var))
    scale, bias = np.reshape([2.0, -0.5], (1, 2, 1, 1, 1)), np.reshape([1.0, 7.0], (1, 2, 1, 1, 1))
    found = layer(paddle.to_tensor(x)).numpy()
    np.testing.assert_allclose(found, (x - mean) / np.sqrt(variance + 0.5) * scale + bias, rtol=1e-4, atol=1e-5)
    assert found.dtype == np.float32


def test_every_parameter_takes_part():
    paddle.seed(0)
    model = create_model("unet3d", num_classes=2, width=4, depth=2, blocks=2)
    (model(paddle.randn([2, 1, 8, 8, 8])) * paddle.randn([2, 2, 8, 8, 8])).sum().backward()
    for name, parameter in model.named_parameters():
        if not parameter.stop_gradient:
            assert np.abs(parameter.grad.numpy()).max() > 0, name


def test_the_head_can_be_replaced_or_left_out():
    model = create_model("unet3d", num_classes=2, width=4, depth=1, norm="instance")
    model.reset_classifier(6)
    assert model(paddle.randn([1, 1, 4, 4, 4])).shape == [1, 6, 4, 4, 4]
    model.reset_classifier(0)
    assert model(paddle.randn([1, 1, 4, 4, 4])).shape == [1, 4, 4, 4, 4]


def test_a_norm_that_is_not_known_is_told():
    with pytest.raises(UserError, match="unknown norm 'layer'; expected one of batch, instance"):
        create_model("unet3d", norm="layer")


def test_flat_kernels_and_strides_treat_each_slice_alone():
    """A volume's maps are those of its slices, one at a time, and the third axis is never halved."""
    paddle.seed(0)
    options = {"width": 2, "depth": 2, "supervised": 1, "kernels": [(1, 3, 3)] * 3, "strides": [(1, 2, 2)] * 2}
    model = create_model("unet3d", num_classes=3, **options)
    volume = paddle.randn([1, 1, 3, 6, 9])
    assert [maps.shape for maps in model(volume)] == [[1, 3, 3, 6, 9], [1, 3, 3, 3, 5]]
    model.eval()
    slices = [model(volume[:, :, place : place + 1]) for place in range(3)]
    np.testing.assert_allclose(model(volume).numpy(), paddle.concat(slices, axis=2).numpy(), rtol=1e-5, atol=1e-6)


def test_levels_have_their_kernels_strides_and_at_most_the_largest_width():
    kernels, strides = [(1, 3, 3), (3, 3, 3), (3, 1, 3)], [(1, 4, 2), (2, 2, 1)]
    options = {"width": 4, "depth": 2, "kernels": kernels, "strides": strides, "max_width": 6}
    model = create_model("unet3d", num_classes=1, **options)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert shapes["stem.conv.weight"] == (4, 1, 1, 3, 3) and shapes["down.0.conv.weight"] == (6, 4, 1, 4, 2)
    for level, (width, kernel) in enumerate(zip((4, 6, 6), kernels)):
        assert shapes[f"encoder.{level}.blocks.0.conv1.weight"] == (width, width, *kernel)
    assert shapes["decoder.1.blocks.0.conv2.weight"] == (6, 6, 3, 3, 3) and model.steps[1:] == [(1, 4, 2), (2, 8, 2)]
    assert model(paddle.randn([1, 1, 5, 7, 3])).shape == [1, 1, 5, 7, 3]
    with pytest.raises(UserError, match="3 strides for depth 2, expected 2"):
        create_model("unet3d", depth=2, strides=[(2, 2, 2)] * 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width 0, depth 2 and blocks 1 must be at least 1"),
        ({"depth": 0}, "width 2, depth 0 and blocks 1 must be at least 1"),
        ({"blocks": 0}, "width 2, depth 2 and blocks 0 must be at least 1"),
        ({"supervised": 2}, "supervised is 2, expected 0 to 1, one less than depth"),
        ({"supervised": -1}, "supervised is -1, expected 0 to 1, one less than depth"),
        ({"strides": ["1x2x2", "2x2x2"]}, "strides has 1x2x2, expected three whole numbers, such as"),
        ({"kernels": [(3, 3, 3), (3, 3, 3), (3, 3)]}, r"kernels has \(3, 3\), expected three whole numbers"),
        ({"norm": "layer"}, "unknown norm 'layer'; expected one of batch"),
        ({"activation": "tanh"}, "unknown activation 'tanh'; expected one of relu"),
    ],
)
def test_sizes_that_make_no_network_are_refused(options, message):
    with pytest.raises(UserError, match=f"unet3d: {message}"):
        UNet3D(2, **{"width": 2, "depth": 2, "blocks": 1, **options})
    assert UNet3D(2, width=1, depth=1, blocks=1, supervised=0).depth == 1
