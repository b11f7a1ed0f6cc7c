"""Sparse convolution on a CPU: one layer and a training step of MinkUNet14A, on voxels of synthetic rooms.

    python benchmarks/sparse_conv.py [--only layers|others|network]

Contenders: ours; gather, product and scatter-add with torch (if it is installed); the products of existing pairs alone,
the limit of any way that multiplies pairs; and ``paddle.sparse`` at a size at which it ends. torch and Paddle live in
processes of their own that stay for all rounds and answer one request at a time, so that neither's threads disturb the
other; both have the environment of a tuned run and all cores. Ratios are taken within a round. ``others`` are the
layers that are no plain convolution, over their bare products: ``sparse_layers.py`` says what these are.
"""

import argparse
import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

import children
import rounds
from contenders import ProcessGroup, serve
from rounds import Spread
from smallest import sized
from sparse_layers import CHANNELS as OTHERS_CHANNELS
from sparse_layers import NAMES, SCENES, Layers
from sparse_peers import NUM_CLASSES, TorchPeer, paddle_sparse, pairs_by_offset, products_alone, seconds
from training_updates import get_paddle_update
from voxel_rooms import room

from paddlevit_dist.points.sparse.coordinate_plan import CoordinatePlan, MapKey

ROUNDS = 7
SIZES, CHANNELS = sized(((51_000, 151_000), (32, 64)), ((1_000,), (32,)))
OTHERS_VOXELS = sized(100_000, 1_000)
SMALL = sized(8_000, 1_000)  # voxels at which paddle.sparse is measured
OURS, TORCH, LIMIT, PADDLE_SPARSE = "ours", "torch", "products alone", "paddle.sparse"


def our_layer(plan: Any, channels: int) -> dict[str, Callable[[], float]]:
    """Forward, forward + backward, and the memory of the latter, of one 3 x 3 x 3 convolution."""
    import paddle

    from paddlevit_dist.points.sparse import Convolution, Plan, SparseTensor

    convolution = Convolution(channels, channels, 3)
    coordinates = plan.level(1).coordinates
    shared = Plan.of_coordinates(coordinates)
    features = paddle.randn([len(coordinates), channels])
    features.stop_gradient = False
    slope = paddle.randn([len(coordinates), channels])

    def forward() -> float:
        with paddle.no_grad():
            return seconds(lambda: convolution(SparseTensor(features, plan=shared)))

    def run() -> None:
        convolution(SparseTensor(features, plan=shared)).features.backward(slope)

    def clear() -> None:
        features.clear_gradient(set_to_zero=False)
        convolution.kernel.clear_gradient(set_to_zero=False)

    def both() -> float:
        taken = seconds(run)
        clear()
        return taken

    def memory() -> float:
        """Largest memory of a forward and backward pass beyond input, result and gradients, over the features'."""
        core, run_ = paddle.base.core, run
        run_()
        clear()
        before = core.host_memory_stat_current_value("Allocated", 0)
        core.host_memory_stat_reset_peak_value("Allocated", 0)
        run_()
        peak = core.host_memory_stat_peak_value("Allocated", 0)
        clear()
        bytes_of_features = features.size * 4
        kept = 2 * bytes_of_features + convolution.kernel.size * 4  # the result, two gradients
        return (peak - before - kept) / bytes_of_features

    return {"forward": forward, "both": both, "memory": memory}


def our_network(plan: Any) -> Callable[[], float]:
    """A training step of MinkUNet14A, from the packed plan as it comes from the loader."""
    import paddle

    from paddlevit_dist import create_model
    from paddlevit_dist.points.sparse import Plan, SparseTensor, build_plan

    model = create_model("minkunet14a", num_classes=NUM_CLASSES, in_channels=3)
    coordinates = plan.level(1).coordinates
    packed = build_plan(coordinates, model.plan_spec())
    features = paddle.randn([len(coordinates), 3])
    labels = paddle.randint(0, NUM_CLASSES, [len(coordinates)])

    def loss() -> Any:
        return paddle.nn.functional.cross_entropy(model(SparseTensor(features, plan=Plan.of_batch(packed))), labels)

    update = get_paddle_update(model, loss, 1e-3)
    return lambda: seconds(update)


def answer_requests(contender: str) -> None:
    """A process of one library."""
    threads = len(os.sched_getaffinity(0))
    plan = functools.lru_cache(None)(lambda voxels: CoordinatePlan(room(voxels)))
    others = functools.lru_cache(None)(lambda voxels: Layers(room(voxels)))

    @functools.lru_cache(None)
    def measures(kind: str, voxels: int, channels: int) -> dict[str, Callable[[], float]]:
        if kind == TORCH:
            peer = TorchPeer(threads)
            if not channels:
                return {"step": peer.network(plan(voxels))}
            return dict(zip(("forward", "both"), peer.layer(plan(voxels), channels)))
        if kind == LIMIT:
            return dict(zip(("forward", "both"), products_alone(plan(voxels), channels, threads)))
        if kind in NAMES:
            return others(voxels).measures(kind)
        if kind == PADDLE_SPARSE:
            return {"both": paddle_sparse(plan(voxels), channels)}
        return our_layer(plan(voxels), channels) if channels else {"step": our_network(plan(voxels))}

    def answer(kind: str, voxels: int, channels: int, way: str) -> float:
        if kind == "neighbors":
            return sum(len(rows) for rows, _ in pairs_by_offset(plan(voxels), MapKey(1, 1, 3))) / voxels
        return measures(kind, voxels, channels)[way]()

    serve(answer)


