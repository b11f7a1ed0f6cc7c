"""Files beside weights at Hugging Face are asked for unless a run sets all that they say."""

import json

import pytest
from support.hosts.hubs import hub, weights  # noqa: F401

from paddlevit_dist.core.settings import load

COLORS = {"IMAGENET_MEAN": [0.1, 0.2, 0.3], "IMAGENET_STD": [0.4, 0.5, 0.6]}
SIZES = {"IMAGE_SIZE": 48, "CROP_PCT": 0.5, "INTERPOLATION": "bilinear", "CROP_MODE": "center"}
RUNS = {
    "classification": (["-dataset=folder", "MODEL.NAME", "vit_tiny_patch16_224"], {**COLORS, **SIZES}),
    "detection": (["-cfg=detr_shapes"], COLORS),
    "segmentation": (["-cfg=segformer_b0_shapes"], COLORS),
}
ABOUT = {
    **{"image_mean": [0.25, 0.5, 0.75], "image_std": [0.2, 0.3, 0.4], "resample": 3},
    "size": {"height": 64, "width": 64},
}
SAID = {"IMAGENET_MEAN": ABOUT["image_mean"], "IMAGENET_STD": ABOUT["image_std"], "IMAGE_SIZE": 64, "CROP_PCT": 1.0}
SAID |= {"INTERPOLATION": "bicubic", "CROP_MODE": "squash"}


@pytest.mark.parametrize("task", RUNS)
def test_the_hub_is_asked_unless_all_is_set_and_what_is_set_counts(task, hub):  # noqa: F811
    words, own = RUNS[task]
    for left in (None, *own):
        path = f"/owner/{left}/resolve/main/preprocessor_config.json"
        hub.beside[path] = json.dumps(ABOUT).encode()
        given = {name: value for name, value in own.items() if name != left}
        settings = [word for name, value in given.items() for word in (f"DATA.{name}", json.dumps(value).strip('"'))]
        data = load([*words, f"-pretrained=hf:owner/{left}", *settings]).values.DATA
        assert (path in hub.requests) == (left is not None)
        for name in own:
            found = list(data[name]) if name in COLORS else data[name]
            assert found == given.get(name, SAID[name]), (left, name)
