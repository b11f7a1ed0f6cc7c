"""Fused Triton kernels of ``extensions/gpu_kernels`` on torch's tensors, against torch's own and compiled ones.

    python benchmarks/gpu_kernels.py [--rows 50432] [--widths 192,768] [--variants]

Attention, from packed q, k and v, is compared with torch's fused one and with its plain products in TF32.

Needs torch with CUDA and Triton, and no Paddle. First all results are compared with float64. Then milliseconds, by CUDA
events, after the L2 cache was overwritten: the median of 30. ``--variants`` times other divisions into programs, too.
Dropout is compared with what NumPy drops by the same seeds. The host's microseconds of a launch are those of a prepared
launch, and of one for which Triton looks up what it has compiled. The last line is RESULT and JSON. Without a GPU,
``--smallest`` runs Triton's interpreter.
"""

import argparse
import importlib.util
import itertools
import json
import os
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from unittest.mock import patch

import smallest

smallest.need("torch", "triton")
if smallest.IS_SMALLEST:
    os.environ["TRITON_INTERPRET"] = "1"
# Triton reads the variable when it is imported.
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch._functorch.config as functorch_config  # noqa: E402
import triton  # noqa: E402
from clock import synchronize_device  # noqa: E402

FOLDER = Path(__file__).resolve().parents[1] / "paddlevit_dist" / "extensions" / "gpu_kernels"
DEVICE = "cpu" if smallest.IS_SMALLEST else "cuda"
EPSILON = 1e-6
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
if DEVICE == "cpu":
    ROUNDING[torch.bfloat16] *= 2  # Triton's interpreter drops the bits beyond
PEERS = ("torch eager", False), ("torch compile", True)
ALLOWED = 32 * 2.0**-24  # beyond that rounding, as a share of the largest value
SHAPES = "1x1x2 3x1x7 11x3x77 16x197x192 2x25x768 1x17x1000 2x3x3072 1x2x5001 256x197x192"  # items, tokens, width
ATTENDED = "2x197x3x64 3x50x2x32 2x1x2x64 1x257x4x16 2x333x2x64 1x577x2x64"  # items, tokens, heads, channels
ATTENTION_ROUNDING = {torch.float32: 2.0**-10, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}  # TF32 as float16
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
    from gpu_kernels import attention, launches, prepared

    if DEVICE == "cuda" and not os.environ.get("GPU_KERNELS_DEFAULT_DRIVER"):
        from gpu_kernels import driver

        stream = torch._C._cuda_getCurrentRawStream
        cuda = torch.cuda
        answers = driver.DeviceAnswers(cuda.current_device, stream, cuda.get_device_capability, cuda.set_device)
        driver.use(answers)
    return attention, launches, prepared


attention, launches, prepared = load_kernels()


class Torch:
    """Torch's tensors for the launches."""

    def prepare(self, shape, dtype):
        return partial(torch.empty, shape, dtype=getattr(torch, dtype), device=DEVICE)


_NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
FRAMEWORK = Torch()
SEEDS = np.random.default_rng(8).integers(-(2**31), 2**31, 10, dtype="i4")
DROPS = launches.DropRates(1, 0.1, 0.3)


# ---- right to one rounding --------------------------------------------------------------------------------------


