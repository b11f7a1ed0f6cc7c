"""Networks of ``make accept-gpu``: each trains on one batch, and its numbers are judged.

    PYTHONPATH=.:tests python -m support.networks.gpu_networks FOLDER small|whole NAME ...     # what a CPU computes

This program, started with the GPUs hidden, trains each network for the first updates and writes, into FOLDER, its
initial weights and its numbers. A GPU then starts from the same weights, with the same batch and the same random
numbers (``host_draws``).
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.networks.gpu_jobs import ROOT, Place, events, require_plausible

UPDATES = 30  # of each network
ON_CPU = 2  # updates that a CPU makes for comparison
LOSS_SCALE = 1024.0  # of float16; Paddle's first one, 65,536, would be lowered first, by steps that are skipped
FALLEN = 0.95  # share of the first loss that the mean of the last ten is below
# Largest differences from the CPU, as shares of the loss (of the gradients' norm for GRADIENTS): in the first update of
# each term of the loss, with products in float32 (TRAIN.TF32 False), or of the loss in half precision; then after an
# update by AdamW, which makes whole steps of gradients that are nothing but rounding.
FIRST = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.2}
GRADIENTS, SECOND = 5e-3, 2e-2
LEARNING_RATE, OF_QUERIES = "3e-4", "1e-3"  # queries learn to find boxes more slowly, but for those of RF-DETR

ROOMS = "POINTS.ROOMS.TRAIN 16 POINTS.ROOMS.VAL 4 POINTS.ROOMS.SPACING_M 0.15 DATA.VOXEL_SIZE_M 0.2".split()
SHAPES = "DATA.SHAPES.TRAIN 64 DATA.SHAPES.VAL 16".split()
SQUARES = "DATA.SHORTEST_SIDES [96] DATA.EVAL_SHORTEST_SIDE 96 MODEL.NUM_QUERIES 25".split()
SIDES_OF_RF_DETR = "DATA.SHORTEST_SIDES [224] DATA.EVAL_SHORTEST_SIDE 224".split()  # windows of patches of 14 and 16
SIDES_OF_SEG = "DATA.SHORTEST_SIDES [240] DATA.EVAL_SHORTEST_SIDE 240".split()  # of 12, and of 8
# Rotary positions need a multiple of six channels for each head.
CHANNELS_OF_UTONIA = ["MODEL.OPTIONS.encoder_channels", "[36,54,72,108,144]"]
CHANNELS_OF_UTONIA += ["MODEL.OPTIONS.decoder_channels", "[54,54,72,108]"]
CROPS = "VOLUMES.OVERLAP 0.1 VOLUMES.CROP_SIZE [24,40,32] VOLUMES.UNET_DEPTH 2".split()
TASKS = {
    "digits": ["-cfg=vit_digits"],
    "mae_digits": ["-cfg=mae_digits"],
    "dino_digits": ["-cfg=dino_digits", "SELF_DISTILLATION.FROZEN_EPOCHS", "0"],
    "detr_shapes": ["-cfg=detr_shapes", *SHAPES],
    "rtdetr_shapes": ["-cfg=rtdetr_shapes", *SHAPES, *SQUARES],
    "mask_rcnn_shapes": ["-cfg=mask_rcnn_shapes", *SHAPES],
    "rfdetr_seg_shapes": ["-cfg=rfdetr_seg_shapes", *SHAPES, *SQUARES],
    "heatmap_figures": ["-cfg=heatmap_figures", *SHAPES],
    "detrpose_figures": ["-cfg=detrpose_figures", *SHAPES],
    "eomt_shapes": ["-cfg=eomt_shapes", *SHAPES],
    "eomt_panoptic_shapes": ["-cfg=eomt_panoptic_shapes", *SHAPES],
    "eomt_instance_shapes": ["-cfg=rfdetr_seg_shapes", *SHAPES, *SQUARES, "MODEL.TYPE", "eomt"],
    "segformer_shapes": ["-cfg=segformer_b0_shapes", *SHAPES],
    "minkunet": ["-cfg=minkunet14_synthetic_rooms", *ROOMS],
    "ptv3": ["-cfg=ptv3_synthetic_rooms", *ROOMS],
    "pointgroup": ["-cfg=pointgroup_synthetic_rooms", *ROOMS, "POINTS.INSTANCES.PREPARE_EPOCHS", "0"],
    "solids": ["-cfg=mink_classifier_solids"],
    "organs": ["-cfg=volume_unet3d_phantoms", *CROPS],
    "landmarks": ["-cfg=landmark_unet3d", "-dataset=synthetic_landmarks", *CROPS],
}
WITHOUT_WARM_UP = ("TRAIN.WARMUP_STEPS", "0", "TRAIN.WARMUP_EPOCHS", "0")
# The recipe whose data a network of the zoo sees, by the longest beginning of its name; digits for all others.
RECIPE_OF = {"detr": "detr_shapes", "mask_rcnn": "mask_rcnn_shapes", "faster_rcnn": "mask_rcnn_shapes"}
RECIPE_OF.update(dict.fromkeys(("rtdetr", "rfdetr", "deim", "dfine"), "rtdetr_shapes"))
RECIPE_OF["rfdetr_seg"] = "rfdetr_seg_shapes"
RECIPE_OF.update(detrpose="detrpose_figures", vitpose="heatmap_figures", simple_baseline="heatmap_figures")
RECIPE_OF.update(
    eomt_semantic="eomt_shapes", eomt_panoptic="eomt_panoptic_shapes", eomt_instance="eomt_instance_shapes"
)
RECIPE_OF.update(
    minkunet="minkunet",
    ptv3="ptv3",
    sonata="ptv3",
    concerto="ptv3",
    utonia="ptv3",
    mink_classifier="solids",
    pointgroup="pointgroup",
    unet3d="landmarks",
)
RECIPE_OF.update(dict.fromkeys(("fcn", "linear", "segformer", "upernet"), "segformer_shapes"))


# Sizes of EoMT beyond the smallest; without a size, it is large.
_LARGER_EOMT = r"eomt_(semantic|instance|panoptic)(_(base|large|giant|7b)(_dinov3)?)?"


def names_of_family(name: str, families: Sequence[str]) -> list[str]:
    """Each network whose name begins so, but for those of a longer family; of published backbones that differ in sizes
    alone, the smallest."""
    if name.startswith("timm:"):
        return [name]
    from paddlevit_dist.core.registry.lookup import list_models
    from paddlevit_dist.core.registry.names import REGISTRY
    from paddlevit_dist.images.models.foundation_variants import FOUNDATION

    sizes = ("embed_dim", "depth", "num_heads", "mlp_ratio", "mlp_multiple", "image_size", "patch_size")
    smallest: dict[str, str] = {}
    for model, options in sorted(FOUNDATION.items(), key=lambda item: item[1]["embed_dim"] * item[1]["depth"]):
        smallest.setdefault(str({key: value for key, value in options.items() if key not in sizes}), model)
    left_out = {*REGISTRY.aliases, *FOUNDATION} - {*smallest.values()}
    left_out |= {model for model in list_models() if re.fullmatch(_LARGER_EOMT, model)}
    longer = tuple(family for family in families if family != name and family.startswith(name))
    names = (model for model in list_models() if model.startswith(name) and not model.startswith(longer))
    return [model for model in names if model not in left_out]


def smallest(names: Sequence[str]) -> str:
    """The one of a family that a CPU trains, by what its name ends with."""
    for ending in ("_shapes", "_tutorial", "_b0", "pose_tiny", "_baseline_tiny", "_small", "resnet18", "resnet50"):
        if found := [name for name in names if name.endswith(ending)]:
            return min(found, key=len)
    return names[0]


def words_of_network(name: str, small: bool) -> list[str]:
    """The command line of a network's training, without output folder and precision."""
    from support.trainings.recipe_steps import reduced

    common = ["-batch_size=2", "-epochs=100", "-num_workers=0", "-accum_iter=1", *WITHOUT_WARM_UP, "REPORT_FREQ", "1"]
    recipe = RECIPE_OF.get(max((start for start in RECIPE_OF if name.startswith(start)), key=len, default=""))
    is_slow = name.startswith(("deim", "dfine", "rtdetr"))
    common += ["TRAIN.BASE_LR", OF_QUERIES if is_slow else LEARNING_RATE]
    common += ["MODEL.NAME", name, "REPORT", "false", "TRAIN.OPTIMIZER.NAME", "AdamW", "TRAIN.TF32", "false"]
    if recipe is not None:
        backbone = ["MODEL.BACKBONE_PRETRAINED", "None"] if "shapes" in recipe else []
        sides = SIDES_OF_RF_DETR if name.startswith("rfdetr") else []
        sides = SIDES_OF_SEG if name.startswith("rfdetr_seg") else sides
        channels = CHANNELS_OF_UTONIA if name == "utonia" else []
        return [*TASKS[recipe], *common, *backbone, *sides, *channels]
    size = name.rpartition("_")[2]
    is_reduced = small and not name.startswith("timm:")
    sides = reduced(name) if is_reduced else [f"-image_size={size if size.isdecimal() else 224}"]
    return [f"-cfg={ROOT / 'tests' / 'support' / 'trainings' / 'plain.yaml'}", "-dataset=digits", *sides, *common]


