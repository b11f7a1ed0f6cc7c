"""The input that published weights of a classifier expect; settings read it here, without Paddle."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...core.registry.model_names import find_input_fields
from ...core.registry.model_sources import find_bridged_input
from ..image_size import ImageSize

HALF = (0.5, 0.5, 0.5)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ExpectedInput(NamedTuple):
    """The input that weights of a classifier were trained and evaluated on.

    ``mean`` and ``std`` are per channel, of pixels from 0 to 1; ``crop_pct`` is the share of the resized image that is
    kept, after a resize with ``interpolation`` and in the ``crop_mode`` of ``EvaluationTransform``. ``image_size`` is
    one number of pixels, or [height, width]. A file may state another filter, such as "random": a run is refused unless
    its key sets a value.
    """

    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    crop_pct: float = 0.875
    interpolation: str = "bicubic"
    image_size: ImageSize = 224
    crop_mode: str = "center"

    @classmethod
    def from_settings(cls, data: Mapping[str, Any]) -> "ExpectedInput":
        """Return the input that keys of the section DATA describe."""
        mean, std = tuple(data["IMAGENET_MEAN"]), tuple(data["IMAGENET_STD"])
        return cls(mean, std, *(data[key] for key in ("CROP_PCT", "INTERPOLATION", "IMAGE_SIZE", "CROP_MODE")))


def list_inputs(
    variants: Mapping[str, Mapping[str, Any]],
    usual: ExpectedInput,
    exceptions: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, ExpectedInput]:
    """Return the input that the weights of each variant expect: ``usual`` at the variant's own image size.

    Weights for more pixels than the usual were fine-tuned at that size, and are evaluated without a margin.
    ``exceptions`` are the fields in which a variant differs, by name.
    """
    inputs = {}
    for name, options in variants.items():
        size = options.get("image_size", usual.image_size)
        crop = 1.0 if size > usual.image_size else usual.crop_pct
        changed = {"crop_pct": crop, "image_size": size, **(exceptions or {}).get(name, {})}
        inputs[name] = usual._replace(**changed)
    return inputs


def find_variant_input(model: str) -> ExpectedInput | None:
    """Return what published weights of a registered classifier expect of images; None for "vit" and other models."""
    fields = find_bridged_input(model) if ":" in model else find_input_fields(model)
    return None if fields is None else ExpectedInput(**fields)
