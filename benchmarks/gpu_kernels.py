"""Fused Triton kernels of ``extensions/gpu_kernels`` on torch's tensors, against torch's own and compiled ones.

    python benchmarks/gpu_kernels.py [--rows 50432] [--widths 192,768] [--variants]

Needs torch with CUDA and Triton, and no Paddle. First all results are compared with float64. Then milliseconds, by CUDA
events, after the L2 cache was overwritten: the median of 30. ``--variants`` times other divisions into programs, too.
The last line is RESULT and JSON. Without a GPU, ``--smallest`` runs Triton's interpreter.
"""

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import smallest

smallest.need("torch", "triton")
if smallest.IS_SMALLEST:
    os.environ["TRITON_INTERPRET"] = "1"
# Triton reads the variable when it is imported.
import torch  # noqa: E402
import torch._functorch.config as functorch_config  # noqa: E402
import triton  # noqa: E402

FOLDER = Path(__file__).resolve().parents[1] / "paddlevit_dist" / "extensions" / "gpu_kernels"
DEVICE = "cpu" if smallest.IS_SMALLEST else "cuda"
EPSILON = 1e-6
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
if DEVICE == "cpu":
    ROUNDING[torch.bfloat16] *= 2  # Triton's interpreter drops the bits beyond
PEERS = ("torch eager", False), ("torch compile", True)
ALLOWED = 32 * 2.0**-24  # beyond that rounding, as a share of the largest value
SHAPES = "1x1x2 3x1x7 11x3x77 16x197x192 2x25x768 1x17x1000 2x3x3072 1x2x5001 256x197x192"  # items, tokens, width
NORM_TILES = "1x1 1x2 1x4 2x2 2x4 4x4 4x8 8x4 8x8 16x8"  # rows, warps
GELU_TILES = "1x1024x4 2x256x2 4x256x2 4x256x4 8x256x4 16x256x8 8x128x4 16x128x4 32x64x4"  # rows, columns, warps


def read_sizes(text):
    return [tuple(map(int, sizes.split("x"))) for sizes in text.split()]


