"""Before the first update: where fused kernels are used, and the one line that says why not."""

import pytest
from support.networks.plain_layers import plain_layers

from paddlevit_dist import create_model
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.extensions.gpu_kernels import hook
from paddlevit_dist.images.models.layers import Mlp
from paddlevit_dist.images.models.vit import ViTBlock

SMALL = {"num_classes": 3, "image_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}


def build(name: str = "vit", **options):
    with plain_layers():
        return create_model(name, **{**SMALL, **options})


def test_a_cpu_trains_by_paddle_s_operations():
    model = build()
    assert hook.use_fused_kernels(model, TrainingPrecision(False)) == [
        "fused kernels are not used (GPU_KERNELS): they need a CUDA GPU"
    ]
    assert {type(block) for block in model.blocks} == {ViTBlock}


@pytest.fixture
def on_gpu(monkeypatch):
    """Take this CPU for a GPU; return a function that says what is measured of kernels there."""
    pytest.importorskip("triton")
    from support.trainings.fused_kernels import interpreted_kernels

    from paddlevit_dist.extensions.gpu_kernels import device_check

    with interpreted_kernels():
        yield lambda **measures: monkeypatch.setattr(device_check, "MEASURES", measures)


def test_an_installation_that_lacks_something_is_one_line(on_gpu):
    def fail(width, dtype):
        raise RuntimeError("Failed to find C compiler.\nPlease specify one.")

    on_gpu(norm=fail, gelu=fail)
    (line,) = hook.use_fused_kernels(build(), TrainingPrecision(False))
    assert line.endswith("(GPU_KERNELS): RuntimeError: Failed to find C compiler. Please specify one.")


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_what_the_device_computes_is_used_and_what_it_does_not_is_one_line(on_gpu, dtype):
    measured = []

    def measure(kernel, error):
        def call(width, dtype):
            measured.append((kernel, width, dtype))
            return error

        return call

    precision = TrainingPrecision(dtype is not None, dtype or "float16", on_gpu=True)
    on_gpu(norm=measure("norm", 2e-5), gelu=measure("gelu", 0.0))
    line, *rest = hook.use_fused_kernels(build(), precision)
    assert line.startswith("fused kernels (GPU_KERNELS): ") and "2 ViTBlock" in line and "2 Mlp" in line
    assert [one.partition(":")[0] for one in rest] == (  # no CPU has the operation that computes them in float32
        ["gradients of weights of 16 x 16, 16 x 48, 16 x 64, 64 x 16"] if dtype else []
    )
    dtypes = ["float32", *([dtype] if dtype else [])]
    assert measured == [(kernel, width, one) for kernel, width in (("gelu", 64), ("norm", 16)) for one in dtypes]
    for wrong in (1e-2, float("inf"), float("nan")):
        on_gpu(norm=measure("norm", wrong), gelu=measure("gelu", 0.0))
        model = build()
        used, warning = hook.use_fused_kernels(model, TrainingPrecision(False))
        assert "2 Mlp" in used and "ViTBlock" not in used
        assert "are not used (GPU_KERNELS) for the norm of width 16: in float32 this device differs" in warning
        assert {type(block) for block in model.blocks} == {ViTBlock} != {type(block.mlp) for block in model.blocks}
    on_gpu(norm=measure("norm", 1.0), gelu=measure("gelu", 1.0))
    model = build()
    assert len(hook.use_fused_kernels(model, TrainingPrecision(False))) == 2 and type(model.blocks[0].mlp) is Mlp


def test_a_network_without_such_layers_is_told(on_gpu):
    model = create_model("resnet18", num_classes=2)
    (line,) = hook.use_fused_kernels(model, TrainingPrecision(False))
    assert line.endswith("this network has none of the layers that they compute")
