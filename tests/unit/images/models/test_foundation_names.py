"""Names that transformers gives the parameters of foundation backbones."""

import numpy as np
import pytest

from paddlevit_dist.images.models.foundation_names import FOUNDATION

TO_OURS = FOUNDATION["Hugging Face's DINO, CLIP and SigLIP"]


@pytest.mark.parametrize("prefix", ["", "dinov2.", "dinov2_with_registers.", "dinov3_vit."])
def test_prefixes_of_classifiers_are_stripped(prefix):
    names = {"embeddings.mask_token": 0, "embeddings.patch_embeddings.projection.bias": 1, "layernorm.weight": 1}
    state = {f"{prefix}{name}": np.zeros(3) for name in names}
    assert set(TO_OURS({**state, "classifier.weight": np.zeros((4, 6))})) == {
        "patch_embed.proj.bias",
        "norm.weight",
        "head.weight",
    }
