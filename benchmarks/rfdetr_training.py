"""Updates of RF-DETR Seg, ours against the authors' package, each on one thread.

    python benchmarks/rfdetr_training.py [--rounds N] [--peer-python PYTHON]

RF-DETR Seg Nano in published dimensions with 13 groups of queries, on 2 images of 312 pixels with 6 objects each: the
network, points of masks, assignments of all layers and groups, losses, gradients, clipping and AdamW. PYTHON has the
package rfdetr with torch (left out without). Weights and images are drawn; no weights are downloaded. Seconds of
processor time count where the machine has other work.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from contenders import compare_steps
from smallest import sized
from training_updates import get_paddle_update, get_torch_update

AUTHORS = "authors"
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

    def loss() -> Any:
        terms = criterion.terms(model(images, targets=targets), targets)
        return compute_loss(terms, criterion.loss_normalizers({"labels": labels}), 1, 1)

    return get_paddle_update(model, loss, RATE, DECAY, CLIP)


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
    images = torch.from_numpy(make_images())

    def loss() -> Any:
        losses = criterion(model(images, targets), targets)
        weights = criterion.weight_dict
        return sum(losses[name] * weights[name] for name in losses if name in weights)

    return get_torch_update(model.parameters(), loss, RATE, CLIP, weight_decay=DECAY)


def main() -> None:
    title = f"RF-DETR Seg Nano: an update of {BATCH} images of {SIDE} pixels, one thread"
    compare_steps(__file__, str(__doc__), title, "rfdetr_seg", our_step, {AUTHORS: their_step}, "rfdetr and torch")


if __name__ == "__main__":
    main()
