"""Point Transformer V3 on a CPU, one thread: cost by number of voxels, and blocks against those of torch's layers.

    python benchmarks/sorted_points.py [--peer-python /path/to/an/interpreter/with/torch]

- cost: what a loader process computes for a room of 10,000 to a million voxels (orders, patches, coarse cells, pairs of
  the convolutions), and an update of a network of two levels, patches of 128. Linear cost is a power of 1.
- blocks: an update of four blocks of 64 channels and 4 heads, each with another curve, on a room of 20,000 voxels. The
  peer (``sorted_points_peer.py``) computes as the authors' code does without flash attention. Its convolution is a
  product for each offset of the kernel with rows gathered before and added after; with "linear", a linear layer stands
  in for the convolution on both sides. Orders, patches and pairs are ready before, on both sides.
"""

import functools
import itertools
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import numpy as np
import rounds
from contenders import serve, started_peer
from smallest import sized

ROUNDS, SIZES = 5, sized((10_000, 100_000, 1_000_000), (500, 1_000))
VOXELS, CHANNELS, HEADS, BLOCKS = sized(20_000, 500), 64, 4, 4
PATCH_SIZES = sized((128, 1024), (32,))
SERVES = "--torch-peer"
TWO_LEVELS = {"strides": (2,), "encoder_depths": (1, 1), "encoder_channels": (16, 32), "encoder_heads": (1, 2)}
TWO_LEVELS |= {"decoder_depths": (1,), "decoder_channels": (16,), "decoder_heads": (1,), "patch_size": 128}


