"""Whole updates of ViTPose and decoding of its heatmaps, ours against transformers', on one thread; see keypoints.py.

python benchmarks/vitpose_training.py --serve {ours,torch} {vitpose_simple,vitpose_classic}
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rounds
from clock import time_call
from contenders import OURS, compare_clocks, serve, take_turns
from rounds import Spread
from smallest import sized
from training_updates import get_torch_update

TORCH = "torch"
SIMPLE, CLASSIC = "vitpose_simple", "vitpose_classic"
NAMES = {SIMPLE: "vitpose_small_simple", CLASSIC: "vitpose_small"}
POINTS, HEIGHT, WIDTH = 13, sized(256, 32), sized(192, 32)  # people and hands that are drawn
BATCH, DEPTH = sized(8, 2), sized(12, 1)
CLIP = 1.0
PERSONS, KERNEL = sized(200, 4), 11


def our_step(name: str, folder: Path) -> Callable[[], Any]:
    """The engine's step with the task of a run, on one batch of drawn figures that its own collate function made."""
    from engine_steps import build_step

    words = ["TASK", "keypoint_heatmaps", "-dataset=drawn_figures", "DATA.SHAPES.TRAIN", "20", "DATA.SHAPES.VAL", "2"]
    words += ["MODEL.TYPE", "vitpose", "MODEL.NAME", NAMES[name], "MODEL.DEPTH", str(DEPTH), f"-batch_size={BATCH}"]
    words += ["HEATMAPS.CROP_SIZE", f"[{HEIGHT}, {WIDTH}]", "TRAIN.GRAD_CLIP", str(CLIP), "-num_workers=0"]
    return build_step([*words, "TRAIN.OPTIMIZER.NAME", "AdamW"], folder, BATCH)


def their_step(name: str) -> Callable[[], Any]:
    """A plain loop of torch: transformers' ViTPose, the mean squared error, clipping and the fused AdamW."""
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    backbone = transformers.VitPoseBackboneConfig(
        hidden_size=384,
        num_hidden_layers=DEPTH,
        num_attention_heads=12,
        image_size=[HEIGHT, WIDTH],
        patch_size=[16, 16],
        out_indices=[DEPTH],
    )
    config = transformers.VitPoseConfig(
        backbone_config=backbone,
        num_labels=POINTS,
        use_simple_decoder=name == SIMPLE,
        scale_factor=4,
    )
    model: Any = transformers.VitPoseForPoseEstimation(config).train()
    random = np.random.default_rng(0)
    images = torch.from_numpy(random.standard_normal((BATCH, 3, HEIGHT, WIDTH)).astype(np.float32))
    shape = (BATCH, POINTS, HEIGHT // 4, WIDTH // 4)
    targets = torch.from_numpy(random.random(shape).astype(np.float32))
    weights = torch.from_numpy((random.random((BATCH, POINTS, 1, 1)) > 0.3).astype(np.float32))
    loss = lambda: ((model(images).heatmaps - targets) ** 2 * weights).mean()  # noqa: E731
    return get_torch_update(model.parameters(), loss, clip=CLIP, weight_decay=0.05)


def measure_updates(name: str, number: int, peer_python: str | None) -> dict[str, float]:
    """Updates of both in turns, each a process of its own with the variables of a tuned run."""
    taken = take_turns(__file__, {OURS: sys.executable, TORCH: peer_python}, [name], number)
    title = f"{NAMES[name]}: an update of {BATCH} crops of {HEIGHT} x {WIDTH}, one thread, {number} rounds"
    return compare_clocks(title, taken, name)


def measure_decoding(number: int) -> dict[str, float]:
    """Heatmaps of many objects decoded by us, and by transformers' steps: SciPy's filter on each map, then NumPy."""
    from scipy.ndimage import gaussian_filter

    from paddlevit_dist.images.keypoints.heatmaps.decoding import decode_heatmaps

    random = np.random.default_rng(0)
    rows, columns = np.arange(64)[:, None], np.arange(48)
    y, x = random.uniform(3, 60, (PERSONS, 17, 1, 1)), random.uniform(3, 44, (PERSONS, 17, 1, 1))
    maps = np.exp(-((rows - y) ** 2 + (columns - x) ** 2) / 8).astype(np.float32)
    found: dict[str, np.ndarray] = {}

    def ours() -> float:
        began = time.process_time()
        found[OURS] = decode_heatmaps(maps, KERNEL)[0]
        return time.process_time() - began

    def plain() -> float:
        began = time.process_time()
        flat = maps.reshape(-1, 64, 48)
        smooth = np.stack([gaussian_filter(each, 0.8, radius=KERNEL // 2) for each in flat])
        logs = np.pad(np.log(np.clip(smooth, 0.001, 50)), ((0, 0), (1, 1), (1, 1)), mode="edge").astype(np.float64)
        place = flat.reshape(len(flat), -1).argmax(axis=1)
        r, c, n = place // 48 + 1, place % 48 + 1, np.arange(len(flat))
        at = lambda down, across: logs[n, r + down, c + across]  # noqa: E731
        slope = np.stack([at(0, 1) - at(0, -1), at(1, 0) - at(-1, 0)], axis=1) / 2
        mixed = (at(1, 1) - at(0, 1) - at(1, 0) + 2 * at(0, 0) - at(0, -1) - at(-1, 0) + at(-1, -1)) / 2
        curves = at(0, 1) - 2 * at(0, 0) + at(0, -1), at(1, 0) - 2 * at(0, 0) + at(-1, 0)
        hessian = np.stack([curves[0], mixed, mixed, curves[1]], axis=1).reshape(-1, 2, 2)
        step = np.linalg.solve(hessian, slope[:, :, None])[:, :, 0]
        found["plain"] = (np.stack([c - 1, r - 1], axis=1) - step).reshape(PERSONS, 17, 2)
        return time.process_time() - began

    seconds = rounds.interleave({"ours": ours, "SciPy and NumPy": plain}, number)
    if np.abs(found[OURS] - found["plain"]).max() > 1e-3:
        raise SystemExit("the places differ")
    title = f"Decoding of {PERSONS} x 17 heatmaps of 64 x 48 cells"
    rounds.print_table(
        title, ["", "processor, ms"], [[way, Spread.of(each).text(1e3, 1)] for way, each in seconds.items()]
    )
    ratio = rounds.ratios(seconds["SciPy and NumPy"], seconds["ours"])
    print(f"SciPy and NumPy / ours: {ratio.text()}")
    return {"decoding_times_as_fast": ratio.median}


if __name__ == "__main__":
    _, _, library, name = sys.argv
    with tempfile.TemporaryDirectory(prefix="benchmark_") as folder:
        step = our_step(name, Path(folder)) if library == OURS else their_step(name)
        serve(lambda: time_call(step))