def mix(bits):
    """The hash of the kernels, of uint32 in uint64."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = ((bits ^ (bits >> shift)) * np.uint64(factor)) & 0xFFFFFFFF
    return bits ^ (bits >> 16)


def row_keys(site, rows):
    first, second = SEEDS.view("u4")[2 * site : 2 * site + 2].astype("u8")
    return mix(mix(np.arange(rows, dtype="u8") ^ first) ^ second)


def factors(bits, rate):
    return torch.from_numpy(np.where((bits >> 8) * 2.0**-24 >= np.float32(rate), 1 / (1 - rate), 0.0)).to(DEVICE)


def dropout(site, rows, width, rate):
    """What the kernels drop, as factors (rows, width) in float64."""
    columns = (np.arange(width, dtype="u8") * 0x9E3779B9) & 0xFFFFFFFF
    return factors(mix(row_keys(site, rows)[:, None] ^ columns), rate)


def excess(found, expected):
    """The largest difference beyond one rounding, as a share of the largest value."""
    found_wide, scale = found.double(), expected.abs().max().clamp_min(1e-30)
    difference = (found_wide - expected).abs() - ROUNDING[found.dtype] * expected.abs()
    return float((difference / scale).max()) if torch.isfinite(found_wide).all() else float("inf")


def draw(generator, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=generator, dtype=torch.float32).to(dtype).to(DEVICE)


def sum_types(dtype, total_dtype, has_branch=True, has_bias=True):
    half, wide = _NAMES[dtype], _NAMES[total_dtype]
    bias = "float32" if has_bias else None
    return launches.SumTypes(wide, half if has_branch else None, bias, "float32", wide, half)


def check_norm(items, tokens, width, dtype, total_dtype, has_branch, has_bias, drops):
    """Compare a sum with its norm, and the gradients, with float64; return the worst excess by name."""
    generator = torch.Generator().manual_seed(items * 1000 + width)
    shape = (items, tokens, width)
    x = draw(generator, *shape, dtype=total_dtype)
    branch = draw(generator, *shape, dtype=dtype) if has_branch else None
    weight, shift, bias = (draw(generator, width) for _ in range(3))
    bias, seeds = bias if has_bias else None, torch.from_numpy(SEEDS).to(DEVICE) if drops.is_any else None
    types = sum_types(dtype, total_dtype, has_branch, has_bias)
    found = launches.AddNorm(FRAMEWORK, shape, types, EPSILON, drops)(x, branch, bias, weight, shift, seeds)
    wide = [t.double().requires_grad_() for t in (x, weight, shift)]
    wide_branch = branch.double().requires_grad_() if has_branch else None
    wide_bias = bias.double().requires_grad_() if has_bias else None
    total = wide[0]
    if has_branch:
        added = wide_branch if bias is None else wide_branch + wide_bias
        if drops.rate:
            added = added * dropout(drops.site, items * tokens, width, drops.rate).reshape(shape)
        if drops.path_rate:
            added = added * factors(row_keys(drops.site + 1, items), drops.path_rate)[:, None, None]
        total = total + added
    # what is normalized is the sum as it was stored
    stored = total + (found.total.double() - total).detach()
    normal = torch.nn.functional.layer_norm(stored, (width,), wide[1], wide[2], EPSILON)
    gradients = draw(generator, *shape, dtype=dtype), draw(generator, *shape, dtype=total_dtype)
    needed = [t for t in (*wide, wide_branch, wide_bias) if t is not None]
    expected = torch.autograd.grad((normal, total), needed, [g.double() for g in gradients])
    compute_backward = launches.AddNormBackward(FRAMEWORK, shape, types, drops)
    backward = compute_backward(found.total, found.statistics, *gradients, weight, seeds)
    actual = [t for t in (backward.x, backward.weight, backward.shift, backward.branch, backward.bias) if t is not None]
    pairs = {"total": (found.total, total.detach()), "normal": (found.normal, normal.detach())}
    labels = ["x", "weight", "shift", *["branch"] * has_branch, *["bias"] * has_bias]
    pairs.update((f"d {name}", pair) for name, pair in zip(labels, zip(actual, expected)))
    return {f"{name}{', dropped' * drops.is_any}": excess(*pair) for name, pair in pairs.items()}


def check_gelu(rows, width, dtype, rate):
    """Compare a GELU and its gradient with float64; return the worst excess by name."""
    generator = torch.Generator().manual_seed(rows + width)
    x, gradient = (draw(generator, rows, width, dtype=dtype) for _ in range(2))
    bias = draw(generator, width)
    wide = [t.double().requires_grad_() for t in (x, bias)]
    out = torch.nn.functional.gelu(wide[0] + wide[1])
    out = out * dropout(0, rows, width, rate) if rate else out
    expected = out.detach(), *torch.autograd.grad(out, wide, gradient.double())
    drops, seeds = launches.DropRates(rate=rate), torch.from_numpy(SEEDS).to(DEVICE) if rate else None
    of_gelu = FRAMEWORK, [rows, width], _NAMES[dtype]
    compute = launches.BiasGelu(*of_gelu, "float32", drops)
    compute_backward = launches.BiasGeluBackward(*of_gelu, _NAMES[dtype], "float32", drops)
    actual = compute(x, bias, seeds), *compute_backward(gradient, x, bias, seeds)
    names = [f"{name}{', dropped' if rate else ''}" for name in ("gelu", "d gelu", "d gelu bias")]
    return {name: excess(*pair) for name, pair in zip(names, zip(actual, expected))}


def check_all():
    """Compare several shapes and dtypes; return the worst excess by name."""
    f32, f16, b16 = torch.float32, torch.float16, torch.bfloat16
    worst = {}
    for items, tokens, width in read_sizes(smallest.sized(SHAPES, "1x1x2 3x2x7 2x3x77")):
        is_thorough = width in (77, 192)
        none, path = launches.NO_DROPS, launches.DropRates(3, 0.0, 0.3)
        options = [(1, 1, DROPS)] + ([(0, 0, none), (1, 0, none), (1, 1, path), (1, 0, DROPS)] if is_thorough else [])
        for dtype, total_dtype in ((f32, f32), (b16, f32)) + (
            ((f16, f32), (f16, f16), (b16, b16)) if is_thorough else ()
        ):
            found = [check_gelu(items * tokens, width, dtype, rate) for rate in (0.0, 0.1)]
            found += [check_norm(items, tokens, width, dtype, total_dtype, *flags) for flags in options]
            for one in found:
                for name, value in one.items():
                    key = f"{name} {_NAMES[dtype]}/{_NAMES[total_dtype]}"
                    worst[key] = max(worst.get(key, -1.0), value)
                    if value > ALLOWED:
                        print(f"TOO LARGE {key} {items}x{tokens}x{width}: {value:.2e}")
    print(f"worst excess beyond one rounding {max(worst.values()):.2e} of the largest value (allowed {ALLOWED:.2e})")
    return worst


def attend_by_torch(packed, is_plain):
    """Attention of (items, tokens, 3 * heads, channels): (items, tokens, heads * channels)."""
    items, tokens, heads, channels = packed.shape
    q, k, v = packed.reshape(items, tokens, 3, heads // 3, channels).permute(2, 0, 3, 1, 4)
    if is_plain:
        out = (q @ k.transpose(-1, -2) * channels**-0.5).softmax(-1) @ v
    else:
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return out.transpose(1, 2).reshape(items, tokens, -1)


def check_attention():
    """Compare attention and its gradient with float64; return the worst difference, as a share, by dtype."""
    worst = {}
    for items, tokens, heads, channels in read_sizes(smallest.sized(ATTENDED, "1x3x2x16")):
        for dtype in (torch.float32, torch.float16, *[torch.bfloat16] * (DEVICE == "cuda")):
            generator = torch.Generator().manual_seed(tokens)
            packed = draw(generator, items, tokens, 3 * heads, channels, dtype=dtype)
            gradient = draw(generator, items, tokens, heads * channels, dtype=dtype)
            compute = attention.PackedAttention(FRAMEWORK, packed.shape, _NAMES[dtype], channels**-0.5)
            out, log_sums = compute(packed)
            found = out, compute.compute_gradient(packed, out, log_sums, gradient)
            wide = packed.double().requires_grad_()
            expected = attend_by_torch(wide, True)
            expected = expected.detach(), *torch.autograd.grad(expected, wide, gradient.double())
            for one, other in zip(found, expected):
                share = float((one.double() - other).abs().max() / other.abs().max().clamp_min(1e-3))
                worst[_NAMES[dtype]] = max(worst.get(_NAMES[dtype], 0.0), share)
                if not share <= ATTENTION_ROUNDING[dtype]:
                    print(f"TOO LARGE attention {_NAMES[dtype]} {items}x{tokens}x{heads}x{channels}: {share:.2e}")
    print("attention, worst difference from float64: " + ", ".join(f"{k} {v:.1e}" for k, v in worst.items()))
    return worst


def time_attention(results):
    """Time attention of ViT-Ti, ViT-B and a larger picture; torch's products of float32 are in TF32."""
    torch.backends.cuda.matmul.allow_tf32 = True
    for items, tokens, heads, channels in read_sizes(
        smallest.sized("256x197x3x64 64x197x12x64 64x577x12x64", "1x3x1x16")
    ):
        for dtype in (torch.float32, *[torch.bfloat16] * (DEVICE == "cuda")):
            generator, key = torch.Generator().manual_seed(4), f"attention {items}x{tokens}x{heads} {_NAMES[dtype]}"
            packed = draw(generator, items, tokens, 3 * heads, channels, dtype=dtype)
            gradient = draw(generator, items, tokens, heads * channels, dtype=dtype)
            for label, is_plain in (("torch fused", False), ("torch plain", True)):
                peer = partial(attend_by_torch, is_plain=is_plain)
                results[f"{key} {label}"] = time_peer(peer, [packed], gradient, False)
            compute = attention.PackedAttention(FRAMEWORK, packed.shape, _NAMES[dtype], channels**-0.5)
            out, log_sums = compute(packed)
            backward = partial(compute.compute_gradient, packed, out, log_sums, gradient)
            results[f"{key} ours"] = {
                "forward": milliseconds(partial(compute, packed)),
                "backward": milliseconds(backward),
            }
    torch.backends.cuda.matmul.allow_tf32 = False