class Processes:
    """The contenders' processes, by the library they use."""

    def __init__(self) -> None:
        self._running: dict[str, ProcessGroup] = {}

    def ask(self, kind: str, voxels: int, channels: int = 0, way: str = "step") -> float:
        """Let the process of a contender make one measurement."""
        library = TORCH if kind == TORCH else OURS
        if library not in self._running:
            command = [sys.executable, __file__, "--contender", library]
            self._running[library] = ProcessGroup(command, [children.tuned_environment(1)], 600)
            self._running[library].wait_until_ready()
        return self._running[library].ask(kind=kind, voxels=voxels, channels=channels, way=way)[0]

    def end(self) -> None:
        for group in self._running.values():
            group.end()


def measure_layers(processes: Processes, peers: list[str]) -> dict[str, float]:
    """Times of one layer, table and ratios."""
    rows, result = [], {}
    for voxels in SIZES:
        neighbors = processes.ask("neighbors", voxels)
        for channels in CHANNELS:
            times = {
                way: rounds.interleave(
                    {kind: functools.partial(processes.ask, kind, voxels, channels, way) for kind in peers}, ROUNDS
                )
                for way in ("forward", "both")
            }
            memory = processes.ask(OURS, voxels, channels, "memory")
            name = f"layer_{voxels // 1000}k_{channels}"
            result[f"{name}_memory_over_features"] = memory
            ours = times["both"][OURS]
            for kind, key in ((TORCH, "speedup_over_torch"), (LIMIT, "time_over_products")):
                if kind in peers:
                    pair = (times["both"][kind], ours) if kind == TORCH else (ours, times["both"][kind])
                    result[f"{name}_{key}"] = rounds.ratios(*pair).median
            for kind in peers:
                forward, both = times["forward"][kind], times["both"][kind]
                rows.append(
                    [
                        f"{voxels:,} voxels ({neighbors:.1f} of 27), {channels} channels, {kind}",
                        Spread.of(forward).text(1e3, 1),
                        Spread.of(both).text(1e3, 1),
                        rounds.ratios(both, ours).text(),
                        f"{memory:.2f}" if kind == OURS else "",
                    ]
                )
    header = ["3 x 3 x 3 convolution", "forward ms", "forward + backward ms", "times ours", "memory / features"]
    rounds.print_table(f"One layer, median of {ROUNDS} rounds [lowest, highest]", header, rows)
    return result


def measure_paddle_sparse(processes: Processes) -> dict[str, float]:
    """One layer of 32 channels at a small size."""
    contenders = {kind: functools.partial(processes.ask, kind, SMALL, 32, "both") for kind in (OURS, PADDLE_SPARSE)}
    times = rounds.interleave(contenders, 3)
    rows = [[kind, Spread.of(values).text(1e3, 1)] for kind, values in times.items()]
    rounds.print_table(f"{SMALL:,} voxels, 32 channels, 3 rounds", ["", "forward + backward ms"], rows)
    return {"layer_8k_32_speedup_over_paddle_sparse": rounds.ratios(times[PADDLE_SPARSE], times[OURS]).median}


def measure_others(processes: Processes) -> dict[str, float]:
    """Times of the layers that are no plain convolution, over their bare products."""
    rows, result = [], {}
    for name in NAMES:
        times = rounds.interleave(
            {way: functools.partial(processes.ask, name, OTHERS_VOXELS, 0, way) for way in ("ours", "bare")}, ROUNDS
        )
        ratio = rounds.ratios(times["ours"], times["bare"])
        result[f"{name}_time_over_products"] = ratio.median
        rows.append([name, *(Spread.of(times[way]).text(1e3, 1) for way in ("ours", "bare")), ratio.text()])
    header = ["forward + backward", "ours ms", "products ms", "ours / products"]
    title = f"{OTHERS_VOXELS:,} voxels in {SCENES} scenes, {OTHERS_CHANNELS} channels"
    rounds.print_table(f"{title}, median of {ROUNDS} rounds [lowest, highest]", header, rows)
    return result


def measure_network(processes: Processes, peers: list[str]) -> dict[str, float]:
    """Times of a training step."""
    rows, result = [], {}
    for voxels in SIZES:
        contenders = {kind: functools.partial(processes.ask, kind, voxels) for kind in peers}
        times = rounds.interleave(contenders, ROUNDS)
        for kind, values in times.items():
            ratio = rounds.ratios(values, times[OURS]).text()
            rows.append([f"{voxels:,} voxels, {kind}", Spread.of(values).text(digits=2), ratio])
        name = f"minkunet14a_{voxels // 1000}k"
        result[f"{name}_seconds"] = Spread.of(times[OURS]).median
        if TORCH in peers:
            result[f"{name}_speedup_over_torch"] = rounds.ratios(times[TORCH], times[OURS]).median
    header = ["MinkUNet14A, one step", "seconds", "times ours"]
    rounds.print_table(f"Training step, median of {ROUNDS} rounds [lowest, highest]", header, rows)
    return result


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("layers", "others", "network"))
    parser.add_argument("--contender", choices=(OURS, TORCH), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.contender:
        answer_requests(chosen.contender)
        return
    rounds.print_machine()
    has_torch = importlib.util.find_spec("torch") is not None
    if not has_torch:
        print("torch is not installed: measured without it")
    torch_peer = [TORCH] if has_torch else []
    result: dict[str, float] = {}
    processes = Processes()
    try:
        if chosen.only in (None, "layers"):
            result.update(measure_layers(processes, [OURS, *torch_peer, LIMIT]))
            result.update(measure_paddle_sparse(processes))
        if chosen.only in (None, "others"):
            result.update(measure_others(processes))
        if chosen.only in (None, "network"):
            result.update(measure_network(processes, [OURS, *torch_peer]))
    finally:
        processes.end()
    rounds.print_result(result)


if __name__ == "__main__":
    main()
