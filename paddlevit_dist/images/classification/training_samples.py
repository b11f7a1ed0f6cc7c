"""Training samples of a classifier: class balance, decoders, and what replaces unreadable images."""

from pathlib import Path

import numpy as np

from ...core.registry.extension_points import COMPILED_TRAINING_TRANSFORM
from ...core.runtime.environment import program
from ...core.runtime.errors import UserError
from ...core.runtime.printing import one_line
from ..data.parts import PartReader
from ..data.quarantine import ReplacementReader
from ..transforms.albumentations_file import AlbumentationsFile
from ..transforms.crops import GlyphTransform, TrainingTransform
from ..transforms.decoding_opencv import FastReader, FastTransform, require_opencv
from .augmentation import build_augmentation
from .class_balance import compute_class_weights, format_imbalance
from .samples import ClassificationSamples
from .settings import ClassificationSettings


def build_training_transform(config: ClassificationSettings, kind: str) -> TrainingTransform | GlyphTransform:
    """Build the transform of training images of a kind, "photo" or "glyph"."""
    data = config.DATA
    augment = build_augmentation(config.TRAIN, data.IMAGENET_MEAN)
    if kind == "glyph":
        distortion = data.GLYPH_DISTORTION
        return GlyphTransform(data.IMAGE_SIZE, True, data.IMAGE_CHANNELS, distortion=distortion, augment=augment)
    crop = (data.CROP_SCALE[0], data.CROP_SCALE[1]), (data.CROP_RATIO[0], data.CROP_RATIO[1])
    transform = COMPILED_TRAINING_TRANSFORM.find() or TrainingTransform
    return transform(data.IMAGE_SIZE, *crop, data.HORIZONTAL_FLIP, data.IMAGE_CHANNELS, augment)


def build_training_samples(
    config: ClassificationSettings, samples: ClassificationSamples, num_classes: int
) -> tuple[ClassificationSamples, np.ndarray | None]:
    """Prepare samples as the configuration says; a ``UserError`` if a key needs what their dataset lacks.

    Returns the samples with notices on them, and the weight of each class, (classes,), if there are weights.
    """
    data, dataset = config.DATA, samples.dataset
    labels = dataset.labels
    if labels is None and (data.CLASS_BALANCED or config.TRAIN.CLASS_WEIGHTS is not None):
        raise UserError(
            f"dataset {data.DATASET} does not expose its labels: give it an attribute 'labels', or remove "
            "DATA.CLASS_BALANCED and TRAIN.CLASS_WEIGHTS"
        )
    class_weights = compute_class_weights(config.TRAIN.CLASS_WEIGHTS, labels, num_classes)
    samples.is_balanced = data.CLASS_BALANCED
    if dataset.reading is not None:  # image files
        packing = f"store smaller images once ({program('prepare images')} -h)"
        samples.reading_advice = (packing,) if data.DECODER == "fast" else ("DATA.DECODER fast", packing)
    if labels is not None:
        is_corrected = data.CLASS_BALANCED or class_weights is not None
        samples.notices += map(one_line, format_imbalance(labels, samples.class_names, is_corrected))
    if data.ALBUMENTATIONS is not None:
        samples.augmentation = AlbumentationsFile(data.ALBUMENTATIONS)
    if data.DECODER == "fast":
        _use_fast_decoder(config, samples)
    if data.ON_INVALID_SAMPLE == "skip":
        samples.replacements = ReplacementReader(Path(config.SAVE).absolute())
    elif samples.augmentation is None and dataset.reads_parts and isinstance(samples.transform, TrainingTransform):
        # Not with ON_INVALID_SAMPLE skip: PartReader decodes only the crop, in the transform, too late to replace a
        # bad image.
        samples.reader = PartReader(dataset)
    return samples, class_weights


def _use_fast_decoder(config: ClassificationSettings, dataset: ClassificationSamples) -> None:
    cv2 = require_opencv()
    if dataset.dataset.reading is None or not isinstance(dataset.transform, TrainingTransform):
        raise UserError(f"DATA.DECODER fast is for datasets of image files, not for {config.DATA.DATASET}")
    dataset.reader = FastReader(dataset.dataset, config.DATA.IMAGE_CHANNELS)
    dataset.transform = FastTransform(dataset.transform)
    dataset.notices.append(f"training images are read with OpenCV {cv2.__version__} (DATA.DECODER fast)")
