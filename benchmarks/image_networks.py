"""Image networks whose time is dense convolutions, ours against torch, on one thread: a training step, and a forward
pass in evaluation.

    python benchmarks/image_networks.py [--peer-python PYTHON] [--only NAME ...] [--rounds 7]

- rtdetr: RT-DETR-R18 on 4 images of 320 pixels with 7 objects each, 100 denoising pairs, its losses and assignments
- detr: DETR-R50 on 2 images of 320 pixels, likewise
- upernet: UPerNet on Swin-T, 2 images of 256 pixels, 150 classes, both heads' cross-entropy at the labels' size
- resnet50: ResNet-50 on 8 images of 224 pixels, cross-entropy

Peers: transformers' networks of these names and sizes (ResNet-50: timm's), with their own losses. Weights are drawn;
the optimizer is the trainer's AdamW and torch's fused one. PYTHON has torch, transformers, timm and SciPy. Each side is
a process of its own, with the variables of a tuned run and one thread.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import rounds
from clock import time_call
from contenders import OURS, serve, take_turns
from rounds import Spread
from smallest import sized
from training_updates import get_paddle_update, get_torch_update

PLAIN, TORCH = "Paddle's layers", "torch"
TRAINING, EVALUATION = "training", "evaluation"
CLASSES, OBJECTS = 80, 7


class Size(NamedTuple):
    """A network's input."""

    batch: int
    side: int


SIZES = {
    "rtdetr": sized(Size(4, 320), Size(1, 160)),
    "detr": sized(Size(2, 320), Size(1, 64)),
    "upernet": sized(Size(2, 256), Size(2, 64)),
    "resnet50": sized(Size(8, 224), Size(1, 224)),
}


def get_images(name: str) -> np.ndarray:
    size = SIZES[name]
    return np.random.default_rng(0).standard_normal((size.batch, 3, size.side, size.side)).astype(np.float32)


