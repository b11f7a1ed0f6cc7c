"""Point Transformer V3, Sonata and Utonia, reproduced: every stage, losses, gradients and statistics."""

import math

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from support.networks import golden, serialized

from paddlevit_dist.core.losses import lovasz_softmax
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.points.ptv3.network import PointTransformer, split_rates
from paddlevit_dist.points.ptv3.weights import from_pointcept, to_pointcept

ABOUT, GOLDEN = serialized.ABOUT, golden.arrays("ptv3")
NETWORKS = ABOUT["networks"]
TRAINED = [name for name, entry in NETWORKS.items() if "train" in entry]


@pytest.fixture(params=["float64", "float32"])
def precision(request):
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(request.param)
    yield request.param
    paddle.set_default_dtype(before)


def rows_of_stage(entry, name, plan, stage):
    """The rows of a stage in the file's order, and their cells."""
    strides, turns = entry["config"]["stride"], serialized.list_turns(entry)
    level = int(stage[3:]) if stage[:3] in ("enc", "dec") else 0
    step = math.prod(strides[:level])
    cells = plan.coordinates(step).astype(np.int64) // [1, step, step, step]
    if not level or not entry["family"].startswith("ptv3"):
        return np.arange(len(cells)), cells
    order, finest = entry["config"]["order"][turns[level - 1][0]], serialized.voxels(name, entry["sizes"])
    halvings = round(math.log2(step))
    return serialized.sort_rows(cells, finest, order, halvings, entry["family"].endswith("1.5.1")), cells


@pytest.mark.parametrize("name", NETWORKS)
def test_golden_stages_and_logits(name, precision):
    entry = NETWORKS[name]
    if precision == "float64" and entry["parameters"]["all"] > 10_000_000:
        pytest.skip("a network of published size takes 20 seconds in float64")
    model = serialized.build(name)
    model.eval()
    x, positions = serialized.inputs(name, entry["sizes"], entry["config"]["in_channels"])
    has_token = entry["config"].get("mask_token") and not entry["config"].get("enc_mode")
    hidden = serialized.draw("mask", name).random(len(positions)) < 0.4
    with paddle.no_grad():
        found = model.forward_levels(x, positions, paddle.to_tensor(hidden) if has_token else None)
        found["logits"] = model.seg_head(found["features"])
    for stage, about in entry["stages"].items():
        if stage == "train_logits":
            continue
        rows, cells = rows_of_stage(entry, name, x.plan, stage)
        values = found[stage].numpy()[rows]
        within = 1e-8 if precision == "float64" else 10 * about["float32_error"]
        assert list(values.shape) == about["shape"]
        np.testing.assert_allclose([values.mean(), values.std()], [about["mean"], about["std"]], rtol=0, atol=within)
        for key, part in ((f"{stage}_samples", serialized.samples), (stage, lambda each, _: each)):
            if f"{name}/{key}" in GOLDEN:
                expected = GOLDEN[f"{name}/{key}"]
                np.testing.assert_allclose(part(values, len(expected)), expected, rtol=0, atol=within)
        if f"{name}/{stage}_grid_coord" in GOLDEN:
            assert np.array_equal(cells[rows][:, 1:], GOLDEN[f"{name}/{stage}_grid_coord"])


def losses(logits, labels):
    there = paddle.nonzero(labels >= 0).flatten()
    entropy = F.cross_entropy(paddle.gather(logits, there), paddle.gather(labels, there))
    total, present = lovasz_softmax(logits, labels, -1)
    return entropy, total / present


def read(model):
    """The state under Pointcept's names."""
    return to_pointcept({key: value.numpy() for key, value in model.state_dict().items()})[0]


