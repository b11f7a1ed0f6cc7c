"""Points per second from scenes to what a network reads: quantize, collate, and the coordinate plan.

    python benchmarks/voxelize.py

Scenes are embedded rooms of about 150,000 points each, voxels of 2 cm, as for ScanNet. Contenders, one core each:

- quantize: ``sparse_quantize`` with features, labels and the inverse map, against ``np.unique(axis=0)`` with the same
  results (but voxels in sorted order, and labels without a look for conflicts)
- collate: ``sparse_collate``, against stacking columns and concatenating
- all: both one after the other
- plan: ``build_plan`` for MinkUNet14A of the same batch, against a training step of that network with all cores, which
  it hides behind in a loader process

Ratios are taken within a round.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import children
import numpy as np
from rounds import Spread, interleave, print_machine, print_result, print_table, ratios
from smallest import sized

ROUNDS, STEP_ROUNDS = 15, 7
SCENES, POINTS, SPACING_M, VOXEL_SIZE_M = sized((4, 150_000, 0.02, 0.02), (1, 3_000, 0.1, 0.02))
NUM_CLASSES = 20

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def scenes() -> list[Arrays]:
    """float32 xyz, float32 colors and int16 classes of each scene."""
    from paddlevit_dist.points.data.augment import CropToBudget
    from paddlevit_dist.points.data.rooms import generate_room

    generator = np.random.default_rng(0)
    made = []
    for index in range(3, 3 + 5 * SCENES, 5):  # living rooms, the largest
        room = CropToBudget(POINTS)(generate_room(index, (0, 0), SPACING_M, "room"), generator)
        made.append((room.xyz, room.rgb.astype(np.float32) / np.float32(127.5) - np.float32(1), room.semantic))
    return made


def quantize(scene: Arrays) -> Arrays:
    from paddlevit_dist.points import sparse_quantize

    return sparse_quantize(*scene, return_inverse=True, quantization_size=VOXEL_SIZE_M)[:3]


def quantize_with_unique(scene: Arrays) -> Arrays:
    xyz, features, labels = scene
    voxels = np.floor(xyz / np.float32(VOXEL_SIZE_M)).astype(np.int32)
    unique, index, _ = np.unique(voxels, axis=0, return_index=True, return_inverse=True)
    return unique, features[index], labels[index]


def collate(parts: list[Arrays]) -> Any:
    from paddlevit_dist.points import sparse_collate

    return sparse_collate(*zip(*parts))


def collate_by_stacking(parts: list[Arrays]) -> Any:
    numbered = [np.hstack([np.full((len(part[0]), 1), number), part[0]]) for number, part in enumerate(parts)]
    rest = (np.concatenate([part[position] for part in parts]) for position in (1, 2))
    return np.concatenate(numbered).astype(np.int32), *rest


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def data_contenders(batch: list[Arrays]) -> dict[str, Callable[[], float]]:
    """Seconds for the whole batch of each way."""
    parts = [quantize(scene) for scene in batch]
    works: dict[str, Callable[[], Any]] = {
        "quantize": lambda: [quantize(scene) for scene in batch],
        "quantize, np.unique": lambda: [quantize_with_unique(scene) for scene in batch],
        "collate": lambda: collate(parts),
        "collate, stacking": lambda: collate_by_stacking(parts),
        "all": lambda: collate([quantize(scene) for scene in batch]),
        "all, np.unique": lambda: collate_by_stacking([quantize_with_unique(scene) for scene in batch]),
    }
    return {name: (lambda work=work: seconds(work)) for name, work in works.items()}


def network_contenders(scene: Arrays) -> dict[str, Callable[[], float]]:
    """Seconds for one scene: its plan, and a training step on it."""
    import paddle
    import paddle.nn.functional as F

    from paddlevit_dist import create_model
    from paddlevit_dist.points.sparse import Plan, SparseTensor, build_plan

    model = create_model("minkunet14a", num_classes=NUM_CLASSES, in_channels=3)
    spec = model.plan_spec()
    coordinates, features, labels = collate([quantize(scene)])
    packed = build_plan(coordinates, spec, 1)
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    inputs, targets = paddle.to_tensor(features), paddle.to_tensor(labels.astype(np.int64))

    def step() -> None:
        logits = model(SparseTensor(inputs, plan=Plan.of_batch(packed)))
        F.cross_entropy(logits, targets, ignore_index=-100).backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)

    return {
        "plan": lambda: seconds(lambda: build_plan(coordinates, spec, 1)),
        "step": lambda: seconds(step),
    }


def main() -> None:
    if os.environ.get("PADDLEVIT_DIST_ENVIRONMENT") != "benchmark":
        os.execve(sys.executable, [sys.executable, *sys.argv], children.tuned_environment(1))
    print_machine()
    batch = scenes()
    points = sum(len(xyz) for xyz, _, _ in batch)
    voxels = sum(len(quantize(scene)[0]) for scene in batch)
    taken = interleave(data_contenders(batch), ROUNDS)
    taken.update(interleave(network_contenders(batch[0]), STEP_ROUNDS))
    counts = {name: len(batch[0][0]) if name in ("plan", "step") else points for name in taken}
    print_table(
        f"{SCENES} scenes, {points:,} points, {voxels:,} voxels",
        ["way", "million points/s", "ms"],
        [
            [
                name,
                Spread.of([counts[name] / value / 1e6 for value in values]).text(),
                Spread.of(values).text(1e3, 1),
            ]
            for name, values in taken.items()
        ],
    )
    faster = {
        name: ratios(taken[f"{name}, {peer}"], taken[name]).median
        for name, peer in (("quantize", "np.unique"), ("collate", "stacking"), ("all", "np.unique"))
    }
    print_result(
        {
            **{f"{name}_times_as_fast": value for name, value in faster.items()},
            "quantize_million_points_per_second": points / Spread.of(taken["quantize"]).median / 1e6,
            "plan_million_points_per_second": counts["plan"] / Spread.of(taken["plan"]).median / 1e6,
            "plan_share_of_step": ratios(taken["plan"], taken["step"]).median,
        }
    )


if __name__ == "__main__":
    main()
