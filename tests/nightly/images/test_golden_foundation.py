"""Published foundation backbones of timm and transformers: tokens, maps, pooled features, logits and gradients."""

import pytest
from unit.images.models.test_vit_golden import cases, require_tokens_features_and_gradients


@pytest.mark.parametrize("name, size", cases(is_large=True))
def test_golden_tokens_features_and_gradients(name, size):
    require_tokens_features_and_gradients(name, size)
