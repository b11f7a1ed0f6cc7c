"""Options of networks that do not fit: what is said, next to the nearest ones that are taken."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.model_factory import create_model

VIT = {"image_size": 16, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2}
HGNET = {"depths": (1, 1), "dims": (8, 16), "middle_dims": (4, 8), "kernel_sizes": (3, 5), "light": (False, True)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool": "mean"}, "option pool 'mean' is not known: expected one of "),
        ({"positions": "sine"}, "option positions 'sine' is not known: expected one of "),
        ({"resampling": "linear"}, "option resampling 'linear' is not known: expected one of "),
        ({"feature_depths": (1, 3)}, r"option feature_depths \[1, 3\]: expected numbers from 1 to 2"),
        ({"feature_depths": (0, 2)}, r"option feature_depths \[0, 2\]: expected numbers from 1 to 2"),
        ({"gate": "open"}, "option gate 'open' is not known: expected one of null, "),
        ({"activation": "tanh"}, "option activation 'tanh' is not known: expected "),
        ({"rotary": "spiral"}, "option rotary 'spiral' is not known: expected one of null, "),
        ({"rotary": "axial", "embed_dim": 20}, "heads of a multiple of 4 channels, not 10: change NUM_HEADS"),
        ({"rotary": "axial", "windows": 2}, "option windows: rotary positions count the patches of the whole image"),
    ],
)
def test_options_of_a_vit_that_mean_nothing_are_named(options, message):
    with pytest.raises(UserError, match=message), paddle.LazyGuard():
        create_model("vit", num_classes=3, **{**VIT, **options})


def test_options_of_a_vit_at_their_limits_are_taken():
    with paddle.LazyGuard():
        assert create_model("vit", num_classes=3, **VIT, feature_depths=(1, 2)).feature_blocks == [1, 2]
        create_model("vit", num_classes=3, **VIT, rotary="axial")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depths": (1, 1, 1)}, r"HGNetV2: depths \(1, 1, 1\), dims \(8, 16\) and the others have one entry for each"),
        ({"light": (False,)}, "HGNetV2: depths .* one entry for each stage"),
        ({"layers": (2, 2, 2)}, "HGNetV2: depths .* one entry for each stage"),
        ({"frozen_stages": 4}, "HGNetV2: frozen_stages 4 is not from 0 to 3: change it"),
        ({"frozen_stages": -1}, "HGNetV2: frozen_stages -1 is not from 0 to 3: change it"),
    ],
)
def test_stages_of_hgnetv2_that_do_not_fit_are_named(options, message):
    with pytest.raises(UserError, match=message), paddle.LazyGuard():
        create_model("hgnetv2_b0", num_classes=3, **{**HGNET, **options})
    with paddle.LazyGuard():
        create_model("hgnetv2_b0", num_classes=3, **HGNET, frozen_stages=3, layers=(2, 1))


def test_weights_with_biases_need_a_model_that_has_them():
    with paddle.LazyGuard():
        model = create_model("vit", num_classes=3, **VIT)
    bias = np.zeros(24, np.float32)
    assert model.list_source_notices("timm", {"blocks.0.attn.q_bias": bias}) == []
    with pytest.raises(UserError, match=r"the weights have blocks\.0\.attn\.q_bias, which the model lacks"):
        model.list_source_notices("timm", {"blocks.0.attn.q_bias": bias + 1})


def test_a_segformer_needs_a_mit():
    with pytest.raises(UserError, match="backbone 'resnet18' is not a MiT, which SegFormer needs"), paddle.LazyGuard():
        create_model("segformer_b0", num_classes=3, backbone="resnet18")


@pytest.mark.parametrize(
    ("options", "naming", "is_told"),
    [
        ({"pool": "attention"}, "Hugging Face's DINO, CLIP and SigLIP", True),
        ({"pool": "attention"}, "Hugging Face's DINOv3 with biases", True),
        ({"pool": "attention"}, "timm", False),
        ({"pool": "attention", "activation": "gelu_tanh"}, "Hugging Face's DINO, CLIP and SigLIP", False),
        ({"pool": "token"}, "Hugging Face's DINO, CLIP and SigLIP", False),
    ],
)
def test_weights_of_siglip_that_were_trained_with_another_activation_are_told(options, naming, is_told):
    with paddle.LazyGuard():
        model = create_model("vit", num_classes=3, **VIT, **options)
    told = (
        "SigLIP's authors and transformers compute the tanh form of GELU, timm the exact one in this size: outputs "
        "differ by about 5e-4 (option activation gelu_tanh)"
    )
    assert model.list_source_notices(naming, {}) == [told] * is_told
