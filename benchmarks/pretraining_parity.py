"""Fifty updates of a masked autoencoder in float64: transformers' ViTMAEForPreTraining and ours, from the same weights.

    python benchmarks/pretraining_parity.py [--peer-python PYTHON] [--updates 50]

Both have the width and depth of ViT-Ti/16 at 96 pixels, a decoder of 2 blocks of width 128, the same crops, noise and
rates in each update, and AdamW with weight decay for the same parameters. PYTHON has torch and transformers; without it
this interpreter has to. RESULT has how many decimals of all losses and of all weights in the end are equal.
"""

import argparse
import contextlib
import io
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import children
import numpy as np
import rounds
from PIL import Image
from smallest import need, sized

SERVES = "--serve"
SIDE, PATCH, WIDTH, DEPTH, HEADS, BATCH = 96, 16, 192, sized(12, 1), 3, sized(8, 2)
DECODER_WIDTH, DECODER_DEPTH, DECODER_HEADS = 128, sized(2, 1), 4
MASK_SHARE, BETAS, DECAY, RATE, EPSILON = 0.75, (0.9, 0.95), 0.05, 1e-3, 1e-6
GIVEN, FIRST, THEIRS = "given.npz", "first.npz", "theirs.npz"
FIXED = ("position_embeddings", "decoder_pos_embed")  # tables that are not trained


# ---- transformers ------------------------------------------------------------------------------------------------


def serve(folder: Path) -> None:
    """Train transformers' network on what is given; run by the peer's interpreter."""
    import torch
    import transformers

    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    config = transformers.ViTMAEConfig(
        hidden_size=WIDTH,
        num_hidden_layers=DEPTH,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        image_size=SIDE,
        patch_size=PATCH,
        decoder_hidden_size=DECODER_WIDTH,
        decoder_num_hidden_layers=DECODER_DEPTH,
        decoder_num_attention_heads=DECODER_HEADS,
        decoder_intermediate_size=4 * DECODER_WIDTH,
        mask_ratio=MASK_SHARE,
        norm_pix_loss=True,
        layer_norm_eps=EPSILON,
    )
    model: Any = transformers.ViTMAEForPreTraining(config).double().train()
    # New networks of transformers 5.24 have zeros in place of the tables of positions, those of version 4 the tables.
    with torch.no_grad(), np.load(folder / GIVEN) as given:
        model.vit.embeddings.position_embeddings.copy_(torch.from_numpy(given["positions"]))
        model.decoder.decoder_pos_embed.copy_(torch.from_numpy(given["decoder_positions"]))
    np.savez(folder / FIRST, **_get_arrays(model))
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_kept = parameter.ndim < 2 or name.endswith(("cls_token", "mask_token"))
            (others if is_kept else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=BETAS)
    losses = []
    with np.load(folder / GIVEN) as given:
        for images, noise, rate in zip(given["images"], given["noise"], given["rates"]):
            for group in optimizer.param_groups:
                group["lr"] = float(rate)
            loss = model(pixel_values=torch.from_numpy(images), noise=torch.from_numpy(noise)).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    np.savez(folder / THEIRS, **_get_arrays(model), losses=np.array(losses))
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")


def _get_arrays(model: Any) -> dict[str, np.ndarray]:
    """The weights by the names of transformers 4, which are almost those of saved files of transformers 5."""
    from safetensors.numpy import load_file

    with tempfile.TemporaryDirectory(prefix="benchmark_") as folder:
        with contextlib.redirect_stderr(io.StringIO()):  # its progress
            model.save_pretrained(folder)
        arrays = load_file(Path(folder, "model.safetensors"))
        return {name.replace("decoder_encoder.layer.", "decoder_layers."): value for name, value in arrays.items()}


# ---- ours --------------------------------------------------------------------------------------------------------


def draw_given(updates: int) -> dict[str, np.ndarray]:
    """Crops as a training makes them of drawn images, noise of their patches, rates; fixed tables of positions."""
    from paddlevit_dist.images.pretraining.masked_autoencoder.masks import sine_cosine_table
    from paddlevit_dist.images.transforms.crops import TrainingTransform

    generator = np.random.default_rng(0)
    crop = TrainingTransform(SIDE, (0.2, 1.0), (3 / 4, 4 / 3), 0.5, 3, None)
    coarse = generator.integers(0, 255, (16, 12, 16, 3), dtype=np.uint8)
    pictures = [Image.fromarray(each).resize((160, 120), Image.Resampling.BICUBIC) for each in coarse]
    crops = [
        [crop(pictures[int(generator.integers(len(pictures)))], generator) for _ in range(BATCH)]
        for _ in range(updates)
    ]
    progress, side = np.arange(updates) / updates, SIDE // PATCH
    return {
        "positions": sine_cosine_table(WIDTH, side, side, 1)[None],
        "decoder_positions": sine_cosine_table(DECODER_WIDTH, side, side, 1)[None],
        "images": (np.array(crops) / 255.0 - 0.45) / 0.225,  # float64 (updates, batch, 3, side, side)
        "noise": generator.random((updates, BATCH, side * side)),
        "rates": RATE * np.minimum(1.0, 10 * progress + 0.1) * (1 + np.cos(np.pi * progress)) / 2,
    }