def get_update(
    model: Any, compute_loss: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """Forward, backward and AdamW, in seconds of ``clock``."""
    import paddle

    optimizer = paddle.optimizer.AdamW(1e-4, parameters=model.parameters())

    def update() -> float:
        started = clock()
        compute_loss().backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
        return clock() - started

    return update


def measure_cost() -> dict[str, float]:
    """Processor seconds of loader and update by number of voxels, and the power with which they grow."""
    import paddle
    from voxel_rooms import room

    from paddlevit_dist import create_model
    from paddlevit_dist.points.sparse import Plan, SparseTensor, build_plan

    model = create_model("ptv3", num_classes=20, in_channels=3, **TWO_LEVELS)
    seconds: dict[str, list[float]] = {"loader": [], "update": []}
    for number in SIZES:
        coordinates = np.random.default_rng(0).permutation(room(number))
        batch: dict[str, Any] = {}
        build_plan(coordinates[:100], model.plan_spec(), num_scenes=1)  # compiles

        def load(coordinates: np.ndarray = coordinates, batch: dict[str, Any] = batch) -> float:
            started = time.process_time()
            batch.update(build_plan(coordinates, model.plan_spec(), num_scenes=1))
            return time.process_time() - started

        repeats = 5 if number < SIZES[-1] else 2
        seconds["loader"].append(min(load() for _ in range(repeats)))
        x = SparseTensor(paddle.randn([number, 3]), plan=Plan.of_batch(batch))
        labels = paddle.randint(0, 20, [number])
        loss = lambda x=x, labels=labels: paddle.nn.functional.cross_entropy(model(x), labels)  # noqa: E731
        update = get_update(model, loss, time.process_time)
        seconds["update"].append(min(update() for _ in range(repeats)))
    cells = [[f"{n:,}", *(f"{seconds[part][i]:.3f}" for part in seconds)] for i, n in enumerate(SIZES)]
    rounds.print_table("Processor seconds by number of voxels, least of 2 to 5", ["voxels", "loader", "update"], cells)
    result = {f"{part} s, {SIZES[-1]} voxels": values[-1] for part, values in seconds.items()}
    ends = math.log(SIZES[-1] / SIZES[-2])
    return result | {f"{part} power": math.log(values[-1] / values[-2]) / ends for part, values in seconds.items()}


def get_blocks(patch_size: int, has_convolution: bool, file: Path) -> Callable[[], float]:
    """An update of our blocks; what the peer needs goes to ``file``."""
    import paddle
    from sparse_peers import pairs_by_offset
    from voxel_rooms import room

    from paddlevit_dist import create_model
    from paddlevit_dist.points.ptv3.blocks import SerializedLevel
    from paddlevit_dist.points.sparse import Plan, build_plan
    from paddlevit_dist.points.sparse.coordinate_plan import CoordinatePlan, MapKey

    class LinearStandIn(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.linear = paddle.nn.Linear(CHANNELS, CHANNELS)

        def forward(self, x: Any) -> Any:
            return x.with_features(self.linear(x.features))

    none: dict[str, Any] = {"strides": (), "decoder_depths": (), "decoder_channels": (), "decoder_heads": ()}
    sizes = {"encoder_depths": (BLOCKS,), "encoder_channels": (CHANNELS,), "encoder_heads": (HEADS,)}
    model = create_model("ptv3", num_classes=0, **none, **sizes, patch_size=patch_size, drop_path=0.0)
    stage = model.enc.enc0
    if not has_convolution:
        for number in range(BLOCKS):
            getattr(stage, f"block{number}").cpe[0] = LinearStandIn()
    coordinates = room(VOXELS)
    plan = Plan.of_batch(build_plan(coordinates, model.plan_spec(), num_scenes=1))
    level = SerializedLevel(plan, model.tables[0], has_grid=False)
    patches = [level.patches(number, None) for number in range(BLOCKS)]
    pairs = [np.stack(pair) for pair in pairs_by_offset(CoordinatePlan(coordinates), MapKey(1, 1, 3))]
    rows, places = (np.stack([getattr(each, name).numpy() for each in patches]) for name in ("rows", "places"))
    ends = np.cumsum([pair.shape[1] for pair in pairs])
    np.savez(file, rows=rows, places=places, pairs=np.concatenate(pairs, axis=1), ends=ends)
    x = paddle.randn([VOXELS, CHANNELS])
    return get_update(stage, lambda: model._run_blocks(stage, x, x, level).square().mean())


def measure_blocks(peer_python: str) -> dict[str, float]:
    """Let blocks and their peer take turns."""
    result, cells = {}, []
    with started_peer(__file__, peer_python, SERVES) as peer, tempfile.TemporaryDirectory() as folder:
        for patch_size, has_convolution in itertools.product(PATCH_SIZES, (True, False)):
            file = Path(folder) / "tables.npz"
            contenders = {"ours": get_blocks(patch_size, has_convolution, file)}
            if peer is not None:
                case = [str(file), patch_size, has_convolution]
                contenders["torch"] = lambda case=case: peer(case=case)
            seconds = rounds.interleave(contenders, ROUNDS, warm_up=2)
            name = f"patches of {patch_size}, {'convolution' if has_convolution else 'linear'}"
            cells.append([name, *(rounds.Spread.of(values).text(1e3, 0) for values in seconds.values())])
            if peer is not None:
                ratio = rounds.ratios(seconds["torch"], seconds["ours"])
                cells[-1].append(ratio.text())
                result[f"{name}: torch / ours"] = ratio.median
    header = ["", "ours", "torch", "torch / ours"][: len(cells[0])]
    rounds.print_table(f"An update of {BLOCKS} blocks, ms", header, cells)
    return result


def serve_torch() -> None:
    """The torch peer."""
    from sorted_points_peer import get_update as get_torch_update

    build = functools.lru_cache(1)(lambda *case: get_torch_update(*case, CHANNELS, HEADS))
    serve(lambda case: build(*case)())


def measure(peer_python: str) -> None:
    """Measure both."""
    rounds.print_machine()
    blocks = measure_blocks(peer_python)
    if not peer_python:
        print("no --peer-python: not compared with torch")
    rounds.print_result({**blocks, **measure_cost()})


if __name__ == "__main__":
    children.run_with_torch_peer(__file__, __doc__.splitlines()[0], SERVES, serve_torch, measure, timeout=1200)
