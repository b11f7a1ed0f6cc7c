"""Exports to ONNX of every family compute what the network computes."""

import numpy as np
import paddle
import pytest
from integration.images.test_onnx_export import (
    BY_DAY,
    PREPARATIONS,
    described,
    images,
    needs_onnx,
    operators,
    outputs,
    require_one_line_of_pooling,
    require_repeated_prediction,
    require_same_outputs,
)
from support.networks.other_names import REDUCED, small

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.extensions.export.command import export


@needs_onnx
@pytest.mark.parametrize("name", [name for name in REDUCED if name != "pvt_v2_b2_li"])
def test_every_family_gives_the_same_outputs_for_any_batch(name, tmp_path):
    require_same_outputs(small(name, seed=1), tmp_path)


@needs_onnx
def test_a_pyramid_that_onnxruntime_cannot_compute_is_one_line(tmp_path):
    require_one_line_of_pooling(small("pvt_v2_b2_li", seed=1), tmp_path)


@needs_onnx
@pytest.mark.parametrize("name", [name for name in PREPARATIONS if name not in BY_DAY])
def test_the_pages_program_repeats_a_prediction_with_the_exported_files_alone(name, tmp_path):
    require_repeated_prediction(*PREPARATIONS[name], tmp_path)


@needs_onnx
def test_a_pyramid_keeps_its_borders_when_biases_move_behind_its_convolutions(tmp_path):
    """Biases in front of depthwise convolutions, which see zeros at the border, become maps; random ones here."""
    paddle.seed(2)
    sizes = {"embed_dims": (8, 16, 24, 32), "num_heads": (1, 2, 3, 4), "depths": (1, 1, 1, 1)}
    model = create_model("pvtv2_b0", num_classes=5, image_size=64, **sizes)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.set_value(paddle.randn(parameter.shape))
    model.eval()
    require_same_outputs(model, tmp_path)
    fused, blocks = operators(tmp_path / "onnxruntime.onnx"), sum(len(stage.blocks) for stage in model.stages)
    assert (fused["MultiHeadAttention"], fused["BiasGelu"], fused["Erf"], fused["Softmax"]) == (blocks, blocks, 0, 0)


@needs_onnx
def test_float16_differs_by_its_rounding_and_takes_half_images(tmp_path):
    model = small("vit", seed=1)
    export(described(model), str(tmp_path / "half"), "onnxruntime", "float16")
    x = images(2, 3, *model.image_size)
    with paddle.no_grad():
        expected = model(paddle.to_tensor(x)).numpy()
    difference = np.abs(outputs(tmp_path / "half.onnx", x) - expected).max()
    assert 0 < difference < 1e-2 * np.abs(expected).max()
    model.head.weight.set_value(paddle.full_like(model.head.weight, 1e5))
    with pytest.raises(UserError, match="reaches 100000, which float16 cannot hold"):
        export(described(model), str(tmp_path / "large"), "onnx", "float16")
    assert not list(tmp_path.glob("*large*"))
