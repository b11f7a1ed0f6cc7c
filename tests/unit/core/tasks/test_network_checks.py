"""Names of a network's attributes, and what it returns."""

import contextlib

import paddle
import pytest
from paddle import nn

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks import network_checks
from paddlevit_dist.core.tasks.model import Model, input_size
from paddlevit_dist.core.tasks.network_checks import check_network, require_output
from paddlevit_dist.images import Detector, Segmenter

# Names of layers in torchvision's, timm's and OpenMMLab's networks.
USUAL = "features classifier head heads blocks layers stem norm pool encoder decoder backbone neck fc net trunk".split()


@pytest.mark.parametrize("base", [Model, Segmenter, Detector])
def test_a_layer_is_found_by_its_name_or_refused_with_it(base):
    class Port(base):
        def __init__(self):
            nn.Layer.__init__(self)

        def forward(self, x):
            return x

    for name in USUAL:
        layer, port = nn.Linear(2, 3), Port()
        setattr(port, name, layer)
        assert getattr(port, name) is layer and dict(port.named_sublayers())[name] is layer
    for name in set(dir(base)) - set(dir(nn.Layer)):
        if not name.startswith("_"):
            with pytest.raises(UserError, match=f"^Port: .* attribute '{name}' .* rename yours, .* own_{name}$"):
                setattr(Port(), name, nn.Linear(2, 3))


def test_values_of_another_kind_are_refused_and_others_kept():
    model = type("Port", (Model,), {"forward": lambda self, x: x})()
    model.image_size, model.in_channels, model.variants, model.classifier_layers = 24, 1, 3, ["head"]
    assert input_size(model) == (24, 24) and (model.in_channels, model.variants) == (1, 3)
    for name, value in (("layer_names", ["blocks"]), ("classifier_layers", "head"), ("feature_maps", 64)):
        with pytest.raises(UserError, match=f"^Port: Model has an attribute '{name}' of another kind"):
            setattr(model, name, value)
    with pytest.raises(UserError, match="^Own: Model has an attribute 'build' of another kind, .* own_build$"):
        type("Own", (Model,), {"build": lambda self: None})


class Pair(nn.Layer):
    """Returns what it is given."""

    def forward(self, outputs):
        return outputs


@pytest.mark.parametrize(
    ("outputs", "described"),
    [
        (
            (paddle.zeros([2, 3]), paddle.zeros([2, 5])),
            r"tuple of 2 \(Tensor float32 \(2, 3\), Tensor float32 \(2, 5\)\)",
        ),
        ({"out": paddle.zeros([2, 3]), "aux": None}, r"dict of 2 \('out', 'aux'\)"),
        (paddle.zeros([2, 3], "int64"), r"Tensor int64 \(2, 3\)"),
    ],
)
def test_other_outputs_are_described_and_refused(outputs, described):
    with pytest.raises(UserError) as refused:
        require_output(Pair()(outputs), (2, 3), Pair(), "logits (images, classes)")
    assert refused.match(rf"^Pair returns {described} in training mode, expected logits \(images, classes\), a float")


def test_shapes_follow_the_input():
    maps = paddle.zeros([2, 3, 4, 5])
    assert check_network(Pair(), "maps", 3, None, None)(maps) is maps
    assert check_network(Pair(), "maps", 3, keeps_size=True)(maps.astype("bfloat16")).shape == [2, 3, 4, 5]
    with pytest.raises(UserError, match=r"expected maps, a float tensor \(2, 7, 4, 5\)"):
        check_network(Pair(), "maps", 7, keeps_size=True)(maps)


class Counting(nn.Layer):
    """Counts its calls: in a new tensor, in place, and in a parameter that is not trained."""

    def __init__(self, parameter_changes=False):
        super().__init__()
        self.register_buffer("calls", paddle.zeros([1], "int64"))
        self.register_buffer("in_place", paddle.zeros([2]))
        self.register_buffer("none", None)
        self.register_buffer("empty", paddle.zeros([0]))
        self.mean = self.create_parameter([2])
        self.mean.stop_gradient, self.parameter_changes = True, parameter_changes

    def forward(self, x):
        self.calls = self.calls + 1
        self.in_place.add_(x)
        if self.parameter_changes:
            self.mean.set_value(self.mean + 1)
        return self.in_place


def test_an_evaluation_leaves_buffers_unchanged_also_if_it_fails():
    network = Counting()
    network(paddle.ones([2]))
    before = network._buffers["calls"]
    with pytest.raises(ZeroDivisionError), network_checks.keep_buffers(network):
        assert network(paddle.ones([2])).tolist() == [2, 2] and network.calls.tolist() == [2]
        raise ZeroDivisionError
    assert (network.calls.tolist(), network.in_place.tolist()) == ([1], [1, 1])
    assert network._buffers["calls"] is before


def test_a_parameter_that_an_evaluation_changes_is_refused():
    for changes in (False, True):
        network = Counting(changes)
        network.mean.set_value(paddle.to_tensor([float("nan"), 1.0]))
        expected = pytest.raises(UserError, match="^Counting changes its parameter mean in evaluation mode")
        with expected if changes else contextlib.nullcontext(), network_checks.require_unchanged(network):
            network(paddle.ones([2]))


def test_layers_of_users_are_told_from_ours_and_paddles():
    assert network_checks.has_own_layers(nn.Sequential(nn.Linear(1, 1), Counting()))
    assert not network_checks.has_own_layers(nn.Sequential(nn.Linear(1, 1), nn.BatchNorm2D(1)))