def train(given: dict[str, np.ndarray], first: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Train ours by the engine's step; returns its weights by transformers' names, and the losses."""
    import paddle

    from paddlevit_dist.core import settings
    from paddlevit_dist.core.checkpoint.load import load_weights
    from paddlevit_dist.core.engine import TrainStep
    from paddlevit_dist.core.engine.optimizer import build_optimizer, decay_groups
    from paddlevit_dist.core.engine.precision import TrainingPrecision
    from paddlevit_dist.core.tasks.step_types import StepPosition
    from paddlevit_dist.core.tasks.task_factory import make_task
    from paddlevit_dist.images.pretraining.foreign_names import name_like_transformers
    from paddlevit_dist.images.pretraining.masked_autoencoder.masks import sort_noise

    paddle.set_default_dtype("float64")
    words = ["-cfg=mae_vit_base_patch16_224", f"-image_size={SIDE}", f"-batch_size={BATCH}", "-accum_iter=1"]
    words += ["MODEL.NAME", "vit", "MODEL.PATCH_SIZE", str(PATCH), "MODEL.EMBED_DIM", str(WIDTH)]
    words += ["MODEL.DEPTH", str(DEPTH), "MODEL.NUM_HEADS", str(HEADS)]
    sizes = {"WIDTH": DECODER_WIDTH, "DEPTH": DECODER_DEPTH, "HEADS": DECODER_HEADS}
    for name, size in sizes.items():
        words += [f"MASKED_AUTOENCODER.DECODER_{name}", str(size)]
    values = settings.load(words).values
    task: Any = make_task(values)
    task.normalize = lambda images: images  # they are given as numbers of float64
    model = task.build_model()
    model.train()
    report = load_weights(model, {name: value for name, value in first.items() if not name.endswith(FIXED)})
    assert report.unexpected == [] and report.missing == ["pos_embed"], report
    optimizer = build_optimizer(values.TRAIN.OPTIMIZER, model, decay_groups(model, DECAY), DECAY)
    step = TrainStep(
        task, model, optimizer, TrainingPrecision(False), seed=0, samples_per_update=BATCH, accumulation_steps=1,
        gradient_clip=None,
    )  # fmt: skip
    losses = []
    for update, (images, noise, rate) in enumerate(zip(given["images"], given["noise"], given["rates"])):
        order = sort_noise(noise)
        arrays = {"images": images, "order": order, "restore": sort_noise(order)}
        batch = {name: paddle.to_tensor(value) for name, value in arrays.items()}
        (terms,) = step([batch], StepPosition(1, update, len(given["rates"])), float(rate))
        losses.append(float(terms["loss"].sum) / BATCH)
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    linear = {name: value.T if value.ndim == 2 else value for name, value in state.items()}  # (out, in)
    return name_like_transformers(linear), np.array(losses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default="", help="an interpreter that has torch and transformers")
    parser.add_argument("--updates", type=int, default=sized(50, 2))
    parser.add_argument(SERVES, default="", dest="serves", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serves:
        serve(Path(options.serves))
        return
    if not options.peer_python:
        need("torch", "transformers")
    rounds.print_machine()
    with tempfile.TemporaryDirectory(prefix="benchmark_") as name:
        folder, given = Path(name), draw_given(options.updates)
        np.savez(folder / GIVEN, **given)
        command = [options.peer_python or sys.executable, __file__, SERVES, name]
        subprocess.run(command, env={**os.environ, **children.clean_environment()}, check=True)
        first, theirs = ({**np.load(folder / file)} for file in (FIRST, THEIRS))
    their_losses = theirs.pop("losses")
    ours, losses = train(given, first)
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    trained = [name for name in theirs if not name.endswith(FIXED)]
    difference = {
        "of a loss": float(np.abs(losses - their_losses).max()),
        "of a weight": max(float(np.abs(ours[name] - theirs[name]).max()) for name in trained),
    }
    change = max(float(np.abs(theirs[name] - first[name]).max()) for name in trained)
    rows = [[number, f"{their_losses[number]:.12f}", f"{losses[number]:.12f}"] for number in (0, options.updates - 1)]
    rounds.print_table(f"losses of {options.updates} updates", ["update", "transformers", "ours"], rows)
    rows = [
        [what, f"{value:.1e}"] for what, value in {**difference, "change of a weight by the updates": change}.items()
    ]
    rounds.print_table("largest differences", ["", ""], rows)
    digits = [-math.log10(max(value, 1e-20)) for value in difference.values()]
    rounds.print_result({"equal_digits_of_losses": digits[0], "equal_digits_of_weights": digits[1]})


if __name__ == "__main__":
    main()