def get_labels(name: str) -> np.ndarray:
    """A class for each pixel, in squares of 32, or for each image."""
    size, generator = SIZES[name], np.random.default_rng(1)
    if name == "resnet50":
        return generator.integers(0, 1000, size.batch)
    squares = generator.integers(0, 150, (size.batch, size.side // 32, size.side // 32))
    return squares.repeat(32, axis=1).repeat(32, axis=2)


def get_objects(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Boxes (batch, objects, 4), centers, widths and heights as shares, and labels."""
    generator, shape = np.random.default_rng(1), (SIZES[name].batch, OBJECTS, 2)
    boxes = np.concatenate([generator.uniform(0.3, 0.7, shape), generator.uniform(0.1, 0.4, shape)], axis=-1)
    return boxes.astype(np.float32), generator.integers(0, CLASSES, shape[:2])


# ---- ours ----------------------------------------------------------------------------------------------------


def our_steps(name: str) -> dict[str, Callable[[], Any]]:
    import paddle

    from paddlevit_dist import create_model
    from paddlevit_dist.core.losses import resized_cross_entropy

    paddle.seed(0)
    names = {"rtdetr": "rtdetr_r18vd", "detr": "detr_resnet50", "upernet": "upernet_swin_tiny", "resnet50": "resnet50"}
    options = {"rtdetr": {"num_classes": CLASSES}, "detr": {"num_classes": CLASSES}, "upernet": {"num_classes": 150}}
    model = create_model(names[name], **options.get(name, {}))
    images = paddle.to_tensor(get_images(name))
    if name in ("rtdetr", "detr"):
        loss = our_detection(name, names[name], model, images)
    else:
        labels = paddle.to_tensor(get_labels(name))

        def loss() -> Any:
            logits = model(images)
            if name == "resnet50":
                return paddle.nn.functional.cross_entropy(logits, labels)
            parts = [weight * resized_cross_entropy(one, labels, 255) for weight, one in zip((1.0, 0.4), logits)]
            return sum(parts) / labels.size

    update = get_paddle_update(model, loss, 1e-5, 0.01)

    def train() -> None:
        model.train()
        update()

    @paddle.no_grad()
    def evaluate() -> None:
        model.eval()
        model(images)

    return {TRAINING: train, EVALUATION: evaluate}


def our_detection(name: str, variant: str, model: Any, images: Any) -> Callable[[], Any]:
    """The losses as the trainer sums them up: new denoising queries in each step, assignments of all layers."""
    import paddle

    from paddlevit_dist.core.engine import compute_loss
    from paddlevit_dist.images.detection.denoising import DenoisingQueries
    from paddlevit_dist.images.detection.detector import DetectionTargets

    criterion, generator = type(model).criterion(variant, CLASSES), np.random.default_rng(2)
    shares, labels = get_objects(name)
    side, number = images.shape[-1], len(labels)
    corners = np.concatenate([shares[..., :2] - shares[..., 2:] / 2, shares[..., :2] + shares[..., 2:] / 2], -1) * side
    counts = [OBJECTS] * number

    def loss() -> Any:
        batch = {"boxes": corners, "labels": labels, "sizes": np.full((number, 2), side)}
        if criterion.noise:
            drawn = [criterion.noise.draw(*one, (side, side), generator) for one in zip(corners, labels)]
            batch.update(criterion.noise.collate(drawn, counts, OBJECTS))
        on_device = {key: paddle.to_tensor(value) for key, value in batch.items()}
        noise = DenoisingQueries.from_batch(on_device) if criterion.noise else None
        given = [on_device[key] for key in ("boxes", "labels", "sizes")]
        targets = DetectionTargets(*given, np.array(counts), denoising=noise)
        terms = criterion.terms(model(images, given[2], targets), targets)
        return compute_loss(terms, criterion.loss_normalizers(batch), 1, 1)

    return loss


# ---- torch ---------------------------------------------------------------------------------------------------


def torch_network(name: str) -> Any:
    import transformers

    if name == "resnet50":
        import timm

        return timm.create_model("resnet50")
    if name == "rtdetr":
        small = {"hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2], "layer_type": "basic"}
        backbone = transformers.RTDetrResNetConfig(**small, out_features=["stage2", "stage3", "stage4"])
        config = {"encoder_in_channels": [128, 256, 512], "decoder_layers": 3, "hidden_expansion": 0.5}
        config = transformers.RTDetrConfig(backbone_config=backbone, num_labels=CLASSES, **config)
        return transformers.RTDetrForObjectDetection(config)
    if name == "detr":
        backbone = transformers.ResNetConfig(out_features=["stage4"])
        config = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
        config = transformers.DetrConfig(backbone_config=backbone, num_labels=CLASSES, **config)
        model: Any = transformers.DetrForObjectDetection(config)
        # It looks for other names than this backbone's, and freezes all.
        for place, parameter in model.model.backbone.named_parameters():
            parameter.requires_grad_("embedder" not in place and "stages.0" not in place)
        return model
    backbone = transformers.SwinConfig(out_features=["stage1", "stage2", "stage3", "stage4"])
    config = transformers.UperNetConfig(backbone_config=backbone, num_labels=150, auxiliary_in_channels=384)
    return transformers.UperNetForSemanticSegmentation(config)


def torch_steps(name: str) -> dict[str, Callable[[], Any]]:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, images = torch_network(name), torch.from_numpy(get_images(name))
    if name in ("rtdetr", "detr"):
        found = zip(*map(torch.from_numpy, get_objects(name)))
        labels: Any = [{"boxes": boxes, "class_labels": classes} for boxes, classes in found]
    else:
        labels = torch.from_numpy(get_labels(name))

    def loss() -> Any:
        if name == "resnet50":
            return torch.nn.functional.cross_entropy(model(images), labels)
        return model(pixel_values=images, labels=labels).loss

    update = get_torch_update(model.parameters(), loss, 1e-5)

    def train() -> None:
        model.train()
        update()

    @torch.no_grad()
    def evaluate() -> None:
        model.eval()
        model(images)

    return {TRAINING: train, EVALUATION: evaluate}


# ---- both ----------------------------------------------------------------------------------------------------


def time_steps(steps: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Seconds of a step of each kind."""
    return {kind: time_call(step)[0] for kind, step in steps.items()}


def measure(name: str, options: argparse.Namespace) -> dict[str, float]:
    from paddlevit_dist.extensions.cpu_kernels.accelerate import PLAIN_LAYERS

    pythons = {OURS: sys.executable, PLAIN: sys.executable, TORCH: options.peer_python}
    taken = take_turns(__file__, pythons, [name], options.rounds, added={PLAIN: {PLAIN_LAYERS: "1"}})
    size, result = SIZES[name], {}
    for kind in (TRAINING, EVALUATION):
        seconds = {library: [one[kind] for one in values] for library, values in taken.items()}
        rows = [
            [library, Spread.of(values).text(1e3, 0), rounds.ratios(values, seconds[OURS]).text()]
            for library, values in seconds.items()
        ]
        title = f"{name}, {kind}: {size.batch} x {size.side} pixels, one thread, {options.rounds} rounds"
        rounds.print_table(title, ["", "ms", "times ours"], rows)
        for library, word in ((PLAIN, "plain"), (TORCH, "torch")):
            if library in seconds:
                result[f"{name}_{kind}_over_{word}"] = rounds.ratios(seconds[library], seconds[OURS]).median
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default="", help="an interpreter that has torch, transformers, timm and SciPy")
    parser.add_argument("--only", nargs="+", choices=list(SIZES), default=sized(list(SIZES), ["rtdetr", "detr"]))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--serve", nargs=2, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        library, name = options.serve
        steps = (torch_steps if library == TORCH else our_steps)(name)
        serve(lambda: time_steps(steps))
        return
    rounds.print_machine()
    rounds.print_result({key: value for name in options.only for key, value in measure(name, options).items()})


if __name__ == "__main__":
    main()
