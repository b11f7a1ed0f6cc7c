"""Positions and kernels of DINOv2 for other patches, as timm resamples them where EoMT starts from it."""

import numpy as np
import pytest
from support.networks.cheap_weights import weights_of_zero
from support.networks.golden_eomt import random, stored

from paddlevit_dist.images.models.resampling import bicubic_matrix, resize_patch_kernel, resize_position_embedding
from paddlevit_dist.images.models.vit import VisionTransformer


def test_golden_eomt_kernel_for_patches_of_another_size():
    kernel = random("training/kernel").standard_normal((2, 3, 14, 14))
    found = resize_patch_kernel(kernel, 16)
    np.testing.assert_allclose(found, stored()["training/kernel16"], rtol=0, atol=1e-5)  # timm inverts in float32
    with weights_of_zero():
        model = VisionTransformer(0, 32, 16, embed_dim=2, depth=1, num_heads=1)
    np.testing.assert_array_equal(model.resize_parameter("patch_embed.proj.weight", kernel), found)
    assert model.resize_parameter("patch_embed.proj.weight", kernel[..., :8]) is None


@pytest.mark.parametrize("name", [each for each in stored() if each.startswith("training/positions")])
def test_golden_eomt_positions_of_another_grid(name):
    table = random("training/positions").standard_normal((1, 1369, 2))
    side = int(name.removeprefix("training/positions"))
    found = resize_position_embedding(table, (side, side), 0)
    np.testing.assert_allclose(found[0], stored()[name], rtol=0, atol=2e-6)


def test_a_patch_that_is_resized_is_embedded_as_before():
    """Enlarged patches lose nothing, so the product is the same."""
    generator = np.random.default_rng(0)
    kernel, patch = generator.standard_normal((4, 1, 6, 6)), generator.standard_normal((6, 6))
    matrix = bicubic_matrix(6, 9)
    larger = matrix @ patch @ matrix.T
    found = np.einsum("dcyx,yx->d", resize_patch_kernel(kernel, 9).astype(np.float64), larger)
    np.testing.assert_allclose(found, np.einsum("dcyx,yx->d", kernel, patch), rtol=1e-4, atol=1e-4)
