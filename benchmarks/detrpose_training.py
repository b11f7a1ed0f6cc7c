"""Updates of DETRPose, ours against the authors' code, on one thread; see keypoints.py.

    python benchmarks/detrpose_training.py --serve {ours,authors} CLONE

DETRPose S on 2 images of 320 pixels with 5 people each: network, denoising, assignments of all layers, losses,
gradients and AdamW. CLONE is a clone of github.com/SebastianJanampa/DETRPose. Weights are drawn. The authors' code
moves parts of its denoising to a GPU by name, which is left out here. Its next decoder layer adds positions to what a
head has read, which has a gradient only where automatic mixed precision made a copy: two heads copy their small inputs
here.
"""

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from clock import time_call
from contenders import OURS, compare_clocks, serve, take_turns
from smallest import sized
from training_updates import get_paddle_update, get_torch_update

DETRPOSE, AUTHORS = "detrpose", "authors"
BATCH, SIDE, PEOPLE, POINTS = sized(2, 1), sized(320, 128), 5, 17
QUERIES = sized(60, 20)


def make_objects() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points (batch, people, 17, 3) as fractions with visibility, areas as shares, and boxes, centers and sides."""
    generator, shape = np.random.default_rng(0), (BATCH, PEOPLE, 1, 2)
    centers, sides = generator.uniform(0.3, 0.7, shape), generator.uniform(0.1, 0.4, shape)
    places = centers + (generator.random((BATCH, PEOPLE, POINTS, 2)) - 0.5) * sides
    seen = (generator.random((BATCH, PEOPLE, POINTS, 1)) < 0.8).astype(np.float64)
    seen[:, :, 0] = 1
    boxes = np.concatenate([centers, sides], axis=-1)[:, :, 0]
    points = np.concatenate([places * seen, seen], axis=-1)
    return points.astype(np.float32), (sides.prod(-1)[..., 0] * 0.5).astype(np.float32), boxes.astype(np.float32)


def make_images() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((BATCH, 3, SIDE, SIDE)).astype(np.float32)


def our_step() -> Callable[[], None]:
    import paddle

    from paddlevit_dist.core.engine import compute_loss
    from paddlevit_dist.core.tasks.model_factory import create_model
    from paddlevit_dist.extensions.cpu_kernels.accelerate import accelerate
    from paddlevit_dist.images.detection.denoising import DenoisingQueries
    from paddlevit_dist.images.keypoints.detrpose.criterion import PoseTargets
    from paddlevit_dist.images.keypoints.keypoint_set import COCO_PERSON

    paddle.seed(0)
    name, options = "detrpose_hgnetv2_s", {"num_queries": QUERIES}
    model, images = create_model(name, num_classes=2, **options), paddle.to_tensor(make_images())
    accelerate(model)
    model.train()
    criterion = type(model).criterion(name, 2, {"sigmas": (COCO_PERSON.sigmas,) * 2}, **options)
    points, areas, _ = make_objects()
    points, areas = points * np.array([SIDE, SIDE, 1], np.float32), areas * SIDE**2
    labels, counts = np.ones((BATCH, PEOPLE), np.int64), [PEOPLE] * BATCH
    generator = np.random.default_rng(2)

    def loss() -> Any:
        noise = criterion.noise
        drawn = [noise.draw(*one, (SIDE, SIDE), generator) for one in zip(points, areas, labels)]
        queries = {key: paddle.to_tensor(part) for key, part in noise.collate(drawn, counts, PEOPLE).items()}
        given = map(paddle.to_tensor, (points, areas, labels, np.full((BATCH, 2), SIDE)))
        targets = PoseTargets(*given, np.array(counts), DenoisingQueries.from_batch(queries))
        terms = criterion.terms(model(images, targets.sizes, targets), targets)
        return compute_loss(terms, criterion.loss_normalizers({"labels": labels}), 1, 1)

    return get_paddle_update(model, loss, 1e-5, 1e-4)


def their_step(clone: str) -> Callable[[], None]:
    import torch

    sys.path.insert(0, clone)
    data: dict[str, Any] = {name: types.ModuleType(name) for name in ("src.data", "src.data.dataloader")}
    data["src.data.dataloader"].DataLoader = torch.utils.data.DataLoader
    sys.modules.update(data)  # in place of data sets and augmentation, which need many packages
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    from src.models.detrpose import Criterion, DETRPose, HungarianMatcher, HybridEncoder, Transformer
    from src.nn import HGNetv2

    torch.set_num_threads(1)
    torch.manual_seed(0)
    strides, size = [8, 16, 32], (SIDE, SIDE)
    encoder = HybridEncoder(
        [256, 512, 1024], strides, hidden_dim=256, expansion=0.5, depth_mult=0.34, eval_spatial_size=size
    )
    transformer = Transformer(
        256,
        num_queries=QUERIES,
        num_decoder_layers=3,
        dim_feedforward=1024,
        return_intermediate_dec=True,
        num_feature_levels=3,
        learnable_tgt_init=True,
        two_stage_type="standard",
        num_classes=2,
        two_stage_class_embed_share=False,
        two_stage_bbox_embed_share=False,
        feat_strides=strides,
        eval_spatial_size=size,
        reg_scale=4,
    )
    backbone = HGNetv2("B0", use_lab=True, pretrained=False)
    model = DETRPose(backbone, encoder, transformer).train()
    for head in (*transformer.class_embed, transformer.pre_pose_embed):
        head.register_forward_pre_hook(lambda _, inputs: tuple(part.clone() for part in inputs))
    weights = {"loss_vfl": 2.0, "loss_keypoints": 10.0, "loss_oks": 4.0}
    criterion = Criterion(2, HungarianMatcher(2.0, 0.25, 10.0, 4.0), weights, ["vfl", "keypoints"], POINTS)
    points, areas, boxes = (torch.from_numpy(part) for part in make_objects())
    targets = [
        {
            "labels": torch.ones(PEOPLE, dtype=torch.int64),
            "boxes": box,
            "area": area,
            "keypoints": torch.cat([point[..., :2].flatten(1), point[..., 2]], dim=1),
        }
        for point, area, box in zip(points, areas, boxes)
    ]
    images = torch.from_numpy(make_images())
    loss = lambda: sum(criterion(model(images, targets), targets).values())  # noqa: E731
    return get_torch_update(model.parameters(), loss, 1e-5)


def measure_detrpose(number: int, clone: str | None, peer_python: str | None) -> dict[str, float]:
    """Updates of both in turns, each a process of its own with the variables of a tuned run."""
    pythons = {OURS: sys.executable, AUTHORS: peer_python if clone else None}
    taken = take_turns(__file__, pythons, [clone or ""], number)
    title = f"DETRPose S: an update of {BATCH} images of {SIDE} pixels, one thread, {number} rounds"
    return compare_clocks(title, taken, DETRPOSE)


if __name__ == "__main__":
    _, _, library, clone = sys.argv
    step = our_step() if library == OURS else their_step(clone)
    serve(lambda: time_call(step))
