"""Serialized networks: plans, scenes of any size, what a GPU runs, and options that do not fit."""

import re

import numpy as np
import paddle
import pytest
from paddle.nn.functional import flash_attention

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.points.ptv3 import attention
from paddlevit_dist.points.ptv3.attention import PatchAttention
from paddlevit_dist.points.sparse import Plan, SparseTensor, build_plan

NARROW = {"strides": (2, 3), "encoder_depths": (2, 1, 1), "encoder_channels": (6, 12, 12), "encoder_heads": (1, 2, 2)}
NARROW |= {"decoder_depths": (1, 2), "decoder_channels": (6, 12), "decoder_heads": (1, 1), "patch_size": 8}
FAMILIES = {
    "ptv3": {"strides": (2, 4), "enable_rpe": True},
    "sonata_decoder": {},
    "utonia": {"decoder_depths": (), "decoder_channels": (), "decoder_heads": ()},
}


def build(name, **options):
    paddle.seed(0)
    model = create_model(name, num_classes=5, in_channels=4, **{**NARROW, **FAMILIES[name], **options})
    model.eval()
    return model


def scene(number, size, seed=0, lowest=0):
    """Voxels of a scene on a surface, from ``lowest`` on."""
    random = np.random.default_rng(seed)
    cells = np.unique(random.integers(0, 12, (max(size, 1) * 3, 3)) * [1, 1, 0], axis=0)[:size] + lowest
    return np.column_stack([np.full(len(cells), number), cells]).astype(np.int32)


def features(coordinates, seed=0):
    return np.random.default_rng(seed).standard_normal((len(coordinates), 4)).astype(np.float32)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_plan_of_the_loader_gives_what_coordinates_give(name):
    model = build(name)
    coordinates = np.concatenate([scene(0, 50), scene(2, 9, seed=1), scene(3, 1)])
    coordinates[:, 1:] -= [np.min(coordinates[coordinates[:, 0] == each, 1:], axis=0) for each in coordinates[:, 0]]
    x = features(coordinates)
    direct = model(SparseTensor(x, coordinates, num_scenes=5)).numpy()
    moved = coordinates + np.array([0, -7, 100, 3]) * (1 + coordinates[:, :1])  # by scene
    batch = build_plan(moved, model.plan_spec(), num_scenes=5)
    np.testing.assert_array_equal(model(SparseTensor(x, plan=Plan.of_batch(batch))).numpy(), direct, strict=True)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_scene_has_the_same_logits_alone_and_with_others(name):
    model = build(name)
    parts = [scene(number, size, seed=number) for number, size in enumerate((40, 1, 2, 6))]
    whole = model(SparseTensor(features(np.concatenate(parts)), np.concatenate(parts))).numpy()
    rows = np.split(features(np.concatenate(parts)), np.cumsum([len(part) for part in parts])[:-1])
    found = [model(SparseTensor(each, part * [0, 1, 1, 1])).numpy() for each, part in zip(rows, parts)]
    np.testing.assert_allclose(np.concatenate(found), whole, rtol=0, atol=5e-5)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("sizes", [[0], [1], [2, 0, 1]])
def test_the_smallest_batches_train(name, sizes):
    model = build(name, drop_path=0.5)
    model.train()
    coordinates = np.concatenate([scene(number, size) for number, size in enumerate(sizes)])
    logits = model(SparseTensor(features(coordinates), coordinates, num_scenes=len(sizes)))
    assert logits.shape == [sum(sizes), 5]
    logits.backward(paddle.ones_like(logits))
    trained = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
    assert all(parameter.grad is not None and bool(paddle.isfinite(parameter.grad).all()) for parameter in trained)
    assert len(trained) > 50


def attend(q, k, v, starts, starts_again, longest, longest_again, scale):
    """What the operation of GPUs computes, patch by patch."""
    assert (longest, starts.numpy().tolist()) == (longest_again, starts_again.numpy().tolist())
    assert longest == np.diff(starts.numpy()).max()
    results = []
    for first, end in zip(starts.numpy()[:-1], starts.numpy()[1:]):
        parts = [part[first:end].transpose([1, 0, 2]) for part in (q, k, v)]
        weights = paddle.nn.functional.softmax(scale * parts[0] @ parts[1].transpose([0, 2, 1]), axis=-1)
        results.append((weights @ parts[2]).transpose([1, 0, 2]))
    return paddle.concat(results), None


@pytest.mark.parametrize("name", ["sonata_decoder", "utonia"])
def test_the_operation_of_gpus_gets_the_same_patches(name, monkeypatch):
    calls = []
    monkeypatch.setattr(
        flash_attention, "flash_attn_unpadded", lambda *given: calls.append(len(given)) or attend(*given)
    )
    model = build(name)
    coordinates = np.concatenate([scene(0, 50), scene(1, 3, seed=1), scene(2, 20, seed=2)])
    x = SparseTensor(features(coordinates), coordinates)
    plain = model(x).numpy()
    assert not calls
    monkeypatch.setattr(PatchAttention, "is_fused", True)
    np.testing.assert_allclose(model(x).numpy(), plain, rtol=0, atol=5e-5)
    assert len(calls) == (7 if name == "sonata_decoder" else 4)


