"""Updates of RF-DETR Seg, ours against the authors' package, each on one thread.

    python benchmarks/rfdetr_training.py [--rounds N] [--peer-python PYTHON]

RF-DETR Seg Nano in published dimensions with 13 groups of queries, on 2 images of 312 pixels with 6 objects each: the
network, points of masks, assignments of all layers and groups, losses, gradients, clipping and AdamW. PYTHON has the
package rfdetr with torch (left out without). Weights and images are drawn; no weights are downloaded. Seconds of
processor time count where the machine has other work. A contender's process prints a line when it is ready, and one
with seconds for each line that it reads.
"""

import argparse
import functools
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import rounds
from clock import time_call
from rounds import Spread
from smallest import sized

OURS, AUTHORS = "ours", "authors"
BATCH, SIDE, OBJECTS = sized(2, 1), sized(312, 144), 6
GROUPS, LAYERS = sized(13, 2), sized(4, 2)
CLASSES, RATE, DECAY, CLIP = 91, 1e-4, 1e-4, 0.1


def make_objects() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (batch, objects, 4), center and sides as fractions, labels, and masks, ellipses, uint8."""
    generator = np.random.default_rng(0)
    centers, sides = generator.uniform(0.3, 0.7, (BATCH, OBJECTS, 2)), generator.uniform(0.1, 0.5, (BATCH, OBJECTS, 2))
    rows, columns = (np.mgrid[:SIDE, :SIDE] + 0.5) / SIDE
    places = np.stack([columns, rows], axis=-1) - centers[:, :, None, None]
    masks = ((2 * places / sides[:, :, None, None]) ** 2).sum(axis=-1) < 1
    boxes = np.concatenate([centers, sides], axis=-1).astype(np.float32)
    return boxes, generator.integers(0, CLASSES, (BATCH, OBJECTS)), masks.astype(np.uint8)


def make_images() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((BATCH, 3, SIDE, SIDE)).astype(np.float32)


def our_step() -> Callable[[], None]:
    import paddle

    from paddlevit_dist.core.engine import compute_loss
    from paddlevit_dist.core.engine.fused_optimizers import FusedAdamW
    from paddlevit_dist.core.tasks.model_factory import create_model
    from paddlevit_dist.extensions.cpu_kernels.accelerate import accelerate
    from paddlevit_dist.images.detection.detector import DetectionTargets

    paddle.seed(0)
    name, options = "rfdetr_seg_nano", {"groups": GROUPS, "decoder_layers": LAYERS}
    model, images = create_model(name, num_classes=CLASSES, **options), paddle.to_tensor(make_images())
    accelerate(model)
    model.train()
    criterion = type(model).criterion(name, CLASSES, {"normalizer": "reference"}, **options)
    boxes, labels, masks = make_objects()
    corners = np.concatenate([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], axis=-1) * SIDE
    given = map(paddle.to_tensor, (corners, labels, np.full((BATCH, 2), SIDE)))
    targets = DetectionTargets(*given, np.full(BATCH, OBJECTS), paddle.to_tensor(masks))
    parameters = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
    decays = {parameter.name: DECAY for parameter in parameters}
    groups = [{"params": parameters, "weight_decay": DECAY}]
    optimizer = FusedAdamW(decays, learning_rate=RATE, parameters=groups)

    def step() -> None:
        terms = criterion.terms(model(images, targets=targets), targets)
        compute_loss(terms, criterion.loss_normalizers({"labels": labels}), 1, 1).backward()
        paddle.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)

    return step


def their_step() -> Callable[[], None]:
    import torch
    from rfdetr.config import RFDETRSegNanoConfig, TrainConfig
    from rfdetr.models.lwdetr import build_criterion_from_config, build_model_from_config

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = RFDETRSegNanoConfig(pretrain_weights="none", device="cpu", group_detr=GROUPS, dec_layers=LAYERS)
    settings = TrainConfig(dataset_dir=".", output_dir=".")
    model = build_model_from_config(config, settings).train()
    criterion, _ = build_criterion_from_config(config, settings)
    criterion.train()
    boxes, labels, masks = (torch.from_numpy(part) for part in make_objects())
    targets = [{"labels": label, "boxes": box, "masks": mask.bool()} for label, box, mask in zip(labels, boxes, masks)]
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    images = torch.from_numpy(make_images())
    optimizer = torch.optim.AdamW(learning, RATE, weight_decay=DECAY, fused=True)

    def step() -> None:
        losses = criterion(model(images, targets), targets)
        weights = criterion.weight_dict
        sum(losses[name] * weights[name] for name in losses if name in weights).backward()
        torch.nn.utils.clip_grad_norm_(learning, CLIP)
        optimizer.step()
        optimizer.zero_grad()

    return step


def serve(library: str) -> None:
    """A line for each update that is asked for, with its seconds by the clock and of the processor."""
    step = our_step() if library == OURS else their_step()
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(time_call(step)), flush=True)


def main() -> None:
    from scaling import Group, group_environments, started

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peer-python", help="an interpreter with rfdetr and torch")
    options = parser.parse_args()
    rounds.print_machine()
    groups = {}
    for library, python in {OURS: sys.executable, AUTHORS: options.peer_python}.items():
        if python:
            (environment,) = group_environments(OURS, 1)
            groups[library] = Group(python, ["--serve", library], [environment], __file__)
    with started(groups):
        turns = {library: functools.partial(lambda group: group.ask()[0], group) for library, group in groups.items()}
        taken: Any = rounds.interleave(turns, options.rounds, warm_up=2)
    rows, result = [], {}
    for library, answers in taken.items():
        row = [library]
        for clock, suffix in enumerate(("", "_processor")):
            seconds, ours = ([answer[clock] for answer in part] for part in (answers, taken[OURS]))
            ratio = rounds.ratios(seconds, ours)
            row += [Spread.of(seconds).text(1e3, 0), ratio.text()]
            if library != OURS or len(taken) == 1:
                result[f"rfdetr_seg_times_as_fast{suffix}"] = ratio.median
        rows.append(row)
    title = f"RF-DETR Seg Nano: an update of {BATCH} images of {SIDE} pixels, one thread, {options.rounds} rounds"
    rounds.table(title, ["", "ms", "times ours", "processor, ms", "times ours"], rows)
    rounds.print_result(result)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        main()
