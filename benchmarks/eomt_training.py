"""Updates of EoMT, ours against transformers', each on one thread.

    python benchmarks/eomt_training.py [--rounds N] [--peer-python PYTHON]

EoMT-S on DINOv2 with registers in its published dimensions, 200 queries, on an image of 640 pixels with 12 segments:
the network with masks in the attention of its last blocks, four predictions, matching, losses at 12,544 points,
gradients, clipping and AdamW. PYTHON has torch and transformers (left out without). Weights and images are drawn; no
weights are downloaded. Seconds of processor time count where the machine has other work.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from contenders import compare_steps
from smallest import sized
from training_updates import get_paddle_update, get_torch_update

TRANSFORMERS = "transformers"
SIDE, ROWS, COLUMNS = sized(640, 64), 3, 4  # of the image's pixels, of its segments
DEPTH, QUERIES, POINTS = sized(12, 4), sized(200, 20), sized(12544, 128)
DIM, HEADS, BLOCKS, PATCH, REGISTERS = 384, 6, 3, 16, 4
CLASSES, RATE, DECAY, CLIP = 133, 1e-4, 0.05, 0.01


def make_segments() -> tuple[np.ndarray, np.ndarray]:
    """Labels (1, segments), and the number of each pixel's segment, (1, SIDE, SIDE): wavy tiles."""
    generator = np.random.default_rng(0)
    rows, columns = np.mgrid[:SIDE, :SIDE] / SIDE
    row = (ROWS * (rows + 0.05 * np.sin(9 * columns))).astype(int).clip(0, ROWS - 1)
    column = (COLUMNS * (columns + 0.05 * np.sin(9 * rows))).astype(int).clip(0, COLUMNS - 1)
    return generator.integers(0, CLASSES, (1, ROWS * COLUMNS)), (COLUMNS * row + column)[None]


def make_images() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, 3, SIDE, SIDE)).astype(np.float32)


def our_step() -> Callable[[], None]:
    import paddle

    from paddlevit_dist.core.engine import compute_loss
    from paddlevit_dist.core.tasks.model_factory import create_model
    from paddlevit_dist.extensions.cpu_kernels.accelerate import accelerate
    from paddlevit_dist.images.mask_queries.criterion import QueryTargets
    from paddlevit_dist.images.mask_queries.points import NumberMaps

    paddle.seed(0)
    name = "eomt_panoptic_small"
    options = {"num_queries": QUERIES, "loss_points": POINTS}
    backbone = {"patch_size": PATCH, "depth": DEPTH}
    model = create_model(name, num_classes=CLASSES, image_size=SIDE, backbone_options=backbone, **options)
    accelerate(model)
    model.train()
    criterion = type(model).criterion(name, CLASSES, **options)
    images, (labels, numbers) = paddle.to_tensor(make_images()), make_segments()
    maps = NumberMaps(paddle.to_tensor(numbers.astype(np.int32)), paddle.arange(labels.shape[1]).unsqueeze(0))
    counts = np.array([labels.shape[1]])
    targets = QueryTargets(maps, paddle.to_tensor(labels), counts)

    def loss() -> Any:
        terms = criterion.terms(model(images, 0, 100), targets)
        return compute_loss(terms, criterion.count(counts), 1, 1)

    return get_paddle_update(model, loss, RATE, DECAY, CLIP)


def their_step() -> Callable[[], None]:
    import torch
    from transformers import EomtConfig, EomtForUniversalSegmentation

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = EomtConfig(
        hidden_size=DIM,
        num_hidden_layers=DEPTH,
        num_attention_heads=HEADS,
        image_size=SIDE,
        patch_size=PATCH,
        num_register_tokens=REGISTERS,
        num_queries=QUERIES,
        num_blocks=BLOCKS,
        train_num_points=POINTS,
        num_labels=CLASSES,
    )
    model = EomtForUniversalSegmentation(config).train()
    labels, numbers = make_segments()
    masks = [torch.from_numpy(numbers[0] == np.arange(labels.shape[1])[:, None, None]).float()]
    given = {"pixel_values": torch.from_numpy(make_images()), "mask_labels": masks}
    given["class_labels"] = [torch.from_numpy(labels[0])]
    return get_torch_update(model.parameters(), lambda: model(**given).loss, RATE, CLIP, weight_decay=DECAY)


def main() -> None:
    title = f"EoMT-S: an update of an image of {SIDE} pixels, {QUERIES} queries, one thread"
    compare_steps(__file__, str(__doc__), title, "eomt", our_step, {TRANSFORMERS: their_step}, "torch and transformers")


if __name__ == "__main__":
    main()
