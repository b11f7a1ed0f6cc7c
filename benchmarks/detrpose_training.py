"""Updates of DETRPose, ours against the authors' code, on one thread; see keypoints.py.

    python benchmarks/detrpose_training.py --serve {ours,authors} CLONE

DETRPose S on 2 images of 320 pixels with 5 people each: network, denoising, assignments of all layers, losses,
gradients and AdamW. CLONE is a clone of github.com/SebastianJanampa/DETRPose. Weights are drawn. The authors' code
moves parts of its denoising to a GPU by name, which is left out here. Its next decoder layer adds positions to what a
head has read, which has a gradient only where automatic mixed precision made a copy: two heads copy their small inputs
here. A contender's process prints a line when it is ready, and one with seconds for each line that it reads.
"""

import functools
import json
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import rounds
from clock import time_call
from rounds import Spread
from smallest import sized

DETRPOSE, OURS, AUTHORS = "detrpose", "ours", "authors"
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
    from paddlevit_dist.core.engine.fused_optimizers import FusedAdamW
    from paddlevit_dist.core.tasks.model_factory import create_model
    from paddlevit_dist.extensions.cpu_kernels.accelerate import accelerate
    from paddlevit_dist.images.keypoints.detrpose.criterion import PoseTargets
    from paddlevit_dist.images.keypoints.detrpose.denoising import PoseQueries
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
    parameters = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
    groups = [{"params": parameters, "weight_decay": 1e-4}]
    decays = {parameter.name: 1e-4 for parameter in parameters}
    optimizer = FusedAdamW(decays, learning_rate=1e-5, parameters=groups)

    def step() -> None:
        noise = criterion.noise
        drawn = [noise.draw(*one, (SIDE, SIDE), generator) for one in zip(points, areas, labels)]
        queries = {key: paddle.to_tensor(part) for key, part in noise.collate(drawn, counts, PEOPLE).items()}
        given = map(paddle.to_tensor, (points, areas, labels, np.full((BATCH, 2), SIDE)))
        targets = PoseTargets(*given, np.array(counts), PoseQueries.from_batch(queries))
        terms = criterion.terms(model(images, targets.sizes, targets), targets)
        compute_loss(terms, criterion.loss_normalizers({"labels": labels}), 1, 1).backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)

    return step


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
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    images, optimizer = torch.from_numpy(make_images()), torch.optim.AdamW(learning, 1e-5, fused=True)

    def step() -> None:
        losses = criterion(model(images, targets), targets)
        sum(losses.values()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def serve(library: str, clone: str) -> None:
    """A line for each update that is asked for, with its seconds by the clock and of the processor."""
    step = our_step() if library == OURS else their_step(clone)
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(time_call(step)), flush=True)


def measure_detrpose(number: int, clone: str | None, peer_python: str | None) -> dict[str, float]:
    """Updates of both in turns, each a process of its own with the variables of a tuned run."""
    from scaling import Group, group_environments, started

    pythons = {OURS: sys.executable, **({AUTHORS: peer_python} if clone and peer_python else {})}
    groups = {}
    for library, python in pythons.items():
        (environment,) = group_environments(OURS, 1)
        groups[library] = Group(python, ["--serve", library, clone or ""], [environment], __file__)
    with started(groups):
        turns = {library: functools.partial(lambda group: group.ask()[0], group) for library, group in groups.items()}
        taken: Any = rounds.interleave(turns, number, warm_up=2)
    rows, result = [], {}
    for library, answers in taken.items():
        row = [library]
        for clock, suffix in enumerate(("", "_processor")):
            seconds, ours = ([answer[clock] for answer in part] for part in (answers, taken[OURS]))
            ratio = rounds.ratios(seconds, ours)
            row += [Spread.of(seconds).text(1e3, 0), ratio.text()]
            if library != OURS:
                result[f"{DETRPOSE}_times_as_fast{suffix}"] = ratio.median
        rows.append(row)
    title = f"DETRPose S: an update of {BATCH} images of {SIDE} pixels, one thread, {number} rounds"
    rounds.table(title, ["", "ms", "times ours", "processor, ms", "times ours"], rows)
    return result


if __name__ == "__main__":
    serve(*sys.argv[2:])
