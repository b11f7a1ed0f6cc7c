"""The registered networks on voxels: sizes, options, plans, and what cannot be built."""

import math

import numpy as np
import paddle
import pytest
from paddle import nn
from support.networks import sparse_reference as reference
from support.networks.narrow_minkunets import WIDTHS
from support.networks.varied import vary

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.foreign_names import to_torch_names
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.points.sparse import BatchNorm, Convolution, NestedBatchNorm, Plan, SparseTensor, build_plan
from paddlevit_dist.points.sparse.minkunet import ResidualBlock

# Numbers that are trained with 4 channels and 13 classes: of a normalized convolution K C_in C_out + 2 C_out.
TRAINED = {
    "minkunet14a": 8_027_821,
    "minkunet14b": 8_964_685,
    "minkunet14c": 11_923_021,
    "minkunet18a": 15_496_493,
    "minkunet18b": 17_207_757,
    "minkunet18c": 22_378_445,
    "minkunet34a": 36_610_957,
    "minkunet34b": 36_230_253,
    "minkunet34c": 37_859_373,
}


def trainable(model):
    return sum(math.prod(parameter.shape) for parameter in model.parameters() if not parameter.stop_gradient)


@pytest.mark.parametrize("name", TRAINED)
def test_parameter_counts_are_exact(name):
    with paddle.LazyGuard():  # shapes alone
        model = create_model(name, num_classes=13, in_channels=4)
    assert trainable(model) == TRAINED[name]


def test_every_minkunet_is_counted():
    assert {name for name in REGISTRY.models if name.startswith("minkunet")} == {*TRAINED, "minkunet_tutorial"}


NARROW = {"minkunet14a": {"widths": WIDTHS, "first_channels": 8}, "minkunet_tutorial": {}}


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("dimension", [2, 3])
def test_a_plan_made_of_the_spec_has_all_that_the_network_needs(name, dimension):
    model = create_model(name, num_classes=5, in_channels=2, dimension=dimension, **NARROW[name])
    coordinates = reference.scene(np.random.default_rng(0), 300, dimension, reach=20)
    features = paddle.randn([len(coordinates), 2])
    model.eval()
    packed = Plan.of_batch(build_plan(coordinates, model.plan_spec(), num_scenes=2))
    with_plan = model(SparseTensor(features, plan=packed))
    assert tuple(with_plan.shape) == (len(coordinates), 5)
    np.testing.assert_array_equal(with_plan.numpy(), model(SparseTensor(features, coordinates)).numpy(), strict=True)


def test_asking_for_the_spec_leaves_the_network_as_it_was():
    model = create_model("minkunet_tutorial", num_classes=5)
    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    model.bn2.eval()
    model.plan_spec()
    assert model.training and model.bn1.bn.training and not model.bn2.bn.training
    assert all(np.array_equal(value.numpy(), before[name]) for name, value in model.state_dict().items())
    double = create_model("minkunet_tutorial", num_classes=5).to(dtype="float64")
    assert double.plan_spec() == model.plan_spec()


@pytest.mark.parametrize("name", NARROW)
def test_the_classifier_can_be_replaced_or_left_away(name):
    model = create_model(name, num_classes=0, **NARROW[name])
    x = SparseTensor(paddle.randn([1, 3]), np.zeros((1, 4), np.int32))
    model.eval()
    assert tuple(model(x).shape) == tuple(model.forward_features(x).features.shape)
    model.reset_classifier(7)
    assert tuple(model(x).shape) == (1, 7)


def test_the_classifier_of_scenes_can_be_replaced_or_left_away():
    model = create_model("mink_classifier14", num_classes=0, widths=WIDTHS[:4], first_channels=8)
    model.eval()
    x = SparseTensor(paddle.randn([3, 3]), np.array([[0, 1, 2, 3], [1, 0, 0, 0], [1, 5, 5, 5]], np.int32))
    np.testing.assert_array_equal(model(x).numpy(), model.forward_features(x).numpy())
    model.reset_classifier(7)
    assert model(x).shape == [2, 7] and model.num_classes == 7
    model.reset_classifier(0)
    assert model(x).shape == [2, model.num_features]


@pytest.mark.parametrize("outputs", [3, 4])
def test_a_block_adds_its_input_and_begins_and_ends_with_what_is_above_0(outputs):
    block = vary(ResidualBlock(3, outputs, dimension=3))
    coordinates = reference.scene(np.random.default_rng(0), 300, 3, reach=5)
    x = SparseTensor(paddle.randn([len(coordinates), 3]), coordinates)
    inner = block.norm1(block.conv1(x))
    outer = block.norm2(block.conv2(SparseTensor(paddle.clip(inner.features, min=0), coordinates))).features.numpy()
    shortcut = (x if outputs == 3 else block.downsample(x)).features.numpy()
    found = block(x).features.numpy()
    np.testing.assert_allclose(found, np.maximum(outer + shortcut, 0), rtol=1e-4, atol=1e-4)
    assert (inner.features.numpy() < 0).any() and (found == 0).any() and (abs(outer) > 0.1).any()


def test_a_batch_without_voxels_trains():
    model = create_model("minkunet_tutorial", num_classes=5)
    x = SparseTensor(paddle.zeros([0, 3]), np.zeros((0, 4), np.int32), num_scenes=1)
    logits = model(x)
    assert tuple(logits.shape) == (0, 5)
    logits.backward(paddle.zeros([0, 5]))
    assert all(not parameter.grad.numpy().any() for parameter in model.parameters() if not parameter.stop_gradient)


def test_options_that_do_not_exist_are_told():
    with pytest.raises(UserError, match="has no image size"):
        create_model("minkunet14a", image_size=224)
    with pytest.raises(UserError, match="no option 'in_chanels': did you mean 'in_channels'"):
        create_model("minkunet14a", in_chanels=4)


class Small(nn.Layer):
    def __init__(self, norm):
        super().__init__()
        self.conv, self.bn = Convolution(2, 3), norm(3)

    def forward(self, x):
        return self.bn(self.conv(x))


def trained_state(norm):
    layer = Small(norm)
    generator = np.random.default_rng(0)
    return {
        name: generator.uniform(0.5, 2.0, value.shape).astype("float32") for name, value in layer.state_dict().items()
    }


@pytest.mark.parametrize("of_file", [BatchNorm, NestedBatchNorm])
@pytest.mark.parametrize("of_model", [BatchNorm, NestedBatchNorm])
@pytest.mark.parametrize("in_torch_names", [False, True])
def test_batch_norms_load_whether_their_names_are_nested_or_not(of_file, of_model, in_torch_names):
    state = trained_state(of_file)
    given = to_torch_names(state) if in_torch_names else state
    layer = Small(of_model)
    report = load_weights(layer, given)
    assert not report.missing and not report.unexpected
    plain = {name.replace("bn.bn.", "bn."): value for name, value in state.items()}
    for name, value in layer.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), plain[name.replace("bn.bn.", "bn.")], strict=True)


def test_weights_of_a_batch_norm_without_its_statistics_are_refused():
    state = trained_state(BatchNorm)
    del state["bn._variance"]
    layer = Small(BatchNorm)
    before = {name: value.numpy().copy() for name, value in layer.state_dict().items()}
    with pytest.raises(UserError, match=r"batch norms without their running statistics bn\._variance .*running_var"):
        load_weights(layer, state)
    assert all(np.array_equal(value.numpy(), before[name]) for name, value in layer.state_dict().items())
    only = {"conv.kernel": state["conv.kernel"]}
    assert load_weights(layer, only, minimum_loaded=0).missing  # a new batch norm begins with its own