def test_many_patches_are_computed_in_parts(monkeypatch):
    model = build("sonata_decoder")
    coordinates = np.concatenate([scene(0, 50), scene(1, 3, seed=1), scene(2, 20, seed=2)])
    x = SparseTensor(features(coordinates), coordinates)
    whole = model(x).numpy()
    monkeypatch.setattr(attention, "_MOST_WEIGHTS", 2 * 8**2)
    np.testing.assert_allclose(model(x).numpy(), whole, rtol=0, atol=5e-5)
    patches = attention.SerializedPatches(*[paddle.zeros([1])] * 3, [8] * 5 + [3] + [8])
    assert list(patches.runs()) == [(0, 2, 8), (16, 2, 8), (32, 1, 8), (40, 1, 3), (43, 1, 8)]


def test_turns_of_orders_are_shuffled_in_training_by_the_updates_seed():
    model = build("ptv3")
    assert model.draw_orders() == [[0, 1, 2, 3]] * 3
    model.train()
    drawn = []
    for seed in (1, 1, 2):
        paddle.seed(seed)
        drawn.append(model.draw_orders())
    assert drawn[0] == drawn[1] != drawn[2]
    assert model.draw_orders((3, 7)) == model.draw_orders((3, 7)) != model.draw_orders((3, 8))
    assert all(sorted(each) == [0, 1, 2, 3] for each in drawn[2])
    fixed = build("ptv3", shuffle_orders=False)
    fixed.train()
    assert fixed.draw_orders() == [[0, 1, 2, 3]] * 3
    levels = {table.strides[0] for table in model.plan_spec().tables if hasattr(table, "order")}
    assert levels == {1, 2, 8} and len(model.plan_spec().tables) == 4 * 3 + 2 + 3


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_branches_are_dropped_by_point(rate):
    """Rates rise from 0 over the encoder's blocks, and fall to 0 over the decoder's, in the order in which they run."""
    model = build("sonata_decoder", drop_path=rate, decoder_depths=(1, 2), encoder_depths=(1, 1, 2))
    rates, layers = {}, dict(model.named_sublayers())
    for name in (name for name in layers if re.fullmatch(r".*block\d", name)):
        layers[name].register_forward_pre_hook(
            lambda block, _, name=name: rates.update({name: getattr(block.drop_path, "p", 0.0)})
        )
    model(SparseTensor(features(scene(0, 20)), scene(0, 20)))
    encoder = "enc.enc0.block0 enc.enc1.block0 enc.enc2.block0 enc.enc2.block1".split()
    decoder = "dec.dec1.block0 dec.dec1.block1 dec.dec0.block0".split()
    assert list(rates) == [*encoder, *decoder]
    expected = [0, rate / 3, rate * 2 / 3, rate, rate, rate / 2, 0]
    assert list(rates.values()) == pytest.approx(expected)
    model.train()
    kept = layers["dec.dec1.block0"].drop_path(paddle.ones([400, 3])).numpy()
    assert set(kept.ravel().tolist()) == ({1.0} if rate == 0 else {0.0, 2.0})
    assert (kept == kept[:, :1]).all() and abs((kept > 0).mean() - (1 - rate)) < 0.1


@pytest.mark.parametrize("name", FAMILIES)
def test_frozen_norms_leave_all_other_gradients(name):
    """As TRAIN.LORA and TRAIN.FREEZE need it: Paddle's own layer norm has another gradient then."""
    model, coordinates, found = build(name, shuffle_orders=False), scene(0, 60), []
    for parameter in model.parameters():
        if len(parameter.shape) == 1 and not parameter.stop_gradient:
            parameter.set_value(paddle.rand(parameter.shape) + 0.5)
    norms = [parameter for key, parameter in model.named_parameters() if ".norm1." in key or ".norm2." in key]
    for is_frozen in (False, True):
        for parameter in norms:
            parameter.stop_gradient = is_frozen
        model.clear_gradients()
        (model(SparseTensor(features(coordinates), coordinates)) ** 2).sum().backward()
        trained = {key: value for key, value in model.named_parameters() if not value.stop_gradient}
        found.append({key: value.grad.numpy() for key, value in trained.items()})
    assert len(norms) >= 16 and len(found[1]) == len(found[0]) - len(norms)
    for key, gradient in found[1].items():
        np.testing.assert_allclose(
            gradient, found[0][key], rtol=0, atol=1e-5 * np.abs(found[0][key]).max(), err_msg=key
        )


def test_other_data_sets_norms_are_not_trained():
    names = {"conditions": ("rooms", "streets"), "condition": "streets"}
    model = build("ptv3", **names)
    found = {}
    for name, parameter in model.named_parameters():
        match = re.search(r"\.norm\.(\d)\.(?:weight|bias)$", name)
        if match:
            found.setdefault(match[1], set()).add(not parameter.stop_gradient)
    assert found == {"0": {False}, "1": {True}}


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("ptv3", {"strides": (2, 3)}, "expected powers of 2"),
        ("ptv3", {"encoder_heads": (1, 5, 2)}, "12 channels cannot be divided by 5 heads"),
        ("utonia", {"encoder_heads": (6, 2, 2)}, "multiple of 6 channels"),
        ("ptv3", {"orders": ("z", "x")}, "expected some of z, z-trans"),
        ("ptv3", {"conditions": ("a", "b"), "condition": "c"}, "expected one of the conditions, a, b"),
        ("sonata_decoder", {"decoder_depths": (1,)}, "expected 2 or no numbers each"),
    ],
)
def test_options_that_do_not_fit_are_told(name, options, told):
    with pytest.raises(UserError, match=told):
        build(name, **options)
