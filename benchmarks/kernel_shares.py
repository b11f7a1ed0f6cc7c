"""What each family of compiled loops in ``cpu_kernels/`` brings to a workload, on one thread.

    python benchmarks/kernel_shares.py [--only WORKLOAD ...] [--rounds 9]

In a round a workload runs once with all families, and once without each that it uses: its layers have their plain
classes again, its loss or transform is the plain one. A family's gain is the median, over the rounds, of the processor
time without it over the time with all, minus 1: other programs change that little. A family that others need takes
these along: fused blocks need linear layers, layer norm, MLP and GELU, and the MLP needs linear layers and GELU.

Photographs: JPEGs of 500 x 375 drawn from noise of all scales, decoded and cut as recipes do for ImageNet.
"""

import argparse
import contextlib
import functools
import io
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import image_networks
import numpy as np
import rounds
from image_pipeline import restart_tuned
from PIL import Image
from smallest import sized
from training_updates import get_paddle_update

ALL = "all"
CLASSIFIERS = {  # workload -> variant, images of a batch
    "ViT-Ti/16": ("vit_tiny_patch16_224", sized(8, 1)),
    "Swin-T": ("swin_tiny_patch4_window7_224", sized(4, 1)),
    "ConvNeXt-T": ("convnext_tiny", sized(2, 1)),
    "PVTv2-B0": ("pvtv2_b0", sized(8, 1)),
}
# Family of layers -> names of their classes
FAMILIES = {
    "fused blocks": ("FastViTBlock", "FastSwinBlock"),
    "attention and sums of configurable blocks": ("FastConfigurableAttention", "FastConfigurableBlock"),
    "linear": ("FastLinear",),
    "layer norm": ("FastLayerNorm",),
    "GELU": ("FastGELU",),
    "MLP": ("FastMlp",),
    "patches": ("FastPatchEmbedding", "FastNormalizedPatches"),
    "convolution of windows": ("FastConv",),
    "depth-wise convolution": ("FastDepthwiseConv",),
    "3D convolution": ("FastConv3D",),
    "scaled branch": ("FastConvNeXtBlock",),
    "attention to fewer keys": ("FastSpatialReductionAttention",),
    "sum of enlarged maps": ("FastSegFormerHead",),
    "deformable sampling": ("FastPointSampling",),
    "attention among queries": ("FastPositionAttention",),
    "transposed convolutions": ("FastClassicDecoder",),
}
Switch = Callable[[], contextlib.AbstractContextManager]


@contextlib.contextmanager
def plain(layers: list[Any]) -> Iterator[None]:
    """Give fast layers their plain classes for a while."""
    fast = [type(layer) for layer in layers]
    for layer in layers:
        layer.__class__ = type(layer).__mro__[1]
    try:
        yield
    finally:
        for layer, kind in zip(layers, fast):
            layer.__class__ = kind


def find_switches(model: Any) -> dict[str, Switch]:
    """Find the families that a model uses, each with what switches it off."""
    from paddlevit_dist.core.runtime.lazy_names import import_object
    from paddlevit_dist.extensions.cpu_kernels import accelerate

    kinds = {name.split(":")[1]: import_object(f".extensions.cpu_kernels.{name}") for name in accelerate._FAST.values()}
    assert {name for names in FAMILIES.values() for name in names} == set(kinds)  # no class is forgotten
    switches: dict[str, Switch] = {}
    for family, names in FAMILIES.items():
        layers = [one for one in model.sublayers(include_self=True) if type(one) in [kinds[name] for name in names]]
        if layers:
            switches[family] = lambda layers=layers: plain(layers)
    return switches


def without_function(name: str) -> contextlib.AbstractContextManager:
    """Hide a function that ``cpu_kernels`` brings."""
    from paddlevit_dist.core.registry.names import REGISTRY

    return patch.object(REGISTRY, "functions", {key: value for key, value in REGISTRY.functions.items() if key != name})


def timed(work: Callable[[], Any], switch: Switch = contextlib.nullcontext) -> Callable[[], float]:
    def measure() -> float:
        with switch():
            started = time.process_time()
            work()
            return time.process_time() - started

    return measure


# ---- networks ------------------------------------------------------------------------------------------------

Workload = tuple[dict[str, Callable[[], Any]], dict[str, Switch]]  # kinds of work, and switches


def of_network(model: Any, inputs: Any, loss: Callable[[], Any]) -> Workload:
    """An update by the loss's gradients, and an evaluation, of a network."""
    import paddle

    own_update = get_paddle_update(model, loss, 1e-5)

    def update() -> None:
        model.train()
        own_update()

    @paddle.no_grad()
    def evaluate() -> None:
        model.eval()
        model(inputs)

    return {"update": update, "evaluation": evaluate}, find_switches(model)


def make_classifier(name: str) -> Workload:
    import paddle

    from paddlevit_dist import create_model

    variant, batch = CLASSIFIERS[name]
    model, images = create_model(variant), paddle.randn([batch, 3, 224, 224])
    labels = paddle.randint(0, 1000, [batch])
    return of_network(model, images, lambda: paddle.nn.functional.cross_entropy(model(images), labels))