def load_kernels():
    """Load ``gpu_kernels/`` by its path: the package around it imports Paddle."""
    spec = importlib.util.spec_from_file_location(
        "gpu_kernels", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_kernels"] = module
    spec.loader.exec_module(module)
    from gpu_kernels import launches

    if DEVICE == "cuda" and not os.environ.get("GPU_KERNELS_DEFAULT_DRIVER"):
        from gpu_kernels import driver

        stream = torch._C._cuda_getCurrentRawStream
        driver.use(
            driver.DeviceAnswers(
                torch.cuda.current_device, stream, torch.cuda.get_device_capability, torch.cuda.set_device
            )
        )
    return launches


launches = load_kernels()


class Torch:
    """Torch's tensors for the launches."""

    def empty(self, shape, dtype):
        return torch.empty(shape, dtype=getattr(torch, dtype), device=DEVICE)

    def name(self, tensor):
        return _NAMES[tensor.dtype]


_NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
FRAMEWORK = Torch()


# ---- right to one rounding --------------------------------------------------------------------------------------


def excess(found, expected):
    """The largest difference beyond one rounding, as a share of the largest value."""
    found_wide, scale = found.double(), expected.abs().max().clamp_min(1e-30)
    difference = (found_wide - expected).abs() - ROUNDING[found.dtype] * expected.abs()
    return float((difference / scale).max()) if torch.isfinite(found_wide).all() else float("inf")


def draw(generator, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=generator, dtype=torch.float32).to(dtype).to(DEVICE)


def check_norm(items, tokens, width, dtype, total_dtype, has_branch, has_bias, has_keep):
    """Compare ``add_norm`` and its gradient with float64; return the worst excess by name."""
    generator = torch.Generator().manual_seed(items * 1000 + width)
    shape = (items, tokens, width)
    x = draw(generator, *shape, dtype=total_dtype)
    branch = draw(generator, *shape, dtype=dtype) if has_branch else None
    weight, shift, bias = (draw(generator, width) for _ in range(3))
    bias = bias if has_bias else None
    keep = (torch.rand(items, generator=generator) < 0.7).float().to(DEVICE) / 0.7 if has_keep else None
    names = {"dtype": _NAMES[dtype], "total_dtype": _NAMES[total_dtype]}
    found = launches.add_norm(FRAMEWORK, x, branch, (weight, shift), bias=bias, keep=keep, epsilon=EPSILON, **names)
    wide = [t.double().requires_grad_() for t in (x, weight, shift)]
    wide_branch = branch.double().requires_grad_() if has_branch else None
    wide_bias = bias.double().requires_grad_() if has_bias else None
    total = wide[0]
    if has_branch:
        added = wide_branch if bias is None else wide_branch + wide_bias
        total = total + (added if keep is None else added * keep.double()[:, None, None])
    # what is normalized is the sum as it was stored
    stored = total + (found.total.double() - total).detach()
    normal = torch.nn.functional.layer_norm(stored, (width,), wide[1], wide[2], EPSILON)
    gradients = draw(generator, *shape, dtype=dtype), draw(generator, *shape, dtype=total_dtype)
    needed = [t for t in (*wide, wide_branch, wide_bias) if t is not None]
    expected = torch.autograd.grad((normal, total), needed, [g.double() for g in gradients])
    options = {"branch_dtype": _NAMES[dtype] if has_branch else None, "bias_dtype": "float32" if has_bias else None}
    backward = launches.add_norm_backward(
        FRAMEWORK, found, *gradients, weight, keep=keep, x_dtype=_NAMES[total_dtype], **options
    )
    actual = [t for t in (backward.x, backward.weight, backward.shift, backward.branch, backward.bias) if t is not None]
    pairs = {"total": (found.total, total.detach()), "normal": (found.normal, normal.detach())}
    labels = [
        n for n, t in zip(("x", "weight", "shift", "branch", "bias"), (*wide, wide_branch, wide_bias)) if t is not None
    ]
    pairs.update((f"d {name}", pair) for name, pair in zip(labels, zip(actual, expected)))
    return {name: excess(*pair) for name, pair in pairs.items()}


def check_gelu(rows, width, dtype):
    """Compare ``bias_gelu`` and its gradient with float64; return the worst excess by name."""
    generator = torch.Generator().manual_seed(rows + width)
    x, bias, gradient = (
        draw(generator, rows, width, dtype=dtype),
        draw(generator, width),
        draw(generator, rows, width, dtype=dtype),
    )
    wide = [t.double().requires_grad_() for t in (x, bias)]
    out = torch.nn.functional.gelu(wide[0] + wide[1])
    expected = out.detach(), *torch.autograd.grad(out, wide, gradient.double())
    actual = launches.bias_gelu(FRAMEWORK, x, bias), *launches.bias_gelu_backward(FRAMEWORK, gradient, x, bias)
    return {name: excess(*pair) for name, pair in zip(("gelu", "d gelu", "d gelu bias"), zip(actual, expected))}


def check_all():
    """Compare several shapes and dtypes; return the worst excess by name."""
    f32, f16, b16 = torch.float32, torch.float16, torch.bfloat16
    worst = {}
    for items, tokens, width in read_sizes(smallest.sized(SHAPES, "1x1x2 3x2x7 2x3x77")):
        is_thorough = width in (77, 192)
        options = [(1, 1, 1)] + ([(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 0, 1)] if is_thorough else [])
        for dtype, total_dtype in ((f32, f32), (b16, f32)) + (
            ((f16, f32), (f16, f16), (b16, b16)) if is_thorough else ()
        ):
            found = [check_gelu(items * tokens, width, dtype)]
            found += [check_norm(items, tokens, width, dtype, total_dtype, *flags) for flags in options]
            for one in found:
                for name, value in one.items():
                    key = f"{name} {_NAMES[dtype]}/{_NAMES[total_dtype]}"
                    worst[key] = max(worst.get(key, -1.0), value)
                    if value > ALLOWED:
                        print(f"TOO LARGE {key} {items}x{tokens}x{width}: {value:.2e}")
    print(f"worst excess beyond one rounding {max(worst.values()):.2e} of the largest value (allowed {ALLOWED:.2e})")
    return worst


def check_repeats():
    """Return whether the gradients of parameters are bit-equal in ten runs."""
    generator = torch.Generator().manual_seed(5)
    rows, width = smallest.sized((50432, 192), (9, 20))
    x, gradient = (draw(generator, rows, width) for _ in range(2))
    weight, shift = (draw(generator, width) for _ in range(2))
    saved = launches.add_norm(FRAMEWORK, x, x, (weight, shift), epsilon=EPSILON, dtype="float32")
    runs = []
    for _ in range(smallest.sized(10, 2)):
        g = launches.add_norm_backward(
            FRAMEWORK, saved, gradient, gradient, weight, branch_dtype="float32", bias_dtype="float32"
        )
        runs.append([g.weight, g.shift, g.bias, launches.bias_gelu_backward(FRAMEWORK, gradient, x, weight)[1]])
    return all(torch.equal(a, b) for run in runs for a, b in zip(run, runs[0]))


# ---- milliseconds -----------------------------------------------------------------------------------------------

_flush = None


def milliseconds(call, repeats=30):
    """The median GPU time of a call; the host is far ahead, and the L2 cache holds other values."""
    global _flush
    if DEVICE == "cpu":
        call()
        return 0.0
    if _flush is None:
        _flush = torch.empty(64 << 20, dtype=torch.int32, device=DEVICE)  # 256 MB
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in pairs:
        _flush.zero_()
        torch.cuda._sleep(1_500_000)  # about a millisecond, for the host
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in pairs)


