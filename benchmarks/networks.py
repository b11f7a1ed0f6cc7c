"""A training step of the networks for volumes and point clouds, ours against torch, on one thread.

    python benchmarks/networks.py [--peer-python PYTHON] [--only {landmarks,volumes,minkunet}] [--rounds 7]

- landmarks: the U-Net of ``configs/landmark_unet3d.yaml`` (width 8, depth 3) on 2 crops of 32 x 40 x 40, squared error
  of 8 dense maps, AdamW; the peers are the same network of torch's own layers, and ours of Paddle's alone
- volumes: the same network without gradients on a window of 64 x 64 x 64, as evaluation and prediction do
- minkunet: MinkUNet34C on 8,000 voxels of a synthetic room, cross-entropy, AdamW. No library of sparse convolutions
  for torch can be installed for CPUs; the peer is the same network by gather, product and scatter-add in torch
  (``sparse_peers.py``), with the pairs of neighbors given

PYTHON has torch and NumPy. Each side is a process of its own, with the variables of a tuned run and one thread.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import rounds
from clock import time_call
from contenders import OURS, serve, take_turns
from rounds import Spread
from smallest import sized
from training_updates import get_paddle_update, get_torch_update

PLAIN, TORCH = "Paddle's layers", "torch"
LANDMARKS, VOLUMES, MINKUNET = "landmarks", "volumes", "minkunet"
WIDTH, DEPTH, MAPS, BATCH = 8, 3, 8, 2
CROP, WINDOW = sized(((32, 40, 40), (1, 1, 64, 64, 64)), ((16, 16, 16), (1, 1, 16, 16, 16)))
VOXELS, CLASSES = sized(8_000, 300), 20
DEPTHS_34, WIDTHS_34C = (2, 3, 4, 6, 2, 2, 2, 2), (32, 64, 128, 256, 256, 128, 96, 96)


def volumes() -> tuple[np.ndarray, np.ndarray]:
    """Volumes (batch, 1, depth, height, width) and maps (batch, maps, depth, height, width), float32."""
    generator = np.random.default_rng(0)
    return tuple(generator.standard_normal((BATCH, n, *CROP)).astype(np.float32) for n in (1, MAPS))


# ---- ours ----------------------------------------------------------------------------------------------------


def our_step(name: str, folder: Path) -> Callable[[], Any]:
    import paddle

    from paddlevit_dist import create_model

    paddle.seed(0)
    if name != MINKUNET:
        model = create_model("unet3d", num_classes=MAPS, width=WIDTH, depth=DEPTH)
        if name == VOLUMES:
            model.eval()
            window = paddle.to_tensor(np.ones(WINDOW, np.float32))
            return paddle.no_grad()(lambda: model(window))
        volume, target = map(paddle.to_tensor, volumes())

        def loss() -> Any:
            return (model(volume) - target).square().mean()

    else:
        from voxel_rooms import room

        from paddlevit_dist.points.sparse import Plan, SparseTensor, build_plan

        model = create_model("minkunet34c", num_classes=CLASSES, in_channels=3)
        packed = build_plan(room(VOXELS), model.plan_spec())
        features, labels = paddle.randn([VOXELS, 3]), paddle.randint(0, CLASSES, [VOXELS])

        def loss() -> Any:
            logits = model(SparseTensor(features, plan=Plan.of_batch(packed)))
            return paddle.nn.functional.cross_entropy(logits, labels)

    return get_paddle_update(model, loss, 1e-3)


# ---- torch ---------------------------------------------------------------------------------------------------


def torch_unet() -> Any:
    """The network of ``paddlevit_dist/volumes/unet3d.py`` of torch's layers."""
    import torch
    from torch import nn

    def change(inputs: int, outputs: int, kernel: int, stride: int) -> Any:
        convolution = nn.Conv3d(inputs, outputs, kernel, stride, (kernel - 1) // 2, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm3d(outputs))

    class Block(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.first, self.second = change(channels, channels, 3, 1), change(channels, channels, 3, 1)

        def forward(self, x: Any) -> Any:
            return torch.relu(x + self.second(torch.relu(self.first(x))))

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [WIDTH * 2**level for level in range(DEPTH + 1)]
            pairs = list(zip(widths, widths[1:]))
            self.stem, self.head = change(1, WIDTH, 3, 1), nn.Conv3d(WIDTH, MAPS, 1)
            self.encoder = nn.ModuleList([Block(channels) for channels in widths])
            self.decoder = nn.ModuleList([Block(channels) for channels in widths[:-1]])
            self.down = nn.ModuleList([change(a, b, 2, 2) for a, b in pairs])
            self.up = nn.ModuleList([change(b, a, 1, 1) for a, b in pairs])

        def forward(self, x: Any) -> Any:
            x, skips = torch.relu(self.stem(x)), []
            for level, down in zip(self.encoder, self.down):
                skips.append(level(x))
                x = torch.relu(down(skips[-1]))
            x = self.encoder[DEPTH](x)
            for level in reversed(range(DEPTH)):
                x = nn.functional.interpolate(self.up[level](x), scale_factor=2, mode="nearest")
                x = self.decoder[level](torch.relu(x + skips[level]))
            return self.head(x)

    return UNet()


def torch_step(name: str, folder: Path) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if name == MINKUNET:
        return torch_minkunet(folder)
    model = torch_unet()
    if name == VOLUMES:
        model.eval()
        window = torch.ones(WINDOW)
        return torch.no_grad()(lambda: model(window))
    volume, target = map(torch.from_numpy, volumes())
    return get_torch_update(model.parameters(), lambda: (model(volume) - target).square().mean(), 1e-3)


def write_pairs(folder: Path) -> None:
    """The pairs of neighbors that MinkUNet needs, as a process without our compiled loops reads them."""
    from sparse_peers import pairs_by_offset
    from voxel_rooms import room

    from paddlevit_dist.points.sparse.coordinate_plan import CoordinatePlan, MapKey

    plan = CoordinatePlan(room(VOXELS))
    arrays: dict[str, np.ndarray] = {}
    for stride in (1, 2, 4, 8, 16):
        keys = [MapKey(stride, stride, 3), *([MapKey(stride, 2 * stride, 2)] if stride < 16 else [])]
        for key in [*keys, *([MapKey(1, 1, 5)] if stride == 1 else [])]:
            for offset, pair in enumerate(pairs_by_offset(plan, key)):
                arrays[f"{tuple(key)}/{offset}"] = np.stack(pair)
        arrays[f"rows/{stride}"] = np.array(len(plan.level(stride).order))
    np.savez(folder / "pairs.npz", **arrays)


def torch_minkunet(folder: Path) -> Callable[[], Any]:
    import torch
    from sparse_peers import TorchPeer

    saved = np.load(folder / "pairs.npz")

    class Peer(TorchPeer):
        def pairs(self, plan: Any, key: Any) -> list[tuple[Any, Any]]:
            names = [name for name in saved.files if name.startswith(f"{tuple(key)}/")]
            arrays = [saved[f"{tuple(key)}/{offset}"] for offset in range(len(names))]
            return [tuple(torch.from_numpy(rows.copy()) for rows in pair) for pair in arrays]

    plan = SimpleNamespace(level=lambda stride: SimpleNamespace(order=range(int(saved[f"rows/{stride}"]))))
    return Peer(1).network(plan, DEPTHS_34, WIDTHS_34C)


# ---- both ----------------------------------------------------------------------------------------------------


def measure(name: str, options: argparse.Namespace) -> dict[str, float]:
    from paddlevit_dist.extensions.cpu_kernels.accelerate import PLAIN_LAYERS

    pythons = {OURS: sys.executable, PLAIN: None if name == MINKUNET else sys.executable, TORCH: options.peer_python}
    with tempfile.TemporaryDirectory(prefix="benchmark_") as folder:
        if name == MINKUNET:
            write_pairs(Path(folder))
        times = take_turns(__file__, pythons, [name, folder], options.rounds, 1, {PLAIN: {PLAIN_LAYERS: "1"}})
    rows = [
        [library, Spread.of(taken).text(1e3, 0), rounds.ratios(taken, times[OURS]).text()]
        for library, taken in times.items()
    ]
    what = "a forward pass" if name == VOLUMES else "a training step"
    rounds.print_table(f"{name}: {what}, one thread, {options.rounds} rounds", ["", "ms", "times ours"], rows)
    result = {f"{name}_ms": 1e3 * Spread.of(times[OURS]).median}
    for library, word in ((PLAIN, "plain"), (TORCH, "torch")):
        if library in times:
            result[f"{name}_over_{word}"] = rounds.ratios(times[library], times[OURS]).median
    return result


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", metavar="PYTHON", help="interpreter with torch; without it: ours alone")
    parser.add_argument("--only", choices=(LANDMARKS, VOLUMES, MINKUNET))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        library, name, folder = options.serve
        step = (torch_step if library == TORCH else our_step)(name, Path(folder))
        step()
        serve(lambda: time_call(step)[0])
        return
    rounds.print_machine()
    if not options.peer_python:
        print("no --peer-python: measured without torch")
    result: dict[str, float] = {}
    for name in [options.only] if options.only else [LANDMARKS, VOLUMES, MINKUNET]:
        result.update(measure(name, options))
    rounds.print_result(result)


if __name__ == "__main__":
    main()
