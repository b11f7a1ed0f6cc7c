"""Milliseconds per stage of one scene of 150,000 points: our pipeline and the plain one, with equal results.

    python benchmarks/scene_stages.py [STORE]            # needs SciPy; a store of scene_memory.py, or a new one

Both do the same steps with the same random numbers on one core, interleaved; ``scene_memory.py`` runs this first. The
crop is to 120,000 points. "Read" is a memory-mapped scene with its checksum against pickled float arrays.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plain_scenes
from numpy.random import default_rng
from rounds import Spread, interleave, print_machine, print_result, print_table, ratios
from sized_scenes import MEAN_POINTS, make_store, read_plain
from smallest import sized

ROUNDS = 7
CROPPED = sized(120_000, 1_000)
ELASTIC = ((6, 40.0), (20, 160.0))

Stage = tuple[str, Callable[[], Any], Callable[[], Any]]  # name, plain, ours


def stages(folder: Path) -> list[Stage]:
    """Each step with what the step before has given, plain and ours."""
    from paddlevit_dist.core import settings
    from paddlevit_dist.points.data.augment import apply_matrix
    from paddlevit_dist.points.data.elastic import displace_in_slabs, grid_shape
    from paddlevit_dist.points.data.scene_store import read_scene, scene_file
    from paddlevit_dist.points.instances.input import (
        InstanceSamples,
        ShiftToOrigin,
        VoxelPlacement,
        build_steps,
        compute_instance_table,
        crop,
        remove_gaps,
    )

    path = scene_file(folder, "scene00000")
    scene = read_scene(path, "scene00000")
    xyz, colors, semantic, instance = plain = read_plain(folder, 0)
    assert len(xyz) == MEAN_POINTS
    matrix = plain_scenes.matrix(default_rng(1))
    generator = default_rng(2)
    voxels = (xyz @ matrix) * 50
    noise = [generator.standard_normal((3, *grid_shape(voxels, step))).astype(np.float32) for step, _ in ELASTIC]

    def distorted(displaced: Callable[..., np.ndarray]) -> np.ndarray:
        moved = voxels
        for (step, magnitude), given in zip(ELASTIC, noise):
            moved = displaced(moved, given, step, magnitude)
        return moved

    def displace(points: np.ndarray, given: np.ndarray, step: float, magnitude: float) -> np.ndarray:
        return displace_in_slabs(points, given.shape[1:], lambda first, last: given[:, first:last], step, magnitude)

    moved = distorted(displace)
    moved = moved - moved.min(axis=0)
    instances = scene.instance.astype(np.int32)
    kept = crop(moved, CROPPED, 512, default_rng(3))[1]
    plain_batch = [plain_scenes.prepare(plain, 10**6, default_rng(4))] * 4
    words = ["TASK", "pointgroup", "MODEL.NAME", "pointgroup", "-dataset=scannet", f"-data_path={folder}"]
    samples = InstanceSamples(None, build_steps(settings.load(words).values.POINTS, 50.0, is_training=True), "mean")
    batch = [samples.build_sample(scene, default_rng(4))] * 4
    placed = VoxelPlacement(50.0, (-1.0, 1.0))(scene, None)._replace(xyz=moved)

    return [
        ("read", lambda: read_plain(folder, 0), lambda: read_scene(path, "scene00000")),
        ("map and scale", lambda: (xyz @ matrix) * 50, lambda: apply_matrix(xyz.astype(np.float64), matrix) * 50),
        ("elastic, both passes", lambda: distorted(plain_scenes.distort), lambda: distorted(displace)),
        ("offset", lambda: moved - moved.min(axis=0), lambda: ShiftToOrigin()(placed, None).xyz),
        (
            "crop",
            lambda: plain_scenes.crop(moved, CROPPED, default_rng(3)),
            lambda: crop(moved, CROPPED, 512, default_rng(3)),
        ),
        (
            "labels without gaps",
            lambda: plain_scenes.relabel(instance[kept]),
            lambda: remove_gaps(instances[kept]),
        ),
        (
            "instance information",
            lambda: plain_scenes.instance_info(xyz, instance)[0],
            lambda: compute_instance_table(xyz, instances).gather_for_points(instances),
        ),
        (
            "whole scene",
            lambda: plain_scenes.prepare(plain, 10**6, default_rng(4)),
            lambda: samples.build_sample(scene, default_rng(4)),
        ),
        ("collate, of a batch of 4", lambda: plain_scenes.merge(plain_batch), lambda: plain_scenes.merge_ours(batch)),
    ]


EQUAL = ("map and scale", "elastic, both passes", "offset", "crop", "labels without gaps", "instance information")


def check(found: list[Stage]) -> float:
    """Largest difference of the results of any stage that makes arrays."""
    largest = 0.0
    for name, plain, ours in found:
        if name in EQUAL:
            results = [result if isinstance(result, tuple) else (result,) for result in (plain(), ours())]
            for one, other in zip(*results):
                largest = max(largest, float(np.abs(one.astype(np.float64) - other).max()))
    return largest


def seconds(function: Callable[[], Any], share: int) -> float:
    """Processor time of one call, divided by ``share``: it does not count what others do meanwhile."""
    started = time.process_time()
    function()
    return (time.process_time() - started) / share


def measure(folder: Path) -> dict[str, float]:
    """Print the table and return what belongs into the last line."""
    found = stages(folder)
    difference = check(found)
    contenders = {}
    for name, plain, ours in found:
        share = 4 if name.startswith("collate") else 1
        contenders[f"{name}/plain"] = lambda f=plain, n=share: seconds(f, n)
        contenders[f"{name}/ours"] = lambda f=ours, n=share: seconds(f, n)
    times = interleave(contenders, ROUNDS)
    total = {
        kind: [sum(values) for values in zip(*(times[f"{n}/{kind}"] for n in ("read", "whole scene", _COLLATE)))]
        for kind in ("plain", "ours")
    }
    rows = []
    for name in [name for name, *_ in found] + ["total"]:
        plain, ours = (total[kind] if name == "total" else times[f"{name}/{kind}"] for kind in ("plain", "ours"))
        rows.append([name, Spread.of(plain).text(1e3, 1), Spread.of(ours).text(1e3, 1), ratios(plain, ours).text()])
    rows[-1][0] = "total: read + whole scene + collate"
    print_table("ms of one core per scene of 150,000 points", ["stage", "plain", "ours", "plain / ours"], rows)
    print(f"  largest difference of the results of a stage: {difference:.1e}")
    return {
        "scene_ms": 1e3 * Spread.of(total["ours"]).median,
        "scene_speedup": ratios(total["plain"], total["ours"]).median,
        "elastic_speedup": ratios(times["elastic, both passes/plain"], times["elastic, both passes/ours"]).median,
        "largest_difference_in_1e_5": 1e5 * difference,
    }


_COLLATE = "collate, of a batch of 4"


def main() -> None:
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # processor time would count threads that wait by spinning
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    print_machine()
    if sys.argv[1:]:
        print_result(measure(Path(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_store(Path(folder) / "store", 1)
        print_result(measure(Path(folder) / "store"))


if __name__ == "__main__":
    main()
