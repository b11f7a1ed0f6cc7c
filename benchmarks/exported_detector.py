"""RT-DETR-R18 at 640 pixels in onnxruntime: our export beside transformers' network as torch's exporters write it.

    python benchmarks/exported_detector.py --peer-python /path/to/an/interpreter/with/torch/transformers/onnxscript

The interpreter draws weights for transformers' network, lets its batch norms see noise, so that cells differ, and
writes it by both exporters of torch; the weights become ours by ``export``. Scores of all files must agree. Then all
take turns in onnxruntime, with pictures of the network's size: theirs ends with logits and boxes, ours with labels,
boxes in pixels and scores; "pixels" takes uint8 and normalizes them, too. Without an interpreter ours are measured
alone, with weights of our own. Needs paddle2onnx and onnxruntime; on a GPU, with --cuda, onnxruntime-gpu.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from smallest import lacks, need, sized

SERVES = "--torch-peer"
SIDE, ROUNDS, WARM_UP, CLASSES, AT_ONCE = sized(640, 160), sized(15, 1), 2, 80, sized(4, 1)
NAME, WEIGHTS = "rtdetr_r18vd", "weights"
OURS, PIXELS, FUSED, HALF = "ours", "ours, pixels", "ours, fused", "ours, fused, float16"
WORDS = {
    OURS: ["-format=onnx"],
    PIXELS: ["-format=onnx", "-input=uint8"],
    FUSED: ["-format=onnxruntime"],
    HALF: ["-format=onnxruntime", "-precision=float16"],
}
THEIRS = {"transformers, TorchScript": False, "transformers, dynamo": True}
LARGEST_DIFFERENCE = 1e-4  # of scores


def serve(batch: int) -> None:
    """Write transformers' network, for a batch of this size, and its weights into this folder; run by the peer's
    interpreter."""
    import torch
    from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrResNetConfig

    torch.manual_seed(0)
    backbone = RTDetrResNetConfig(
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    network = RTDetrForObjectDetection(
        RTDetrConfig(
            backbone_config=backbone,
            encoder_in_channels=[128, 256, 512],
            hidden_expansion=0.5,
            decoder_layers=3,
            num_labels=CLASSES,
            freeze_backbone_batch_norms=False,
        )
    ).train()
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = None  # the mean of what it has seen
    images = torch.rand(2, 3, SIDE, SIDE)

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            found = self.network(images)
            return found.logits, found.pred_boxes

    with torch.no_grad():
        network(images)
        plain = Plain().eval()
        np.savez(f"{WEIGHTS}.npz", **{name: value.numpy() for name, value in network.state_dict().items()})
        names = {"input_names": ["images"], "output_names": ["logits", "boxes"]}
        for is_dynamo in THEIRS.values():
            given = {"external_data": False} if is_dynamo else {"opset_version": 17}
            torch.onnx.export(
                plain, (images[:1].repeat(batch, 1, 1, 1),), f"{is_dynamo}.onnx", dynamo=is_dynamo, **names, **given
            )


def write(folder: Path, options: argparse.Namespace) -> dict[str, Path]:
    """The files of all contenders."""
    import children

    environment = {**children.clean_environment(), "OMP_NUM_THREADS": "2"}
    weights, files = folder / f"{WEIGHTS}.npz", {}
    if options.peer_python:
        command = [options.peer_python, os.path.abspath(__file__), SERVES, str(options.batch)]
        children.run(["env", "-C", str(folder), *command], environment, timeout=280)
        files = {name: folder / f"{is_dynamo}.onnx" for name, is_dynamo in THEIRS.items()}
    else:
        import paddle

        from paddlevit_dist.core.tasks.model_factory import create_model

        weights = folder / f"{WEIGHTS}.pdparams"
        paddle.save(create_model(NAME, num_classes=CLASSES).state_dict(), str(weights))
    for name, words in WORDS.items():
        if name == HALF and not options.cuda:
            continue
        files[name] = folder / f"{name}.onnx"
        command = [sys.executable, "-m", "paddlevit_dist", "export", str(weights), str(files[name].with_suffix(""))]
        children.run([*command, f"-model={NAME}", f"-image_size={SIDE}", *words], environment, timeout=280)
    return files


def contender(file: Path, options: argparse.Namespace) -> tuple[Callable[[], float], np.ndarray]:
    """What computes a batch of pictures and returns the seconds of one turn; and the scores of them, best first."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = options.threads, 3
    provider = "CUDAExecutionProvider" if options.cuda else "CPUExecutionProvider"
    session = onnxruntime.InferenceSession(str(file), settings, providers=[provider])
    if session.get_providers()[0] != provider:
        raise lacks("onnxruntime-gpu and a GPU for --cuda")
    pixels = np.random.default_rng(0).integers(0, 256, (options.batch, SIDE, SIDE, 3)).astype(np.uint8)
    images, *others = session.get_inputs()
    taken: Any = pixels
    if "uint8" not in images.type:
        kind = np.float16 if "float16" in images.type else np.float32
        taken = np.ascontiguousarray((pixels / 255).astype(kind).transpose(0, 3, 1, 2))
    feeds = {images.name: taken, **{one.name: np.full((options.batch, 2), SIDE) for one in others}}
    found = dict(zip([one.name for one in session.get_outputs()], session.run(None, feeds)))
    scores = found.get("scores")
    if scores is None:
        scores = -np.sort(-1 / (1 + np.exp(-found["logits"].reshape(options.batch, -1))))[:, : found["logits"].shape[1]]

    def turn() -> float:
        started = time.perf_counter()
        for _ in range(AT_ONCE):
            session.run(None, feeds)
        return (time.perf_counter() - started) / AT_ONCE

    return turn, scores


def main() -> None:
    if SERVES in sys.argv[1:]:
        serve(int(sys.argv[-1]))
        return
    need("onnxruntime", "paddle2onnx")
    import onnxruntime
    import rounds

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-python", default="", help="an interpreter that has torch, transformers and onnxscript")
    parser.add_argument("--cuda", action="store_true", help="on a GPU")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of onnxruntime on the CPU")
    options = parser.parse_args()
    rounds.print_machine(cpu_only=not options.cuda)
    print(f"onnxruntime {onnxruntime.__version__}, {'CUDA' if options.cuda else f'{options.threads} thread(s)'}")
    with tempfile.TemporaryDirectory() as folder:
        made = {name: contender(file, options) for name, file in write(Path(folder), options).items()}
    scores = {name: found for name, (_, found) in made.items()}
    for name in THEIRS if options.peer_python else ():
        apart = float(np.abs(scores[name] - scores[OURS]).max())
        print(f"scores of {name} and ours differ by at most {apart:.1e}")
        if apart > LARGEST_DIFFERENCE:
            raise SystemExit("these are not the same networks: nothing was measured")
    seconds = rounds.interleave({name: turn for name, (turn, _) in made.items()}, ROUNDS, WARM_UP)
    rows = [[name, rounds.Spread.of(values).text(1e3, 1)] for name, values in seconds.items()]
    rounds.print_table(f"{NAME}, {SIDE} pixels, batch {options.batch}, {ROUNDS} rounds", ["graph", "ms a batch"], rows)
    others = [name for name in seconds if name != OURS]
    ratios = {f"{name} / ours": rounds.ratios(seconds[name], seconds[OURS]) for name in others}
    rounds.print_table(
        "time over that of ours, above 1 ours is faster", ["", ""], [[n, r.text()] for n, r in ratios.items()]
    )
    rounds.print_result({name: ratio.median for name, ratio in ratios.items()})


if __name__ == "__main__":
    main()
