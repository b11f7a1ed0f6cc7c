"""What each speed-up of our own is worth end to end on a CPU: with it over without it, interleaved, on one core.

- pages: images/s from shards of decoded images over shards of JPEGs of the same size
- RandAugment's loops (rand-m9-mstd0.5-inc1): images/s over Pillow's operations
- fused branches: training steps/s of ViT-Ti/16, Swin-T and PVTv2-B0 over the same fast layers one by one

A speed-up below 1.10 does not earn its lines. Needs scikit-image and scikit-learn, which have the photographs.
"""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import image_pipeline
from photographs import write_folder
from rounds import Spread, interleave, print_machine, print_result, ratios, table, timed_training_step
from smallest import sized

NETWORKS = {"ViT-Ti/16": "vit_tiny_patch16_224", "Swin-T": "swin_tiny_patch4_window7_224", "PVTv2-B0": "pvtv2_b0"}


@contextlib.contextmanager
def replaced(owner: Any, **others: Any) -> Iterator[None]:
    """Attributes of a module or class, replaced for a while."""
    before = {name: getattr(owner, name) for name in others}
    for name, other in others.items():
        setattr(owner, name, other)
    try:
        yield
    finally:
        for name, other in before.items():
            setattr(owner, name, other)


def without(measure: Callable[[], float], owner: Any, **others: Any) -> Callable[[], float]:
    def measured() -> float:
        with replaced(owner, **others):
            return measure()

    return measured


def loaders(folder: Path) -> dict[str, tuple[Callable[[], float], Callable[[], float]]]:
    """Speed-up -> images/s with it and without."""
    from paddlevit_dist.extensions.cpu_kernels.transforms import CompiledTrainingTransform
    from paddlevit_dist.images.transforms.crops import TrainingTransform

    photos, shards, pages, cache = (folder / name for name in ("photos", "shards", "pages", "cache"))
    image_pipeline.prepare(photos, shards, "--shorter_side", "320")
    image_pipeline.prepare(photos, pages, "--shorter_side", "320", "--store", "pages")
    augment = ["TRAIN.RAND_AUGMENT", image_pipeline.RAND_AUGMENT]
    jpegs = image_pipeline.our_round(shards, cache, 0, dataset="tar")
    decoded = image_pipeline.our_round(pages, cache, 0, dataset="tar")
    augmented = image_pipeline.our_round(photos, cache, 0, *augment)
    return {
        "pages": (decoded, jpegs),
        "RandAugment's loops": (
            augmented,
            without(augmented, CompiledTrainingTransform, augmented=TrainingTransform.augmented),
        ),
    }


def steps(batch_size: int) -> dict[str, tuple[Callable[[], float], Callable[[], float]]]:
    """Network -> training steps/s with fused branches and without."""
    from paddlevit_dist import create_model
    from paddlevit_dist.extensions.cpu_kernels import blocks

    made = {}
    for name, variant in NETWORKS.items():
        model = create_model(variant)
        model.train()
        step = timed_training_step(model, model.parameters(), batch_size)

        def rate(step: Callable[[], float] = step) -> float:
            return 1.0 / min(step() for _ in range(3))

        plain = {"_fits": lambda *_: False, "_fits_reduction": lambda *_: False}
        made[f"fused branches, {name}"] = (rate, without(rate, blocks, **plain))
    return made


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=sized(300, 20))
    parser.add_argument("--batch-size", type=int, default=sized(16, 1))
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    image_pipeline.restart_tuned()
    print_machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cache").mkdir()
        write_folder(folder / "photos", options.images)
        compared = {**loaders(folder), **steps(options.batch_size)}
        contenders = {f"{name}{side}": one[k] for name, one in compared.items() for k, side in enumerate(("", " off"))}
        values = interleave(contenders, options.rounds)
    worth = {name: ratios(values[name], values[f"{name} off"]) for name in compared}
    rows = [
        [name, *(Spread.of(values[f"{name}{side}"]).text() for side in ("", " off")), worth[name].text()]
        for name in compared
    ]
    table("images/s or steps/s, median [low, high]", ["speed-up", "with", "without", "ratio"], rows)
    print_result({name: spread.median for name, spread in worth.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
