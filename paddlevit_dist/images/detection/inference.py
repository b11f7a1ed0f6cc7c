"""Forward passes of a detector over the images of a batch, or over the parts that a window plan chooses."""

import time
from collections.abc import Callable
from typing import Any

import paddle

from ...core.runtime.transfers import to_device
from .data.samples import PARTS, SECONDS, host_facts, passes
from .detections import DetectedObjects, SpeedMeter
from .detector import Outputs, choose_images
from .settings import DetectionSettings
from .windows import merge_images


def detect_objects(
    model: paddle.nn.Layer,
    batch: dict[str, Any],
    normalize: Callable[..., paddle.Tensor],
    config: DetectionSettings,
    speed: SpeedMeter,
) -> list[DetectedObjects]:
    """Detect objects in each image, in its pixels, best first; all passes are launched before the host waits for a GPU.

    Args:
        model: a ``Detector``, or an exported function in its place.
        batch: collated samples; images are uint8 (n, 3, height, width), padded.
        normalize: normalizes pixels, see ``Detection``.
        speed: meter of this process, which gets the batch.
    """
    facts, started, keys = host_facts(batch), time.perf_counter(), config.DETECTION
    stored_sizes = facts[PARTS][:, 3:5] if PARTS in facts else facts["original_sizes"]
    most = (config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE) if PARTS in facts else None
    detections: list[Any] = [None] * len(facts["sizes"])
    outputs: list[tuple[list[int], Outputs]] = []
    for rows in passes(facts["sizes"], keys.EVAL_BATCHING, most):
        sizes = facts["sizes"][rows]
        images = normalize(choose_images(batch["images"], rows, sizes), sizes)
        is_padded = (sizes != sizes[0]).any()
        outputs.append((rows, model(images, to_device(sizes) if is_padded else None)))
    if config.EVAL and not images.place.is_cpu_place():
        paddle.device.synchronize()  # for the timing; decoding would wait anyway
    computed = time.perf_counter()
    for rows, pass_outputs in outputs:
        for row, decoded in zip(rows, model.decode(pass_outputs, facts["sizes"][rows], stored_sizes[rows])):
            detections[row] = decoded
    if PARTS in facts:
        detections = merge_images(detections, facts[PARTS], facts["original_sizes"], keys.MERGE_IOU)
    detections = [image.best_of_classes(keys.MAX_DETECTIONS) for image in detections]
    if getattr(model, "computes_alone", True):
        speed.add(len(detections), batch.get(SECONDS, 0.0), computed - started, time.perf_counter() - computed)
    return detections
