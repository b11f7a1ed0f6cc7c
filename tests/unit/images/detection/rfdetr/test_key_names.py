"""Names of RF-DETR's authors: those of every size, and back."""

import itertools

import numpy as np
import paddle
import pytest
from support.networks.golden_rfdetr import GOLDEN

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.detection.rfdetr.key_names import RFDETR, name_like_authors

PUBLISHED = GOLDEN["published"]
OURS = {  # size -> model and options
    **{name: (f"rfdetr_{name.lower()}", {}) for name in ("Nano", "Small", "Medium", "Large", "Base")},
    **{f"Seg{name}": (f"rfdetr_seg_{name.lower()}", {}) for name in ("Nano", "Small", "Medium", "Large", "XLarge")},
    "Seg2XLarge": ("rfdetr_seg_xxlarge", {}),
    "SegPreview": ("rfdetr_seg_medium", {"decoder_layers": 4}),
    "LargeDeprecated": (
        "rfdetr_base",
        {
            **{"backbone": "vit_base_patch14_dinov2", "embed_dim": 384, "num_heads": 12, "sampling_heads": 24},
            **{"points": 4, "levels": [3, 5]},
            "backbone_options": {"windows": 4, "feature_depths": [2, 5, 8, 11]},
        },
    ),
}


def _state(name):
    """Arrays of the published names and shapes, without memory."""
    state = {}
    for pattern, shape, numbers, kind in PUBLISHED[name]["keys"]:
        for chosen in itertools.product(*numbers) if kind == "product" else numbers:
            first, *others = pattern.split("#")
            key = first + "".join(f"{number}{rest}" for number, rest in zip(chosen, others))
            state[key] = np.broadcast_to(np.float32(0), shape)
    assert len(state) == PUBLISHED[name]["entries"]
    return state


@pytest.mark.parametrize("name", PUBLISHED)
def test_golden_names_and_shapes_of_each_size_are_those_of_a_network_and_back(name):
    model, options = OURS[name]
    theirs, (to_ours,) = _state(name), RFDETR.values()
    with paddle.LazyGuard():  # names and shapes only
        network = create_model(model, num_classes=PUBLISHED[name]["config"]["num_classes"] + 1, **options)
    linear = {f"{key}.weight" for key, layer in network.named_sublayers() if isinstance(layer, paddle.nn.Linear)}
    shapes = {key: tuple(value.shape) for key, value in network.state_dict().items()}
    ours = to_ours(theirs)
    turned = {key: value.shape[::-1] if key in linear else value.shape for key, value in ours.items()}
    assert turned == shapes
    back, dropped = name_like_authors(ours)
    assert dropped == []
    assert {key: value.shape for key, value in back.items()} == {
        key: value.shape for key, value in theirs.items() if value.size
    }


def test_values_return_to_their_names():
    random, theirs = np.random.default_rng(0), _state("SegNano")
    layers = ("encoder.layer.0.", "decoder.layers.0.", "embeddings.", "refpoint", "segmentation_head.blocks.0.")
    theirs = {
        key: random.standard_normal(value.shape).astype("float32")
        for key, value in theirs.items()
        if any(layer in key for layer in layers) and not key.endswith("mask_token")
    }
    (to_ours,) = RFDETR.values()
    back, _ = name_like_authors(to_ours(theirs))
    assert not back.pop("backbone.0.encoder.encoder.embeddings.mask_token").any()
    assert back.keys() == theirs.keys() and all((back[key] == value).all() for key, value in theirs.items())


def test_another_network_has_none_of_these_names():
    with pytest.raises(UserError, match="^convert: the names of the package rfdetr are for an RF-DETR"):
        name_like_authors({"backbone.cls_token": np.zeros((1, 1, 4))})