# ---- training ----------------------------------------------------------------------------------------------------


class Enough(Exception):
    """A network has made its updates."""


def train_network(
    name: str, small: bool, output: Path, updates: int, weights: Path, dtype: str = "float32"
) -> list[dict[str, float]]:
    """Train on one batch again and again; ``weights``: the first ones, which are written where they do not exist.

    Returns:
        For each update that was not skipped "loss", the sum that is minimized, the terms of it, and "gradient_norm".
        Raises AssertionError: the first one was skipped, or more than a tenth.
    """

    from paddlevit_dist import Trainer
    from paddlevit_dist.core import settings
    from paddlevit_dist.core.logging.record import make_folder
    from paddlevit_dist.core.tasks.step_types import StepPosition
    from paddlevit_dist.core.tasks.task_factory import make_task
    from support.samples import host_draws

    half = ["-amp", "AMP_LEVEL", "O1", "AMP_DTYPE", dtype] if dtype != "float32" else []
    values = settings.load([*words_of_network(name, small), *half, f"-output={output}"]).values
    make_folder(str(output))
    host_draws.replace()
    task = make_task(values)
    weight_of: dict[str, float] = {}
    without_gradient: set[str] = set()

    class Short(type(task)):  # type: ignore[misc]
        def build_model(self) -> Any:
            model = with_weights(super().build_model(), weights)
            if name.startswith("timm:"):  # fused attention may have no gradient for a mask
                for key, tensor in model.named_parameters():
                    if not tensor.stop_gradient:
                        without_gradient.add(key)
                        tensor.register_hook(lambda _, key=key: without_gradient.discard(key))
            return model

        def train_step(self, *arguments: Any) -> Any:
            step = next(one for one in arguments if isinstance(one, StepPosition))
            if step.update > updates:  # counted from 0: a queued update is known once the next one is queued
                raise Enough
            host_draws.restart(step.update)
            terms = super().train_step(*arguments)
            weight_of.update({term: value.weight for term, value in terms.items() if value.weight})
            return terms

    class FirstBatchAgain(Trainer):
        def prepare_training(self) -> None:
            super().prepare_training()
            epochs = self.loader.epochs
            if self.precision.scaler is not None:
                self.precision.scaler.value = LOSS_SCALE

            def again(*where: Any) -> Iterator[dict[str, Any]]:
                with contextlib.closing(epochs(*where)) as batches:
                    first = next(batches)
                while True:
                    yield dict(first)

            self.loader.epochs = again

    task.__class__ = Short
    datasets = {split: task.build_dataset(split, output) for split in ("train", "val")}
    with contextlib.suppress(Enough):
        FirstBatchAgain(values, task, datasets).train()
    assert not without_gradient, f"no gradient in {dtype}: {sorted(without_gradient)}"
    told = events(output, "training")
    of_update = {event["update"]: event for event in told if weight_of.keys() <= event.keys()}
    missing = sorted({*range(1, updates + 1)} - of_update.keys())
    assert 1 not in missing and len(missing) <= updates // 10, (
        f"updates {missing} were skipped, of {len(told)} reported"
    )
    return [numbers_of(of_update[update], weight_of) for update in range(1, updates + 1) if update in of_update]