@pytest.mark.parametrize("name", TRAINED)
def test_golden_training(name, precision):
    entry, about = NETWORKS[name], NETWORKS[name]["train"]
    model = serialized.build(name)
    before = read(model)
    x, positions = serialized.inputs(name, entry["sizes"], entry["config"]["in_channels"])
    logits = model.seg_head(model.forward_levels(x, positions)["features"])
    labels = serialized.draw("label", name).integers(-1, entry["num_classes"], len(positions))
    entropy, lovasz = losses(logits, paddle.to_tensor(labels))
    (entropy + lovasz).backward()
    exact = precision == "float64"
    expected = GOLDEN[f"{name}/train_logits_samples"]
    within = 1e-8 if exact else 10 * entry["stages"]["train_logits"]["float32_error"]
    np.testing.assert_allclose(serialized.samples(logits.numpy(), len(expected)), expected, rtol=0, atol=within)
    assert float(entropy) == pytest.approx(about["loss"]["cross_entropy"], abs=1e-8 if exact else 1e-5)
    assert float(lovasz) == pytest.approx(about["loss"]["lovasz"], abs=1e-8 if exact else 1e-5)
    gradients = {key: parameter.grad for key, parameter in model.named_parameters() if parameter.grad is not None}
    own, _ = to_pointcept({key: value.numpy() for key, value in gradients.items()})
    assert not own.keys() & {*about["without_gradient"]}
    within = 1e-8 if exact else max(10 * about["float32_relative_error_of_norms"], 2e-5)
    for key, norm in about["gradient_norms"].items():
        if key in about["gradient_is_zero"]:
            assert np.linalg.norm(own[key]) < 1e-5
        else:
            assert np.linalg.norm(own[key]) == pytest.approx(norm, rel=within), key
    for key in about["gradient_samples"]:
        expected = GOLDEN[f"{name}/gradient_samples/{key}"]
        value = own[key].T if own[key].ndim == 2 else own[key]
        scale = abs(expected).max()
        np.testing.assert_allclose(serialized.samples(value, len(expected)) / scale, expected / scale, atol=5 * within)
    if about["updated_statistics_keys"]:
        old, new = (
            np.concatenate([state[key] for key in about["updated_statistics_keys"]]) for state in (before, read(model))
        )
        # Paddle has the momentum of 0.99 in float32, in which 1 - 0.99 is not 0.01.
        step = (GOLDEN[f"{name}/updated_statistics"] - old) * (float(1 - np.float32(0.99)) / 0.01)
        within = 1e-8 if exact else 10 * about["float32_error_of_statistics"]
        np.testing.assert_allclose(new - old, step, rtol=0, atol=within)


PUBLISHED = {"ptv3_base": "ptv3", "sonata_base": "sonata", "concerto_large": "concerto_large", "utonia_base": "utonia"}


@pytest.mark.parametrize("name", ABOUT["published"])
def test_golden_names_of_published_networks(name):
    about = ABOUT["published"][name]
    with paddle.LazyGuard():
        model = PointTransformer(0, **serialized.options(about))
    shapes = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    if name in PUBLISHED:
        with paddle.LazyGuard():
            variant = create_model(PUBLISHED[name], 0, mask_token=about["config"].get("mask_token", False))
        assert {key: tuple(value.shape) for key, value in variant.state_dict().items()} == shapes
    trained = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
    assert sum(math.prod(parameter.shape) for parameter in trained) == about["parameters"]
    theirs = {key: np.broadcast_to(np.float32(0), shape) for key, shape in about["state_of_first_blocks"].items()}
    linear = {id(layer.weight) for layer in model.sublayers() if isinstance(layer, paddle.nn.Linear)}
    matrices = {key for key, value in model.state_dict().items() if id(value) in linear}
    ours = {key: value.shape[::-1] if key in matrices else value.shape for key, value in from_pointcept(theirs).items()}
    assert {key: shapes.get(key) for key in ours} == ours
    # PyTorch's batch norms also count batches.
    norms = sum(key.endswith("_mean") for key in shapes)
    assert len(shapes) + norms == about["entries"]


def test_golden_rates_of_drop_path():
    about = ABOUT["drop_path"]
    for part in ("enc", "dec"):
        stages = split_rates(about["rate"], about[f"{part}_depths"])
        stages = [stage[::-1] for stage in stages] if part == "dec" else stages
        rates = {f"{part}.{part}{s}.block{b}": rate for s, stage in enumerate(stages) for b, rate in enumerate(stage)}
        expected = {key: rate for key, rate in about["rates"].items() if key.startswith(part)}
        assert rates == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("case", [case for case, about in ABOUT["lovasz"].items() if isinstance(about, dict)])
def test_golden_lovasz_loss(case):
    about = ABOUT["lovasz"][case]
    logits = serialized.draw("lovasz", case).standard_normal((about["n"], about["classes"])) * 2
    labels = GOLDEN[f"lovasz/{case}/label"].astype(np.int64)
    assert [label for label in np.unique(labels).tolist() if label >= 0] == about["present"]
    tensor = paddle.to_tensor(logits, stop_gradient=False)
    total, present = lovasz_softmax(tensor, paddle.to_tensor(labels), -1)
    (total / present).backward()
    assert float(total / present) == pytest.approx(about["loss"], abs=1e-8)
    np.testing.assert_allclose(tensor.grad.numpy(), GOLDEN[f"lovasz/{case}/gradient"], rtol=0, atol=1e-8)
    assert np.linalg.norm(tensor.grad.numpy()) == pytest.approx(about["gradient_norm"], rel=1e-8)
