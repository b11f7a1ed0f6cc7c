"""MinkowskiEngine and PointGroup networks: values and gradients of the original implementations, in float64."""

import numpy as np
import paddle
import pytest
from support.networks import golden

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.points.instances.pointgroup import PointGroup
from paddlevit_dist.points.sparse import Plan, SparseTensor, build_plan

OURS = {"MinkUNet14A": "minkunet14a", "MinkUNet34C": "minkunet34c", "FourLayers": "minkunet_tutorial"}
BY_NIGHT = "MinkUNet34C"
STORED = 3e-7  # the fixtures' arrays are float32: relative to their largest value
EXACT = 1e-9  # scalars are float64


@pytest.fixture(autouse=True)
def float64():
    paddle.set_default_dtype("float64")
    yield
    paddle.set_default_dtype("float32")


def fixture(name):
    return golden.description(name), golden.arrays(name)


def golden_state(seed, shapes):
    return {key: value.astype("float64") for key, value in golden.weights(seed, shapes).items()}


def calibrated(state, keys, values):
    """The state with other running statistics, which the fixture stores one after the other."""
    ends = np.cumsum([state[key].size for key in keys])
    parts = np.split(values.astype("float64"), ends[:-1])
    return {**state, **dict(zip(keys, parts))}


def voxels(model, arrays, prefix=""):
    plan = Plan.of_batch(build_plan(arrays[f"{prefix}coords"], model.plan_spec()))
    return SparseTensor(paddle.to_tensor(arrays[f"{prefix}features"].astype("float64")), plan=plan)


def assert_close(ours, stored):
    assert np.abs(ours - stored).max() <= STORED * max(1.0, float(np.abs(stored).max()))


def trainable(model):
    return sum(int(parameter.size) for parameter in model.parameters() if not parameter.stop_gradient)


def of_our_name(name):
    return name.replace("running_mean", "_mean").replace("running_var", "_variance")


@pytest.mark.parametrize("network", [name for name in golden.description("minkunet")["models"] if name != BY_NIGHT])
def test_golden_minkunet(network):
    require_golden_minkunet(network)


def require_golden_minkunet(network):
    description, arrays = fixture("minkunet")
    about = description["models"][network]
    state = golden_state(description["seed"], about["state"])
    first, *_, last = about["state"].values()  # (kernel, in, out), and the bias of the classes
    model = create_model(OURS[network], num_classes=last[-1], in_channels=first[1])
    assert trainable(model) == about["parameters"]
    for mode, weights in (
        ("eval", state),
        ("eval_calibrated", calibrated(state, about["running_stats_keys"], arrays[f"{network}/running_stats"])),
    ):
        load_weights(model, weights, strict=True)
        model.eval()
        if f"{network}/{mode}/output" in arrays:
            with paddle.no_grad():
                assert_close(model(voxels(model, arrays)).numpy(), arrays[f"{network}/{mode}/output"])

    load_weights(model, state, strict=True)
    model.train()
    output = model(voxels(model, arrays))
    loss = (output**2).mean()
    loss.backward()
    assert_close(output.numpy(), arrays[f"{network}/train/output"])
    assert abs(loss.item() / float(arrays[f"{network}/train/loss"]) - 1) < EXACT
    parameters = dict(model.named_parameters())
    for entry in about["gradients"]:
        kind, _, name = entry.rpartition(":")
        gradient = parameters[name].grad.numpy()
        if kind == "sum":
            assert_close(gradient.sum(axis=1), arrays[f"{network}/train/grad_sum:{name}"])
        else:
            assert_close(gradient, arrays[f"{network}/train/grad:{name}"])


@pytest.mark.parametrize("case", golden.description("pointgroup_unet")["cases"])
def test_golden_pointgroup_backbone(case):
    description, arrays = fixture("pointgroup_unet")
    state = golden_state(description["seed"], description["state"])
    *_, in_channels, width = description["state"]["input_conv.0.weight"]
    (num_classes,) = description["state"]["linear.bias"]
    model = PointGroup(num_classes=num_classes, in_channels=in_channels, width=width)
    assert trainable(model) == description["parameters"]["all"]
    score_branch = sum(trainable(part) for name, part in model.named_children() if name.startswith("score_"))
    assert trainable(model) - score_branch == description["parameters"]["without_score_branch"]
    stored = set(arrays)
    for mode, weights in (
        ("eval", state),
        ("eval_calibrated", calibrated(state, description["running_stats_keys"], arrays["cube/running_stats"])),
    ):
        load_weights(model, weights, strict=True)
        model.eval()
        if f"{case}/{mode}/semantic_scores" in stored:
            with paddle.no_grad():
                outputs = model.predict_points(voxels(model, arrays, f"{case}/"))
            for ours, name in zip(outputs, ("output_features", "semantic_scores", "pt_offsets")):
                assert_close(ours.numpy(), arrays[f"{case}/{mode}/{name}"])

    load_weights(model, state, strict=True)
    model.train()
    _, scores, offsets = model.predict_points(voxels(model, arrays, f"{case}/"))
    loss = (scores**2).mean() + (offsets**2).mean()
    loss.backward()
    assert_close(scores.numpy(), arrays[f"{case}/train/semantic_scores"])
    assert_close(offsets.numpy(), arrays[f"{case}/train/pt_offsets"])
    assert abs(loss.item() / float(arrays[f"{case}/train/loss"]) - 1) < EXACT
    parameters, buffers = dict(model.named_parameters()), model.state_dict()
    for name in description["gradients"]:
        gradient = parameters[name].grad.numpy()
        expected = arrays[f"{case}/train/grad:{name}"]
        # Linear weights are (in, out) here and (out, in) there; convolutions have five axes.
        assert_close(gradient.T if gradient.ndim == 2 else gradient, expected)
    for key in stored:
        if key.startswith(f"{case}/train/buffer:"):
            assert_close(buffers[of_our_name(key.partition(":")[2])].numpy(), arrays[key])


def test_golden_pointgroup_backbone_in_float32():
    paddle.set_default_dtype("float32")
    description, arrays = fixture("pointgroup_unet")
    state = golden_state(description["seed"], description["state"])
    model = PointGroup()
    load_weights(model, {key: value.astype("float32") for key, value in state.items()}, strict=True)
    plan = Plan.of_batch(build_plan(arrays["wide/coords"], model.plan_spec()))
    _, scores, offsets = model.predict_points(SparseTensor(arrays["wide/features"], plan=plan))
    ((scores**2).mean() + (offsets**2).mean()).backward()
    errors = description["checks"]["wide/train"]["largest_float32_error_of_reference"]
    assert np.abs(scores.numpy() - arrays["wide/train/semantic_scores"]).max() < 5 * errors["semantic_scores"]
    assert np.abs(offsets.numpy() - arrays["wide/train/pt_offsets"]).max() < 5 * errors["pt_offsets"]
    name = "unet.conv.2.weight"
    gradient = dict(model.named_parameters())[name].grad.numpy()
    assert np.abs(gradient - arrays[f"wide/train/grad:{name}"]).max() < 5 * errors[f"grad:{name}"]
