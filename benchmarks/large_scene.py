"""Memory and time of the evaluation of one scene with millions of points, in blocks.

    python benchmarks/large_scene.py                       # 20 million points, many minutes on two cores
    python benchmarks/large_scene.py --points=2000000
    python benchmarks/large_scene.py --points=1000000 --network=ptv3 --votes=100 --views=13 --block_m=0

A made-up terrain with trees, 500 points to the square meter, is written as a prepared store, and evaluated with
MinkUNet14A in blocks of 12 meters that overlap by 1; or as a whole (``--block_m=0``), with votes of all points in
several directions. Memory is the sum over all processes of what each has for itself and of its part of what several
share (PSS), at its highest.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from process_memory import get_memory
from rounds import print_machine, print_result
from smallest import sized

from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.data.scene_store import write_lines, write_scene

ROOT = Path(__file__).resolve().parent.parent
CLASSES = ("ground", "tree")
DENSITY = 500  # points to the square meter of ground


def make_store(folder: Path, points: int) -> None:
    """A square terrain of hills with a tree on every 30 square meters, a quarter of all points."""
    generator = np.random.default_rng(0)
    edge = (0.75 * points / DENSITY) ** 0.5
    xyz = np.empty((points, 3), np.float32)
    xyz[:, :2] = generator.random((points, 2), np.float32) * np.float32(edge)
    is_tree = generator.random(points) < 0.25
    stems = (generator.random((int(edge**2 / 30) + 1, 2)) * edge).astype(np.float32)
    crowns = generator.normal(0, 1, (int(is_tree.sum()), 3)).astype(np.float32)
    xyz[is_tree, :2] = stems[generator.integers(0, len(stems), len(crowns))] + crowns[:, :2]
    xyz[:, 2] = np.sin(xyz[:, 0] / 15) * np.cos(xyz[:, 1] / 20) * 3
    xyz[is_tree, 2] += 5 + crowns[:, 2]
    xyz -= xyz.mean(axis=0, dtype=np.float64).astype(np.float32)
    rgb = generator.integers(0, 256, (points, 3), dtype=np.uint8)
    scene = Scene(xyz, rgb, is_tree.astype(np.int16), np.full(points, -100, np.int16), "terrain")
    (folder / "scenes").mkdir(parents=True)
    write_scene(folder / "scenes" / "terrain.scene", scene)
    write_lines(folder / "classes.txt", list(CLASSES))
    write_lines(folder / "val.txt", ["terrain"])


def evaluate(folder: Path, arguments: argparse.Namespace) -> tuple[float, float]:
    """Seconds of the whole command, and most bytes of memory."""
    import paddle

    from paddlevit_dist import create_model

    weights = folder / "weights.pdparams"
    paddle.save(create_model(arguments.network, num_classes=len(CLASSES), in_channels=3).state_dict(), str(weights))
    command = [sys.executable, str(ROOT / "main_multi_gpu.py"), "-cfg=minkunet34c_scannet", "-dataset=scenes"]
    command += [f"-data_path={folder}", f"-output={folder / 'output'}", "-eval", f"-pretrained={weights}", "-ngpus=1"]
    command += [
        "-num_workers=1",
        "-batch_size_eval=1",
        "MODEL.NAME",
        arguments.network,
        "POINTS.FEATURES",
        "[rgb]",
        "EVALUATION.INTERVAL",
        "off",
    ]
    command += ["DATA.VOXEL_SIZE_M", str(arguments.voxel_m), "POINTS.FRAGMENT_SIZE_M", str(arguments.block_m or None)]
    command += ["POINTS.TEST_VOTES", str(arguments.votes), "POINTS.TEST_ROTATIONS", str(arguments.views)]
    started, most = time.monotonic(), 0.0
    with subprocess.Popen(command, start_new_session=True) as process:
        while process.poll() is None:
            most = max(most, get_memory([process.pid]).pss)
            time.sleep(0.3)
    if process.returncode:
        raise SystemExit(f"the evaluation ended with code {process.returncode}")
    return time.monotonic() - started, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=sized(20_000_000, 20_000))
    parser.add_argument("--network", default=sized("minkunet14a", "minkunet_tutorial"))
    parser.add_argument("--voxel_m", type=float, default=0.1)
    parser.add_argument("--block_m", type=float, default=12.0)
    parser.add_argument("--votes", type=int, default=1, help="POINTS.TEST_VOTES")
    parser.add_argument("--views", type=int, default=1, help="POINTS.TEST_ROTATIONS")
    arguments = parser.parse_args()
    print_machine()
    with tempfile.TemporaryDirectory() as folder:
        make_store(Path(folder) / "store", arguments.points)
        seconds, most = evaluate(Path(folder) / "store", arguments)
    memory_gb = most / 2**30
    print(f"{arguments.points:,} points, {arguments.network}: {seconds:.0f} s, at most {memory_gb:.2f} GB")
    print_result({"seconds": seconds, "memory_gb": memory_gb})


if __name__ == "__main__":
    main()