def make_segmentation() -> Workload:
    import paddle

    from paddlevit_dist import create_model
    from paddlevit_dist.core.losses import resized_cross_entropy

    side, batch = sized((512, 2), (64, 1))
    model, images = create_model("segformer_b0", num_classes=150), paddle.randn([batch, 3, side, side])
    labels = paddle.randint(0, 150, [batch, side, side])
    loss = lambda: resized_cross_entropy(model(images), labels, 255) / labels.size  # noqa: E731
    work, switches = of_network(model, images, loss)
    return work, {**switches, "resized cross-entropy": lambda: without_function("resized_cross_entropy")}


def make_detection() -> Workload:
    import paddle

    from paddlevit_dist import create_model

    model = create_model("rtdetr_r18vd", num_classes=image_networks.CLASSES)
    images = paddle.to_tensor(image_networks.get_images("rtdetr"))
    loss = image_networks.our_detection("rtdetr", "rtdetr_r18vd", model, images)
    return of_network(model, images, loss)


def make_volumes() -> Workload:
    import paddle

    from paddlevit_dist import create_model

    crop = sized((2, 1, 32, 40, 40), (1, 1, 16, 16, 16))
    model, volumes = create_model("unet3d", num_classes=8, width=8, depth=3), paddle.randn(crop)
    return of_network(model, volumes, lambda: model(volumes).square().mean())


# ---- photographs ---------------------------------------------------------------------------------------------


def draw_photographs(count: int) -> list[bytes]:
    """JPEGs of 500 x 375 with details of every size."""
    generator, found = np.random.default_rng(0), []
    for _ in range(count):
        total = np.zeros((375, 500, 3), np.float32)
        for side in (4, 16, 64, 250):
            noise = generator.integers(0, 256, (side, side, 3), dtype=np.uint8)
            total += np.asarray(Image.fromarray(noise).resize((500, 375), Image.Resampling.BICUBIC), np.float32)
        buffer = io.BytesIO()
        Image.fromarray((total / 4).astype(np.uint8)).save(buffer, "JPEG", quality=90)
        found.append(buffer.getvalue())
    return found


def make_samples(*overrides: str) -> Workload:
    """Samples of the training transform: decoded, cut, augmented."""
    from paddlevit_dist.core import settings
    from paddlevit_dist.extensions.cpu_kernels import operations, transforms
    from paddlevit_dist.images.classification.training_samples import build_training_transform

    config = settings.load(["-image_size=224", *overrides]).values
    transform, files = build_training_transform(config, "photo"), draw_photographs(sized(40, 2))
    transform.prepare()
    equal, epochs = operations.has_equal_operation, itertools.count()

    def sample() -> None:
        epoch = next(epochs) // (len(off) + 1)  # all contenders of a round draw the same numbers
        for number, file in enumerate(files):
            transform(Image.open(io.BytesIO(file)), np.random.default_rng((number, epoch)))

    off: dict[str, Switch] = {"resize": lambda: patch.object(transforms, "can_resize", lambda box: False)}
    groups = {
        "warps": ("Rotate", "Shear", "Translate"),
        "tables of levels": ("AutoContrast", "Equalize", "Invert", "Poster", "Solar", "Contrast", "Brightness"),
        "blends": ("Color", "Desaturate", "Sharpness"),
    }
    if transform.augment is not None:
        for group, starts in groups.items():
            keeps = lambda name, starts=starts: not name.startswith(starts) and equal(name)  # noqa: E731
            off[group] = lambda keeps=keeps: patch.object(operations, "has_equal_operation", keeps)
    return {"samples": sample}, off


# ---- all -----------------------------------------------------------------------------------------------------

WORKLOADS: dict[str, Callable[[], Workload]] = {
    **{name: functools.partial(make_classifier, name) for name in CLASSIFIERS},
    "SegFormer-B0": make_segmentation,
    "RT-DETR-R18": make_detection,
    "landmark U-Net": make_volumes,
    "photographs": make_samples,
    "photographs, RandAugment": lambda: make_samples("TRAIN.RAND_AUGMENT", "rand-m9-mstd0.5-inc1"),
}


def measure(name: str, count: int) -> dict[str, float]:
    """Print the gains in a workload; return their medians in percent."""
    works, switches = WORKLOADS[name]()
    result = {}
    for kind, work in works.items():
        contenders = {ALL: timed(work)}
        for family, switch in switches.items():
            contenders[family] = timed(work, switch)
        seconds = rounds.interleave(contenders, count)
        rows = []
        for family in switches:
            gains = [100 * (off / on - 1) for off, on in zip(seconds[family], seconds[ALL])]
            low, median, high = np.quantile(gains, (0.25, 0.5, 0.75)).tolist()
            spread = rounds.Spread(median, low, high)
            result[f"{name}, {kind}: {family}"] = spread.median
            rows.append([family, spread.text(digits=1)])
        title = f"{name}, {kind}: {1e3 * statistics.median(seconds[ALL]):.0f} ms with all"
        rounds.print_table(title, ["family", "gain in %, median [quartiles]"], rows)
        sys.stdout.flush()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS), metavar="WORKLOAD")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    restart_tuned()
    rounds.print_machine()
    rounds.print_result({key: gain for name in options.only for key, gain in measure(name, options.rounds).items()})


if __name__ == "__main__":
    main()