def draw_sum(generator):
    """A sum of float32 with its norm: types, shape, statistics, sum, gradient of it, and weights of the norm."""
    rows, width = smallest.sized((50432, 192), (9, 20))
    x, gradient = (draw(generator, rows, width) for _ in range(2))
    weight, types, shape = draw(generator, width), sum_types(torch.float32, torch.float32), [rows, width]
    total, _, statistics = launches.AddNorm(FRAMEWORK, shape, types, EPSILON)(x, x, weight, weight, weight)
    return types, shape, statistics, total, gradient, weight


def check_repeats():
    """Return whether the gradients of parameters are bit-equal in ten runs."""
    types, shape, statistics, total, gradient, weight = draw_sum(torch.Generator().manual_seed(5))
    compute_backward = launches.AddNormBackward(FRAMEWORK, shape, types)
    of_gelu = launches.BiasGeluBackward(FRAMEWORK, shape, "float32", "float32", "float32")
    runs = []
    for _ in range(smallest.sized(10, 2)):
        g = compute_backward(total, statistics, gradient, gradient, weight)
        runs.append([g.weight, g.shift, g.bias, of_gelu(gradient, total, weight)[1]])
    return all(torch.equal(a, b) for run in runs for a, b in zip(run, runs[0]))


def check_joined():
    """Return whether sums of a block by one launch, and casts by one, are bit-equal to those one by one."""
    generator = torch.Generator().manual_seed(6)
    types, shape, statistics, total, gradient, weight = draw_sum(generator)
    rows, width = shape
    inner, hidden_bias = draw(generator, rows, 4 * width), draw(generator, 4 * width)
    of_gelu = FRAMEWORK, [rows, 4 * width], "float32", "float32", "float32"
    pairs = [launches.AddNormBackward(FRAMEWORK, shape, types, place=place) for place in (1, 0)]
    gelu = launches.BiasGeluBackward(*of_gelu, is_added_up=False)
    found = [one(total, statistics, each, each, weight) for one, each in zip(pairs, (gradient, total))]
    hidden = gelu(inner, inner, hidden_bias)[1]
    launches.AddUpBlock(pairs[0], gelu, pairs[1], "float32")(found[0], hidden, found[1])
    alone = launches.AddNormBackward(FRAMEWORK, shape, types)
    expected = [alone(total, statistics, each, each, weight) for each in (gradient, total)]
    same = [torch.equal(hidden, launches.BiasGeluBackward(*of_gelu)(inner, inner, hidden_bias)[1])]
    same += [torch.equal(a, b) for one, other in zip(found, expected) for a, b in zip(one, other)]
    sources = [draw(generator, size) for size in (width * width, 3 * width * width, width, 1)]
    copies = [torch.empty_like(one, dtype=torch.bfloat16) for one in sources]
    launches.CastFive([one.numel() for one in sources], ["float32"] * 4, "bfloat16")(sources, copies)
    if DEVICE == "cuda":  # Triton's interpreter cuts bfloat16
        same += [torch.equal(one.to(torch.bfloat16), copy) for one, copy in zip(sources, copies)]
    return all(same)


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
    synchronize_device()
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(smallest.sized(number, 1)):
            call()
        best = min(best, (time.perf_counter() - began) / smallest.sized(number, 1))
        synchronize_device()
    return best * 1e6


