"""Before the first update: where fused kernels are used, and the one line that says why not."""

from types import SimpleNamespace

import paddle
import pytest
from support.forced_device import forced_device
from support.networks.plain_layers import plain_layers
from support.thread_ranks import ThreadRanks

from paddlevit_dist import create_model
from paddlevit_dist.core.distributed import world
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.runtime import device_kinds
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

    from paddlevit_dist.extensions.gpu_kernels import device_check, weight_gradients

    monkeypatch.setattr(weight_gradients, "_is_right", {})  # a process asks and tells once
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


@pytest.mark.parametrize(("dtype", "digits"), [("float32", 15), ("float16", 9), ("bfloat16", 6)])
def test_a_kernel_may_differ_by_the_rounding_of_its_dtype(on_gpu, dtype, digits):
    precision = TrainingPrecision(dtype != "float32", dtype.replace("float32", "float16"), on_gpu=True)
    for error, is_used in ((2.0**-digits, True), (1.001 * 2.0**-digits, False)):
        on_gpu(norm=lambda width, of: 0.0, gelu=lambda width, of, error=error: error * (of == dtype))
        lines = hook.use_fused_kernels(build(), precision)
        assert lines[0].startswith("fused kernels (GPU_KERNELS): 2 ViTBlock, 2 Mlp") is is_used
        wrong = f"are not used (GPU_KERNELS) for the gelu of width 64: in {dtype} this device differs from Paddle's "
        assert any(f"{wrong}operations by {error:.1e} of the largest" in line for line in lines) is not is_used


def test_all_ranks_use_what_each_of_them_computes(on_gpu, monkeypatch):
    """One without a compiler, one whose GPU is off, and one that alone trains in another precision."""

    def use(reasons, differences):
        ranks = ThreadRanks(2)
        place = lambda: world.place()[0]  # noqa: E731
        with monkeypatch.context() as patch:
            patch.setattr(hook, "_start_triton", lambda: reasons[place()])
            patch.setattr(hook, "_ask_device", lambda model, precision: differences[place()])
            return ranks.run(lambda rank: hook.use_fused_kernels(models[rank], TrainingPrecision(False)))

    right = {("gelu", 64, "float32"): 0.0, ("norm", 16, "float32"): 1e-6}
    for reasons, told in ((("", "no compiler"), "no compiler"), (("no driver", "no compiler"), "no driver")):
        models = [build() for _ in range(2)]
        assert use(reasons, (right, {})) == [[f"fused kernels are not used (GPU_KERNELS): {told}"]] * 2
    for other, told in (
        ({**right, ("norm", 16, "float32"): 0.5}, "norm of width 16: in float32 this device differs from Paddle's "),
        (
            {("gelu", 64, "float32"): 0.0},
            "norm of width 16: in float32 this device differs from Paddle's operations by inf",
        ),
        ({**right, ("norm", 16, "float16"): 0.0}, "norm of width 16: in float16 this device differs"),
    ):
        for of_ranks in ((right, other), (other, right)):
            models = [build() for _ in range(2)]
            found = use(("", ""), of_ranks)
            assert (
                found[0] == found[1]
                and told in found[0][1]
                and found[0][0].startswith("fused kernels (GPU_KERNELS): 2 Mlp,")
            )
            assert [type(model.blocks[0]) for model in models] == [ViTBlock] * 2
    assert use(("", ""), ({}, {}))[1][0].endswith("this network has none of the layers that they compute")


def test_triton_asks_paddle_for_the_device_of_the_process(monkeypatch):
    pytest.importorskip("triton")
    from paddlevit_dist.extensions.gpu_kernels import driver

    used, chosen = [], []
    monkeypatch.setattr(driver, "use", used.append)
    monkeypatch.setattr(paddle, "get_device", lambda: "gpu:3")
    monkeypatch.setattr(paddle.device, "set_device", chosen.append)
    streams = SimpleNamespace(_get_current_stream=lambda device: SimpleNamespace(cuda_stream=1000 + device))
    monkeypatch.setattr(paddle.base, "core", streams)
    for kind, is_built, reason in (
        ("cpu", True, "they need a CUDA GPU"),
        ("gpu", False, "they need a CUDA GPU"),
        ("gpu", True, ""),
    ):
        monkeypatch.setattr(device_kinds, "is_built_for_cuda", lambda is_built=is_built: is_built)
        with forced_device(kind, capability=(9, 1)):
            assert hook._start_triton() == reason and len(used) == (not reason)
            if used:
                assert (used[0].current_device(), used[0].capability(3), used[0].current_stream(2)) == (3, (9, 1), 1002)
                used[0].set_device(5)
    assert chosen == ["gpu:5"]
    monkeypatch.setattr(driver, "use", lambda answers: 1 // 0)
    with forced_device("gpu"):
        assert hook._start_triton().startswith("ZeroDivisionError: integer division")


def test_an_error_is_told_without_the_frames_that_paddle_draws():
    drawn = "  In transformed code:\n\n==== Error ====\nno kernel  for\n this device"
    assert hook._one_line(ValueError(drawn)) == "ValueError: In transformed code: no kernel for this device"
    assert hook._one_line(ValueError("x" * 400)) == f"ValueError: {'x' * 300}"


@pytest.mark.parametrize(
    ("value", "drops", "has_triton", "asked"),
    [
        ("auto", {"dropout": 0.1}, True, "auto"),
        ("auto", {"drop_path": 0.1}, True, "auto"),
        ("auto", {"dropout": 0.1, "drop_path": 0.1}, True, False),
        ("auto", {}, False, False),
        (True, {"dropout": 0.1, "drop_path": 0.1}, True, True),
    ],
)
def test_by_default_networks_with_both_kinds_of_dropout_are_left_out(module_specs, value, drops, has_triton, asked):
    if not has_triton:
        module_specs["triton"] = None
    chosen = []
    state = SimpleNamespace(choose=lambda *words: chosen.append(words))
    hook.FusedKernelsHook(SimpleNamespace(config={"GPU_KERNELS": value}, model=build(**drops), state=state))
    assert chosen == [("GPU_KERNELS", asked)]