def host_microseconds(call, number=300):
    """The time the host takes to start a call, without waiting for it."""
    call()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(smallest.sized(number, 1)):
            call()
        best = min(best, (time.perf_counter() - began) / smallest.sized(number, 1))
        if DEVICE == "cuda":
            torch.cuda.synchronize()
    return best * 1e6


def torch_norm(x, branch, weight, shift):
    total = x + branch
    return total, torch.nn.functional.layer_norm(total, x.shape[-1:], weight, shift, EPSILON).to(branch.dtype)


def torch_gelu(x, bias):
    return torch.nn.functional.gelu(x + bias.to(x.dtype))


def time_peer(function, inputs, gradients, is_compiled):
    """Milliseconds of a function of torch, forward and backward."""
    function = torch.compile(function, dynamic=False) if is_compiled and DEVICE == "cuda" else function
    inputs = [t.detach().requires_grad_() for t in inputs]
    forward = milliseconds(lambda: function(*inputs))
    outputs = function(*inputs)
    backward = milliseconds(lambda: torch.autograd.grad(outputs, inputs, gradients, retain_graph=True))
    with torch.no_grad():
        plain = milliseconds(lambda: function(*inputs))
    return {"forward": forward, "forward no_grad": plain, "backward": backward}


def time_norm(rows, width, dtype, results, variants):
    generator = torch.Generator().manual_seed(1)
    x, total_gradient = (draw(generator, rows, width) for _ in range(2))
    branch, normal_gradient = (draw(generator, rows, width, dtype=dtype) for _ in range(2))
    weight, shift, bias = (draw(generator, width) for _ in range(3))
    items = max(1, rows // 197)
    keep = torch.ones(-(-rows // (rows // items)), device=DEVICE)
    name, key = _NAMES[dtype], f"norm {width} {_NAMES[dtype]}"
    for label, is_compiled in () if variants else PEERS:
        results[f"{key} {label}"] = time_peer(
            torch_norm, [x, branch, weight, shift], (total_gradient, normal_gradient), is_compiled
        )

    def forward(tile=None, **more):
        return launches.add_norm(FRAMEWORK, x, branch, (weight, shift), epsilon=EPSILON, dtype=name, tile=tile, **more)

    saved = forward()

    def backward(tile=None, **more):
        return launches.add_norm_backward(
            FRAMEWORK, saved, normal_gradient, total_gradient, weight, branch_dtype=name, tile=tile, **more
        )

    results[f"{key} ours"] = {"forward": milliseconds(forward), "backward": milliseconds(backward)}
    results[f"{key} ours with bias and keep"] = {
        "forward": milliseconds(lambda: forward(bias=bias, keep=keep)),
        "backward": milliseconds(lambda: backward(bias_dtype="float32", keep=keep)),
    }
    alone = launches.add_norm(FRAMEWORK, x, None, (weight, shift), epsilon=EPSILON, dtype=name)
    results[f"{key} ours without branch"] = {
        "forward": milliseconds(
            lambda: launches.add_norm(FRAMEWORK, x, None, (weight, shift), epsilon=EPSILON, dtype=name)
        ),
        "backward": milliseconds(
            lambda: launches.add_norm_backward(FRAMEWORK, alone, normal_gradient, None, weight, branch_dtype=None)
        ),
    }
    if not variants:
        return
    columns = launches._power_of_two(width)
    for tile_rows, warps in read_sizes(NORM_TILES):
        if tile_rows * columns > 8192:
            continue
        tile = launches.KernelTile(tile_rows, columns, warps)
        results[f"{key} variant {tile_rows}x{warps}"] = {"forward": milliseconds(partial(forward, tile), 20)}
        if tile_rows * columns > 4096:
            continue
        for programs in (256, 512, 1024, 2048):
            tile = launches.KernelTile(tile_rows, columns, warps, programs)
            results[f"{key} variant {tile_rows}x{warps}x{programs}"] = {
                "backward": milliseconds(partial(backward, tile), 20),
                "with bias": milliseconds(partial(backward, tile, bias_dtype="float32"), 20),
            }


def time_gelu(rows, width, dtype, results, variants):
    generator = torch.Generator().manual_seed(2)
    x, gradient = (draw(generator, rows, width, dtype=dtype) for _ in range(2))
    bias, key = draw(generator, width), f"gelu {width} {_NAMES[dtype]}"
    for label, is_compiled in () if variants else PEERS:
        results[f"{key} {label}"] = time_peer(torch_gelu, [x, bias], gradient, is_compiled)
        results[f"{key} {label} without bias"] = time_peer(torch.nn.functional.gelu, [x], gradient, is_compiled)

    def forward(tile=None):
        return launches.bias_gelu(FRAMEWORK, x, bias, tile=tile)

    def backward(tile=None):
        return launches.bias_gelu_backward(FRAMEWORK, gradient, x, bias, tile=tile)

    results[f"{key} ours"] = {"forward": milliseconds(forward), "backward": milliseconds(backward)}
    if not variants:
        return
    for tile_rows, columns, warps in read_sizes(GELU_TILES):
        tile = launches.KernelTile(tile_rows, columns, warps)
        results[f"{key} variant {tile_rows}x{columns}x{warps}"] = {"forward": milliseconds(partial(forward, tile), 20)}
        for programs in (64, 128, 256, 512, 1024):
            tile = launches.KernelTile(tile_rows, columns, warps, programs)
            results[f"{key} variant {tile_rows}x{columns}x{warps}x{programs}"] = {
                "backward": milliseconds(partial(backward, tile), 20)
            }


def time_host(results):
    """What the host takes to start the kernels, at a size at which the GPU is never late."""
    generator = torch.Generator().manual_seed(3)
    x, weight, shift = draw(generator, 8, 64), draw(generator, 64), draw(generator, 64)
    saved = launches.add_norm(FRAMEWORK, x, x, (weight, shift), epsilon=EPSILON, dtype="float32")
    calls = {
        "add_norm": lambda: launches.add_norm(FRAMEWORK, x, x, (weight, shift), epsilon=EPSILON, dtype="float32"),
        "add_norm_backward": lambda: launches.add_norm_backward(FRAMEWORK, saved, x, x, weight, branch_dtype="float32"),
        "bias_gelu": lambda: launches.bias_gelu(FRAMEWORK, x, weight),
        "bias_gelu_backward": lambda: launches.bias_gelu_backward(FRAMEWORK, x, x, weight),
        "torch add and layer_norm": lambda: torch_norm(x, x, weight, shift),
    }
    results["host us"] = {name: host_microseconds(call) for name, call in calls.items()}
    launch = launches.launch
    launches.launch = launch_by_triton
    results["host us, each launch looked up by Triton"] = {
        name: host_microseconds(call) for name, call in calls.items() if "torch" not in name
    }
    launches.launch = launch


def launch_by_triton(kernel, blocks, more_blocks, tensors, names, numbers, constants, warps):
    kernel[blocks, more_blocks, 1](*tensors, *numbers, *constants, num_warps=warps)


def show(results):
    width = max(map(len, results))
    for name, values in results.items():
        print(f"{name:{width}}  " + "  ".join(f"{what} {value:.4f}" for what, value in values.items()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=smallest.sized(50432, 8))
    parser.add_argument("--widths", default=smallest.sized("192,768", "16"))
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--seconds", type=float, default=480, help="no more variants after this time")
    options = parser.parse_args()
    began = time.monotonic()
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else "Triton's interpreter"
    print(f"torch {torch.__version__}, Triton {triton.__version__}, {device}")
    worst, repeats = check_all(), check_repeats()
    print(f"bit-equal in repeated runs: {repeats}  ({time.monotonic() - began:.0f} s)", flush=True)
    results = {}
    time_host(results)
    functorch_config.donated_buffer = False  # the same graph is differentiated several times
    cases = [
        (width, dtype) for width in map(int, options.widths.split(",")) for dtype in (torch.bfloat16, torch.float32)
    ]
    for width, dtype in cases:
        time_norm(options.rows, width, dtype, results, False)
        time_gelu(options.rows, 4 * width, dtype, results, False)
    show(results)
    print(f"({time.monotonic() - began:.0f} s)", flush=True)
    for width, dtype in cases if options.variants else []:
        for function, size in ((time_norm, width), (time_gelu, 4 * width)):
            if time.monotonic() - began > options.seconds:
                break
            found = {}
            function(options.rows, size, dtype, found, True)
            found = {name: value for name, value in found.items() if "variant" in name}
            show(found)
            print(f"({time.monotonic() - began:.0f} s)", flush=True)
            results.update(found)
    print("RESULT " + json.dumps({"worst": worst, "bit_equal": repeats, "ms": results}))


if __name__ == "__main__":
    main()