def torch_norm(x, branch, weight, shift):
    total = x + branch
    return total, torch.nn.functional.layer_norm(total, x.shape[-1:], weight, shift, EPSILON).to(branch.dtype)


def time_peer(function, inputs, gradients, is_compiled):
    """Milliseconds of a function of torch, forward and backward."""
    function = torch.compile(function, dynamic=False) if is_compiled and DEVICE == "cuda" else function
    inputs = [t.detach().requires_grad_() for t in inputs]
    forward = milliseconds(lambda: function(*inputs))
    outputs = function(*inputs)
    backward = milliseconds(lambda: torch.autograd.grad(outputs, inputs, gradients, retain_graph=True))
    return {"forward": forward, "backward": backward}


def time_norm(rows, width, dtype, results):
    """Time a sum and its norm; return the name, what launches them, and the tiles and programs to try."""
    generator = torch.Generator().manual_seed(1)
    items = max(1, rows // 197)
    shape = [items, rows // items, width]
    x, total_gradient = (draw(generator, *shape) for _ in range(2))
    branch, normal_gradient = (draw(generator, *shape, dtype=dtype) for _ in range(2))
    weight, shift, bias = (draw(generator, width) for _ in range(3))
    seeds, key = torch.from_numpy(SEEDS).to(DEVICE), f"norm {width} {_NAMES[dtype]}"
    for label, is_compiled in PEERS:
        results[f"{key} {label}"] = time_peer(
            torch_norm, [x, branch, weight, shift], (total_gradient, normal_gradient), is_compiled
        )

    def launch(what, drops=launches.NO_DROPS, has_bias=True, tile=None):
        """Return a function that computes the sum, or its gradients."""
        types = sum_types(dtype, torch.float32, True, has_bias)
        arguments = (bias if has_bias else None), weight, shift, seeds if drops.is_any else None
        compute = launches.AddNorm(FRAMEWORK, shape, types, EPSILON, drops, tile=tile if what == "forward" else None)
        if what == "forward":
            return lambda: compute(x, branch, *arguments)
        total, _, statistics = compute(x, branch, *arguments)
        compute_backward = launches.AddNormBackward(FRAMEWORK, shape, types, drops, tile=tile)
        return lambda: compute_backward(total, statistics, normal_gradient, total_gradient, weight, arguments[-1])

    cases = {
        "ours": (launches.NO_DROPS, False),
        "ours with bias, dropout and drop path": (launches.DropRates(1, 0.1, 0.1), True),
    }
    for label, case in cases.items():
        results[f"{key} {label}"] = {what: milliseconds(launch(what, *case)) for what in ("forward", "backward")}
    columns = launches._power_of_two(width)
    tiles = [(tile_rows, columns, warps) for tile_rows, warps in read_sizes(NORM_TILES)]
    return key, launch, tiles, (256, 512, 1024, 2048)


def time_gelu(rows, width, dtype, results):
    """Time a GELU, and return what ``time_norm`` does."""
    generator = torch.Generator().manual_seed(2)
    x, gradient = (draw(generator, rows, width, dtype=dtype) for _ in range(2))
    bias, key = draw(generator, width), f"gelu {width} {_NAMES[dtype]}"
    torch_gelu = torch.nn.functional.gelu
    for label, is_compiled in PEERS:
        with_bias = lambda x, bias: torch_gelu(x + bias.to(x.dtype))  # noqa: E731
        results[f"{key} {label}"] = time_peer(with_bias, [x, bias], gradient, is_compiled)
        results[f"{key} {label} without bias"] = time_peer(torch_gelu, [x], gradient, is_compiled)
    seeds, of_gelu = torch.from_numpy(SEEDS).to(DEVICE), (FRAMEWORK, [rows, width], _NAMES[dtype])

    def launch(what, rate=0.0, tile=None):
        """Return a function that computes the GELU, or its gradients."""
        drops, dropped = launches.DropRates(rate=rate), seeds if rate else None
        if what == "forward":
            compute = launches.BiasGelu(*of_gelu, "float32", drops, tile=tile)
            return lambda: compute(x, bias, dropped)
        compute = launches.BiasGeluBackward(*of_gelu, _NAMES[dtype], "float32", drops, tile=tile)
        return lambda: compute(gradient, x, bias, dropped)

    for label, rate in (("ours", 0.0), ("ours with dropout", 0.1)):
        results[f"{key} {label}"] = {what: milliseconds(launch(what, rate)) for what in ("forward", "backward")}
    return key, launch, read_sizes(GELU_TILES), (64, 128, 256, 512, 1024)


def time_variants(key, launch, tiles, counts):
    """Time other divisions into programs, those of a gradient with several most numbers of programs."""
    results = {}
    for tile in tiles:
        size, name = tile[0] * tile[1], f"{key} variant {'x'.join(map(str, tile))}"
        if size <= 8192:
            compute = launch("forward", tile=launches.KernelTile(*tile))
            results[name] = {"forward": milliseconds(compute, 20)}
        for programs in counts if size <= 4096 else ():
            compute = launch("backward", tile=launches.KernelTile(*tile, programs))
            results[f"{name}x{programs}"] = {"backward": milliseconds(compute, 20)}
    return results


def time_host(results):
    """What the host takes to start the kernels, at a size at which the GPU is never late."""
    generator = torch.Generator().manual_seed(3)
    x, weight, shift = draw(generator, 8, 64), draw(generator, 64), draw(generator, 64)
    types, of_gelu = sum_types(torch.float32, torch.float32), (FRAMEWORK, [8, 64], "float32", "float32")
    add_norm = launches.AddNorm(FRAMEWORK, [8, 64], types, EPSILON)
    add_norm_backward = launches.AddNormBackward(FRAMEWORK, [8, 64], types)
    gelu, gelu_backward = launches.BiasGelu(*of_gelu), launches.BiasGeluBackward(*of_gelu, "float32")
    total, normal, statistics = add_norm(x, x, weight, weight, shift)
    start, tensors = add_norm._start, (x, x, weight, x, weight, shift, total, normal, statistics)
    calls = {
        "launch alone": lambda: start(*tensors),
        "sum and norm": lambda: add_norm(x, x, weight, weight, shift),
        "their gradients": lambda: add_norm_backward(total, statistics, x, x, weight),
        "GELU": lambda: gelu(x, weight),
        "its gradients": lambda: gelu_backward(x, x, weight),
        "torch add and layer_norm": lambda: torch_norm(x, x, weight, shift),
    }
    results["host us"] = {name: host_microseconds(call) for name, call in calls.items()}
    calls.pop("torch add and layer_norm")
    with patch.object(prepared.PreparedLaunch, "__call__", look_up):
        looked_up = {name: host_microseconds(call) for name, call in calls.items()}
    results["host us, each launch looked up by Triton"] = looked_up


def look_up(launch, *tensors):
    """Start a kernel by Triton's own way, which finds what it has compiled by all arguments."""
    launch._kernel[(*launch._blocks, 1)](*tensors, *launch._rest, num_warps=launch._warps, enable_fp_fusion=True)


def show(results):
    width = max(map(len, results))
    for name, values in results.items():
        print(f"{name:{width}}  " + "  ".join(f"{what} {value:.4f}" for what, value in values.items()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=smallest.sized(50432, 8))
    parser.add_argument("--widths", default=smallest.sized("192,768", "16"))
    parser.add_argument("--variants", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else "Triton's interpreter"
    print(f"torch {torch.__version__}, Triton {triton.__version__}, {device}")
    worst, repeats, joined = check_all(), check_repeats(), check_joined()
    print(f"joined launches equal to single ones: {joined}; bit-equal in repeated runs: {repeats}", flush=True)
    of_attention, results = check_attention(), {}
    time_host(results)
    time_attention(results)
    functorch_config.donated_buffer = False  # the same graph is differentiated several times
    timed = []
    for width, dtype in itertools.product(map(int, options.widths.split(",")), (torch.bfloat16, torch.float32)):
        timed.append(time_norm(options.rows, width, dtype, results))
        timed.append(time_gelu(options.rows, 4 * width, dtype, results))
    show(results)
    print(f"({time.monotonic() - began:.0f} s)", flush=True)
    for case in timed if options.variants else []:
        found = time_variants(*case)
        show(found)
        results.update(found)
    checks = {"worst": worst, "attention": of_attention}
    print("RESULT " + json.dumps({**checks, "bit_equal": repeats, "joined": joined, "ms": results}))


if __name__ == "__main__":
    main()
