"""Models of timm with the golden weights, and how far their logits are from PyTorch's."""

from typing import Any

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.checkpoint.foreign_names import from_torch_names, to_torch_names
from paddlevit_dist.core.tasks.model_factory import create_model
from support.networks import golden

TIMES = 20  # of PyTorch's own float32 error, as the golden file allows
needs_compat = pytest.mark.skipif(not hasattr(paddle, "compat"), reason="models of timm need Paddle 3.3")
_KEPT = ("attn_mask", "pos_table")  # what ends so, and what contains one of the next, keeps timm's own values
_KEPT_PARTS = ("rope", "relative_coords")


def fill(model: Any, seed: int) -> None:
    """Give a model of timm the golden weights."""
    filled = {
        name: golden.recipe().golden_weight(seed, name, tuple(value.shape))
        for name, value in to_torch_names(model.state_dict()).items()
        if value.is_floating_point() and not name.endswith(_KEPT) and not any(part in name for part in _KEPT_PARTS)
    }
    targets = model.state_dict()
    for name, value in from_torch_names(filled).items():
        targets[name].set_value(value)


def make_error(name: str, file: str = "timm_zoo") -> tuple[float, float]:
    """Return the largest difference of a model's logits from PyTorch's in float64, and the largest allowed one."""
    about = golden.description(file)
    fact = about["models"][name]
    network = create_model(f"timm:{name}").network
    learned = sum(parameter.size for parameter in network.parameters() if not parameter.stop_gradient)
    assert learned == fact["parameters"]
    fill(network, about["seed"])
    network.eval()
    with paddle.no_grad():
        outputs = network(paddle.to_tensor(golden.recipe().golden_image(about["seed"], 1, fact["image_size"])))
    if isinstance(outputs, (tuple, list)):
        outputs = sum(outputs) / len(outputs)
    difference = np.abs(outputs.numpy()[:, :: fact["step"]] - golden.arrays(file)[name])
    return float(difference.max()), TIMES * fact["float32_error"]


# What ``create_model`` is given for the arguments of timm in the golden file.
_BACKBONES = {
    "dynamic_img_size": {"any_size": True},
    "dynamic_img_pad": {},
    "strict_img_size": {"any_size": True},
    "output_stride": {"dilation": 1},
}


def make_feature_errors(name: str) -> list[tuple[float, float]]:
    """Return for each map of an odd size its largest difference from PyTorch's, and the largest allowed one."""
    about = golden.description("timm_features")
    fact, (height, width) = about["models"][name], about["size"]
    options = {key: value for argument in fact["options"] for key, value in _BACKBONES[argument].items()}
    if fact["options"].get("output_stride") == 8:
        options["dilation"] = 2
    model = create_model(f"timm:{name}", num_classes=0, **options)
    fill(model, about["seed"])
    model.eval()
    image = golden.recipe().golden_image(about["seed"], 1, 160)[:, :, :height, :width]
    with paddle.no_grad():
        maps = model.feature_maps(paddle.to_tensor(image))
    assert [list(x.shape) for x in maps] == fact["shapes"]
    assert list(model.feature_channels) == [shape[1] for shape in fact["shapes"]]
    expected, errors = golden.arrays("timm_features"), []
    for number, (x, step, error) in enumerate(zip(maps, fact["steps"], fact["float32_errors"])):
        difference = np.abs(x.numpy().ravel()[::step] - expected[f"{name}/{number}"])
        errors.append((float(difference.max()), TIMES * error))
    return errors
