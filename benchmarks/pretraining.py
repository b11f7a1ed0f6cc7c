"""Whole updates of learning without labels, ours against torch, on one thread.

    python benchmarks/pretraining.py [--peer-python PYTHON] [--only NAME ...] [--rounds 9]

- mae_512x8, mae_128x2: a masked autoencoder of ViT-Ti/16, 8 images of 224 pixels with 75 % masked, and a decoder of 8
  blocks of width 512 or of 2 blocks of width 128 on both sides. The peer is transformers' ViTMAEForPreTraining
- dino: self-distillation of ViT-Ti/16, 4 images with 2 views of 224 and 4 of 96 pixels, 65,536 outputs. The peer is a
  loop of lightly's head, loss and average with timm's ViT, which joins views of one size as DINO's authors do
- share: the update of mae_128x2 as a share of a supervised one of ViT-Ti/16 with the same images, on each side

An update is forward pass, loss, backward pass, clipping, AdamW, and the teacher. Ours is the engine's own step with the
task of a run; its images are uint8, which it normalizes itself, while the peer's are normalized before. PYTHON has
torch, transformers, timm and lightly. Each side is a process of its own, with the variables of a tuned run.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rounds
from clock import time_call
from contenders import OURS, serve, take_turns
from PIL import Image
from pretraining_sizes import CLIP, DECODERS, DINO, MODEL, OUTPUTS, SIDE, SMALL_SIDE, SMALL_VIEWS, SUPERVISED, get_batch
from rounds import Spread
from smallest import sized

TORCH = "torch"
SHARE = "share"
SMALL_DECODER = "mae_128x2"
PARTS = {
    "mae_512x8": ("mae_512x8",),
    "mae_128x2": ("mae_128x2",),
    DINO: (DINO,),
    SHARE: (SMALL_DECODER, SUPERVISED),
}

# ---- ours ----------------------------------------------------------------------------------------------------


def our_words(name: str) -> list[str]:
    """The settings of a run, without its folders."""
    words = [f"-image_size={SIDE}", f"-batch_size={get_batch(name)}", "-accum_iter=1", "-num_workers=0"]
    words += ["MODEL.DROPOUT", "0.0", "TRAIN.GRAD_CLIP", str(CLIP), *sized([], ["MODEL.DEPTH", "1"])]
    if name == SUPERVISED:
        return [f"-cfg={MODEL}", "-dataset=folder", *words]
    words += ["MODEL.NAME", MODEL, "DATA.VAL_FRACTION", "0.5"]
    if name == DINO:
        words += ["SELF_DISTILLATION.SMALL_VIEWS", str(SMALL_VIEWS), "SELF_DISTILLATION.SMALL_SIZE", str(SMALL_SIDE)]
        return ["-cfg=dino_vit_small_patch16", *words, "SELF_DISTILLATION.OUTPUTS", str(OUTPUTS)]
    for key, value in zip(("WIDTH", "DEPTH", "HEADS"), DECODERS[name]):
        words += [f"MASKED_AUTOENCODER.DECODER_{key}", str(value)]
    return ["-cfg=mae_vit_base_patch16_224", *words]


def our_step(name: str, folder: Path) -> Callable[[], Any]:
    """The engine's step with a run's task, on one batch of noise that its own collate function has made."""
    from engine_steps import build_step

    images, run = folder / name / "images", folder / name / "run"
    generator, number = np.random.default_rng(0), get_batch(name)
    for place in range(4 * number):
        file = images / ("train", "val")[place % 2] / f"class {place // 2 % 2}" / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)).save(file)
    if name != SUPERVISED:
        images = images / "train"
    run.mkdir()
    # Of the second epoch, where nothing is frozen any more.
    return build_step([*our_words(name), f"-data_path={images}"], run, number, epoch=2)


# ---- both ----------------------------------------------------------------------------------------------------


def serve_updates(library: str, name: str) -> None:
    """A contender's process: a line for each update that is asked for, with its seconds."""
    with tempfile.TemporaryDirectory(prefix="benchmark_") as folder:
        if library == OURS:
            steps = {part: our_step(part, Path(folder)) for part in PARTS[name]}
        else:
            from pretraining_peer import get_step

            steps = {part: get_step(part) for part in PARTS[name]}
        serve(lambda: {part: time_call(step) for part, step in steps.items()})


def measure(name: str, options: argparse.Namespace) -> dict[str, float]:
    taken = take_turns(__file__, {OURS: sys.executable, TORCH: options.peer_python}, [name], options.rounds)
    result, header, rows = {}, [], []
    for clock, suffix in enumerate(("", "_processor")):
        seconds = {
            library: {part: [answer[part][clock] for answer in answers] for part in PARTS[name]}
            for library, answers in taken.items()
        }
        found, values = (_get_shares if name == SHARE else _get_ratios)(name, seconds)
        header += [f"{word}, processor" if clock else word for word in found[""]]
        rows = [[*row, *found[row[0]]] for row in rows or [[library] for library in seconds]]
        result.update({f"{key}{suffix}": value for key, value in values.items()})
    what = f"{SMALL_DECODER} as a share of a supervised update" if name == SHARE else f"{name}: an update"
    title = f"{what} of {get_batch(PARTS[name][-1])} images, one thread, {options.rounds} rounds"
    rounds.print_table(title, ["", *header], rows)
    return result


Cells = dict[str, list[str]]  # of the table's columns, under "", and of each library's row


def _get_ratios(name: str, seconds: dict[str, dict[str, list[float]]]) -> tuple[Cells, dict[str, float]]:
    ours, cells, result = seconds[OURS][name], {"": ["ms", "times ours"]}, {}
    for library, parts in seconds.items():
        ratio = rounds.ratios(parts[name], ours)
        cells[library] = [Spread.of(parts[name]).text(1e3, 0), ratio.text()]
        if library != OURS:
            result[f"{name}_over_{library}"] = ratio.median
    return cells, result


def _get_shares(name: str, seconds: dict[str, dict[str, list[float]]]) -> tuple[Cells, dict[str, float]]:
    cells, result = {"": ["ms", "supervised, ms", "share"]}, {}
    for library, parts in seconds.items():
        share = rounds.ratios(*(parts[part] for part in PARTS[name]))
        cells[library] = [*(Spread.of(parts[part]).text(1e3, 0) for part in PARTS[name]), share.text(1, 3)]
        result[f"share_of_supervised_{library}"] = share.median
    return cells, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default="", help="an interpreter with torch, transformers, timm and lightly")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=sized(9, 1))
    parser.add_argument("--serve", nargs=2, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve_updates(*options.serve)
        return
    rounds.print_machine()
    if not options.peer_python:
        print("no --peer-python: measured without torch")
    rounds.print_result({key: value for name in options.only for key, value in measure(name, options).items()})


if __name__ == "__main__":
    main()
