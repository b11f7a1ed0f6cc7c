"""Layers of fused kernels, which a test takes for those of a GPU: they train as the plain ones do."""

from collections.abc import Iterator

import numpy as np
import paddle
import pytest
from support.networks.plain_layers import plain_layers
from support.trainings.fused_kernels import interpreted_kernels

from paddlevit_dist import create_model
from paddlevit_dist.core.distributed import recompute_layers
from paddlevit_dist.extensions.gpu_kernels import layers
from paddlevit_dist.extensions.gpu_kernels.layers import fuse, list_kernels

SMALL = {"num_classes": 3, "image_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
IMAGES = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype("f4"))


@pytest.fixture
def launched(monkeypatch) -> Iterator[list[str]]:
    """Take this CPU for a GPU; returns the names of the fused functions that were called, in order."""
    names: list[str] = []
    for name in ("normalize", "compute_block", "add_bias_and_gelu"):
        function = getattr(layers, name)

        def call(*arguments, _function=function, _name=name):
            names.append(_name)
            return _function(*arguments)

        monkeypatch.setattr(layers, name, call)
    with interpreted_kernels():
        yield names


def build(is_fused: bool, name: str = "vit", **options):
    paddle.seed(1)
    with plain_layers():
        model = create_model(name, **{**SMALL, **options})
    for norm in (part for part in model.sublayers() if isinstance(part, paddle.nn.LayerNorm)):
        norm.weight.set_value(paddle.rand(norm.weight.shape) + 0.5)
        norm.bias.set_value(paddle.rand(norm.bias.shape))
    if is_fused:
        fuse(model, list_kernels(model))
    return model


def update(model, compute=None, seed: int = 3) -> list[np.ndarray]:
    """Outputs, and gradients by parameters."""
    paddle.seed(seed)
    model.train()
    result = model(IMAGES) if compute is None else compute(model)
    result = result[0] + 2.0 * result[1] if isinstance(result, (list, tuple)) else result
    (result * paddle.arange(1.0, 1.0 + result.shape[-1])).sum().backward()
    return [result.numpy(), *(p.grad.numpy() for p in model.parameters() if p.grad is not None)]


def check_equal(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5 * np.abs(other).max())


@pytest.mark.parametrize(
    "name, options",
    [
        ("vit", {}),
        ("vit", {"pool": "average", "depth": 3}),
        ("vit", {"attention_dropout": 0.3, "depth": 1}),
        ("vit", {"registers": 2, "qkv_bias": False}),
        ("deit_tiny_distilled_patch16_224", {}),
    ],
)
def test_a_network_trains_as_by_the_plain_layers(launched, name, options):
    check_equal(*(update(build(is_fused, name, **options)) for is_fused in (True, False)))
    assert launched == ["normalize", *["compute_block"] * options.get("depth", 2)]  # the others' norms are prepared


def test_frozen_layers_get_no_gradient(launched):
    models = [build(is_fused, depth=3) for is_fused in (True, False)]
    for model in models:
        for parameter in [*model.patch_embed.parameters(), *model.blocks[0].parameters(), model.blocks[1].norm1.weight]:
            parameter.stop_gradient = True
        model.cls_token.stop_gradient = model.pos_embed.stop_gradient = True
    check_equal(*map(update, models))
    assert launched.count("compute_block") == 3


@pytest.mark.parametrize("rates", [{}, {"dropout": 0.3, "drop_path": 0.5}])
def test_recomputed_blocks_drop_the_same_again_and_compute_their_own_norms(launched, rates):
    models = [build(False, **rates) for _ in range(2)]
    recompute_layers(models[0].recomputed_layers())
    for model in models:
        fuse(model, list_kernels(model))
    found, expected = map(update, models)
    check_equal(found, expected)
    assert launched[:8] == ["normalize", "compute_block"] * 4  # of two blocks, twice
    if not rates:
        check_equal(found, update(build(False)))


def test_dropout_changes_with_the_seed_and_repeats_with_it(launched):
    model = build(True, dropout=0.3, drop_path=0.5)
    found = []
    for seed in (3, 3, 4):
        for parameter in model.parameters():
            parameter.clear_gradient(False)
        found.append(update(model, seed=seed))
    for one, again in zip(*found[:2]):
        np.testing.assert_array_equal(one, again)
    assert (found[0][0] != found[2][0]).any() and "compute_block" in launched