def numbers_of(event: Mapping[str, Any], weight_of: Mapping[str, float]) -> dict[str, float]:
    terms = {term: weight * event[term] for term, weight in weight_of.items()}
    norm = {"gradient_norm": event["gradient_norm"]}
    lowest = -weight_of.get("direction", 0.0)  # minus a cosine
    return {**terms, "loss": sum(terms.values()) - lowest, **norm}


def with_weights(model: Any, path: Path) -> Any:
    """Write the model's weights, or give it those that are written."""
    import numpy as np

    if not path.exists():
        with open(path, "wb") as file:
            np.savez(file, **{name: value.numpy() for name, value in model.state_dict().items()})
        return model
    with np.load(path) as arrays:
        missing, unexpected = model.set_state_dict({name: arrays[name] for name in arrays.files})
    assert not missing and not unexpected, f"weights {missing} {unexpected}"
    return model


# ---- judging -----------------------------------------------------------------------------------------------------


def require_falling(losses: Sequence[float]) -> None:
    """Raise AssertionError unless losses are plausible and their last third is below ``FALLEN`` of the first."""
    require_plausible(losses)
    last = losses[-(len(losses) // 3) :]
    share = sum(last) / len(last) / losses[0]
    assert share < FALLEN, f"the loss stays: its last {len(last)} are {share:.2f} of its first, {losses[0]:.4g}"


def require_equal(expected: Sequence[Mapping[str, float]], found: Sequence[Mapping[str, float]], dtype: str) -> float:
    """Compare the first updates with a CPU's, in half precision the loss of the first alone.

    Returns:
        The largest difference in the first update, as a share of its loss. Raises AssertionError: it is too large.
    """
    (first, *later), (actual, *_) = expected, found
    names = ["loss"] if dtype != "float32" else [name for name in first if name != "gradient_norm"]
    differences = {name: abs(actual[name] - first[name]) / abs(first["loss"]) for name in names}
    worst = max(differences, key=lambda name: differences[name])
    what = f"{worst} of {dtype} {actual[worst]:.6g}, of the CPU {first[worst]:.6g}"
    assert differences[worst] <= FIRST[dtype], f"update 1: {what}: off by {differences[worst]:.1e} of the loss"
    if dtype == "float32":
        require_close("update 1: gradient norm", first["gradient_norm"], actual["gradient_norm"], GRADIENTS)
        for update, (one, other) in enumerate(zip(later, found[1:]), 2):
            require_close(f"update {update}: loss", one["loss"], other["loss"], SECOND)
    return differences[worst]


def require_close(name: str, expected: float, found: float, bound: float) -> None:
    difference = abs(found - expected) / abs(expected)
    assert difference <= bound, f"{name} {found:.6g}, of the CPU {expected:.6g}: off by {difference:.1e}"


# ---- what a CPU computes -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def on_a_cpu(names: Sequence[str], place: Place) -> Iterator[Path]:
    """Let a process without GPUs compute the first updates of each network meanwhile, in this folder."""
    folder = place.folder / "on_a_cpu"
    folder.mkdir()
    words = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "support.networks.gpu_networks",
        str(folder),
        "small" if place.on_cpu else "whole",
        *names,
    ]
    with open(folder / "log.txt", "w", encoding="utf-8") as said:
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
        process = subprocess.Popen(words, stdout=said, stderr=said, env=environment, cwd=ROOT)
    try:
        yield folder
    finally:
        process.kill()
        process.wait()


def wait_for(name: str, folder: Path) -> list[dict[str, float]]:
    """Return a network's numbers once the other process has written them. Raises AssertionError: it failed there."""
    answer = folder / f"{name}.json"
    while not answer.exists():
        assert not (folder / "ended").exists(), f"the CPU's process ended: {(folder / 'log.txt').read_text()[-300:]}"
        time.sleep(0.05)
    found = json.loads(answer.read_text(encoding="utf-8"))
    assert isinstance(found, list), f"on the CPU: {found}"
    return found


def compute(folder: Path, small: bool, names: Sequence[str]) -> None:
    """Train each network and write its numbers, or what failed."""
    try:
        for name in names:
            found: Any
            try:
                found = train_network(name, small, folder / name, ON_CPU, folder / f"{name}.npz")
            except Exception as error:  # of one network; the others are computed all the same
                found = f"{type(error).__name__}: {error}"
            unfinished = folder / f"{name}.part"
            unfinished.write_text(json.dumps(found), encoding="utf-8")
            unfinished.rename(folder / f"{name}.json")
    finally:
        (folder / "ended").touch()


if __name__ == "__main__":
    compute(Path(sys.argv[1]), sys.argv[2] == "small", sys.argv[3:])
