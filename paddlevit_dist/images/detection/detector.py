"""Interface between a detection network and its task, initializers of layers, and padding of batches."""

import inspect
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, ClassVar, NamedTuple

import numpy as np
import paddle
from paddle import nn

from ...core.registry.required_methods import missing_method
from ...core.runtime.errors import UserError
from ...core.runtime.transfers import to_device
from ...core.tasks.model import Model, list_parameters
from ...core.tasks.model_factory import create_model, model_options
from ...core.tasks.step_types import LossTerm, StepPosition
from ..mask_queries.mask_logits import encode_logits
from ..models.layers import dense as dense  # of all detectors
from ..models.layers import normal as normal
from ..models.layers import single_or_double as single_or_double
from ..models.layers import uniform as uniform
from ..models.layers import zeros as zeros
from ..models.segmenter import drop_layers as drop_layers
from .denoising import ContrastiveNoise, DenoisingQueries
from .detections import DetectedObjects

Outputs = dict[str, paddle.Tensor]
_NORMALIZERS = ("global", "reference")

# The 80 categories of COCO's boxes, by their ids; eleven numbers from 1 to 91 are not used.
# Source: the entry ``categories`` of instances_val2017.json, cocodataset.org.
_NAMES = (
    "person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, -, stop sign, "
    "parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, -, backpack, umbrella, "
    "-, -, handbag, tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, "
    "skateboard, surfboard, tennis racket, bottle, -, wine glass, cup, fork, knife, spoon, bowl, banana, apple, "
    "sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake, chair, couch, potted plant, bed, -, dining "
    "table, -, -, toilet, -, tv, laptop, mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, "
    "refrigerator, -, book, clock, vase, scissors, teddy bear, hair drier, toothbrush"
)
COCO_CATEGORIES: dict[int, str] = {
    number: name for number, name in enumerate(_NAMES.split(", "), start=1) if name != "-"
}


# Pascal VOC's names of six of these categories, which Darknet and transformers' RT-DETR use for COCO.
# Source: data/coco.names of pjreddie/darknet.
_OTHER_NAMES = {
    "motorbike": "motorcycle",
    "aeroplane": "airplane",
    "sofa": "couch",
    "pottedplant": "potted plant",
    "diningtable": "dining table",
    "tvmonitor": "tv",
}


class DetectionTargets(NamedTuple):
    """The objects in a batch of N images, padded to M objects, M at least 1."""

    boxes: paddle.Tensor  # float32 (N, M, 4), x0, y0, x1, y1 in pixels of the transformed image; padded with zeros
    labels: paddle.Tensor  # int64 (N, M), from 0; padded with -1
    sizes: paddle.Tensor  # int64 (N, 2), height and width of each image without padding
    box_counts: np.ndarray | None = None  # int64 (N,) in host memory; None: only ``labels`` contains it
    masks: paddle.Tensor | None = None  # uint8 (N, M, H, W), 1 on the object; None for a network without masks
    denoising: DenoisingQueries | None = None  # objects with noise, for a network with denoising training, else None
    updates: tuple[int, int] | None = None  # made before this one, and of the whole training; None: unknown

    def require_box_counts(self) -> np.ndarray:
        """Return ``box_counts``; raise ValueError if they are None."""
        if self.box_counts is None:
            raise ValueError("the targets have no box_counts")
        return self.box_counts


class TopDetections(NamedTuple):
    """Objects detected in N images, n in each, best first."""

    labels: paddle.Tensor  # int64 (N, n), from 0
    boxes: paddle.Tensor  # float32 (N, n, 4), x0, y0, x1, y1 as fractions of the image
    scores: paddle.Tensor  # float32 (N, n)
    masks: paddle.Tensor | None = None  # float32 (N, n, height, width), logits in the whole image; None: no masks

    def read(self, original_sizes: np.ndarray) -> list[DetectedObjects]:
        """Copy the detections to host memory, for images of these heights and widths, int64 (N, 2)."""
        masks = None if self.masks is None else self.masks.numpy()
        parts = [self.boxes, self.scores.unsqueeze(-1), self.labels.unsqueeze(-1)]
        packed = paddle.concat([part.astype("float32") for part in parts], axis=-1).numpy()  # (N, n, 6)
        detections = []
        for image, (image_values, (height, width)) in enumerate(zip(packed, np.asarray(original_sizes).tolist())):
            scale = np.array([width, height, width, height], dtype=np.float32)
            detections.append(
                DetectedObjects(
                    image_values[:, :4] * scale,
                    image_values[:, 4].copy(),
                    image_values[:, 5].astype(np.int64),
                    None if masks is None else encode_logits(masks[image], (height, width)),
                )
            )
        return detections


class DetectionCriterion:
    """The losses of a detector; picklable, without Paddle state, for the loader processes."""

    #: names of the normalizers that ``counts`` returns; other terms contain their count
    normalizer_names: tuple[str, ...] = ()
    #: whether ``terms`` exchanges sums between ranks, which must then call it together
    communicates: bool = False
    #: generator of the denoising queries of a batch; None: no denoising
    noise: ContrastiveNoise | None = None

    def __init__(self, normalizer: str) -> None:
        """Divide losses by counts of all devices ("global"), or as the model's authors do ("reference").

        A ``UserError`` says that ``normalizer`` is neither.
        """
        if normalizer not in _NORMALIZERS:
            raise UserError(f"normalizer '{normalizer}': expected one of {', '.join(_NORMALIZERS)}")
        self.is_global = normalizer == "global"

    @classmethod
    def build(cls, name: str, losses: Mapping[str, Any] | None, *sizes: Any, **options: Any) -> Any:
        """Build the losses of the detector ``name``.

        Args:
            losses: arguments of the constructors by name that have defaults, such as those that keys set.
            sizes, options: arguments that the detector sets, if ``losses`` do not.

        Raises:
            UserError: the losses have no such argument.
        """
        defaults = list_parameters(cls, DetectionCriterion).defaults
        known = sorted(key for key, default in defaults.items() if default is not inspect.Parameter.empty)
        for key in losses or {}:
            if key not in known:
                raise UserError(
                    f"the losses of {name} have no '{key}', only {', '.join(known)}: remove it, or choose another "
                    "MODEL.NAME"
                )
        return cls(*sizes, **{**options, **(losses or {})})

    @abstractmethod
    def loss_normalizers(self, batch: Mapping[str, np.ndarray]) -> dict[str, int | float]:
        """Return normalizers of a training batch by name, one for each of ``normalizer_names``.

        The batch has ``labels``, int64 (N, M), and ``box_counts``, int64 (N,). The engine sums the normalizers over all
        ranks and micro-batches of an update. Runs in the loader process: numpy only.
        """

    @abstractmethod
    def terms(self, outputs: Outputs, targets: DetectionTargets) -> dict[str, LossTerm]:
        """Return loss terms by name, each a sum over the batch with its count.

        Every term depends on the outputs, even without objects, so that all ranks have gradients of the same
        parameters.
        """

    def note_objects(self, objects: np.ndarray, step: StepPosition) -> None:
        """Record the objects of each image, int (N,), for ``epoch_lines``, once per ``step`` even if passes repeat."""

    def epoch_lines(self) -> list[str]:
        """Return log lines on the objects that this process trained on since the last call."""
        return []


class Detector(Model):
    """Base class of detection networks for images of any size."""

    #: outputs of the classifier in the authors' weights, one for each number up to COCO's largest id and one more
    coco_outputs: ClassVar[int]
    #: whether the probabilities of the classes and of no object sum to 1; else classes are independent
    has_no_object: ClassVar[bool] = True
    #: sides of input images have to be multiples of this
    side_multiple: int = 1
    #: whether training images may be padded
    takes_padding: ClassVar[bool] = True
    #: filter of the authors for training batches of another side (DATA.BATCH_SIDES), as in ``interpolate``
    batch_filter: ClassVar[str] = "nearest"
    #: whether padding is black, which is normalized as pixels are, and evaluated images fill a square; else it is zero
    pads_with_black: ClassVar[bool] = False
    #: whether training needs a mask of each object
    learns_masks: ClassVar[bool] = False
    #: whether training reads masks at fractions of the image, so that batches of another side keep their masks
    masks_are_fractions: ClassVar[bool] = False
    #: whether ``forward`` of images alone and ``best`` are functions of tensors, which can be exported
    is_exportable: ClassVar[bool] = False
    #: command-line arguments that prepare images for the published weights, if they are not the defaults
    published_input: ClassVar[tuple[str, ...]] = ()
    #: normalization of losses with TRAIN.DETECTION_NORMALIZER reference, for the log
    reference_normalizer: ClassVar[str] = (
        "as by DETR's authors: boxes by the count of all devices, classes by the count of each device"
    )

    def count_cells(self, height: int, width: int) -> int | None:
        """Count the cells of the maps for an image, one for each query; None: queries do not start at cells."""
        return None

    def require_size(self, key: str, size: tuple[int, int], name: str) -> None:
        """Check that the network ``name`` takes images of this height and width, set by ``key``.

        Raises:
            UserError: a side is not a multiple of ``side_multiple``, or there are fewer cells than queries.
        """
        multiple = self.side_multiple
        for side in size:
            if side % multiple:
                below = side // multiple * multiple
                raise UserError(
                    f"{key} {side}: {name} takes images whose sides are multiples of {multiple}: use "
                    f"{below or multiple} or {below + multiple}"
                )
        cells, queries = self.count_cells(*size), getattr(self, "num_queries", 0)
        if cells is not None and cells < queries:
            sufficient = next(
                edge for edge in count(multiple, multiple) if (self.count_cells(edge, edge) or 0) >= queries
            )
            value = size[0] if size[0] == size[1] else list(size)
            raise UserError(
                f"{key} {value}: the maps of {name} have {cells:,} cells at this size, fewer than its {queries:,} "
                f"queries: use {sufficient} or more, or lower MODEL.NUM_QUERIES"
            )

    @property
    def pretrained_part(self) -> Model:
        """The model that is initialized with a classifier's weights."""
        return self.backbone

    def outputs_to_classes(self, outputs: int) -> int:
        """Return the number of classes of a classifier with these outputs; one may be for no object."""
        return len(COCO_CATEGORIES) if outputs == self.coco_outputs else outputs - self.has_no_object

    def plain_class(self, name: str) -> str:
        """Normalize a class name, see ``Model.plain_class``; Pascal VOC's names become COCO's."""
        plain = super().plain_class(name)
        return _OTHER_NAMES.get(plain, plain)

    @classmethod
    def most_objects(cls, **options: Any) -> tuple[str, int] | None:
        """Return what limits the objects detected in an image, such as a key, and the number; None: unlimited."""
        return None

    @classmethod
    @abstractmethod
    def criterion(
        cls, name: str, num_classes: int, losses: Mapping[str, Any] | None = None, **options: Any
    ) -> DetectionCriterion:
        """Build the losses of ``build(name, num_classes, **options)`` without the model.

        ``losses`` are arguments of the family's criterion that differ from its defaults, such as ``normalizer``.
        """

    @abstractmethod
    def forward(
        self, images: paddle.Tensor, sizes: paddle.Tensor | None = None, targets: DetectionTargets | None = None
    ) -> Outputs:
        """Compute the outputs of a batch, for ``decode`` and for the criterion.

        Args:
            images: float32 (N, 3, H, W), normalized, zeros where padded at the right and the bottom.
            sizes: int64 (N, 2), height and width of each image without padding; None: no padding.
            targets: for training only; without them nothing is random.
        """

    def best(self, outputs: Outputs) -> TopDetections:
        """Select the detections among ``outputs`` of ``forward`` without targets, equally many per image."""
        raise missing_method(type(self), "best")

    def decode(self, outputs: Outputs, sizes: np.ndarray, original_sizes: np.ndarray) -> list[DetectedObjects]:
        """Return the detections in each image in host memory, best first; it waits for the device once.

        Args:
            outputs: result of ``forward`` without targets.
            sizes: int64 (N, 2), as passed to ``forward``.
            original_sizes: int64 (N, 2), height and width of the stored images, in whose pixels boxes are returned.
        """
        return self.best(outputs).read(original_sizes)


class QueryDetector(Detector):
    """Base class of detectors whose queries are matched with objects."""

    is_exportable = True
    least_values = {"encoder_layers": 0, "decoder_layers": 1, "denoising": 0}

    @classmethod
    def build(cls, name: str, num_classes: int, image_size: Any | None = None, **options: Any) -> Model:
        """Build the model; options of the variant's backbone do not apply to another backbone."""
        default_backbone = cls.variants.get(name, {}).get("backbone")
        if options.get("backbone", default_backbone) != default_backbone:
            options = {"backbone_options": None, **options}
        return super().build(name, num_classes, image_size, **options)

    @classmethod
    def most_objects(cls, **options: Any) -> tuple[str, int] | None:
        """Return the number of queries, which limits the objects in an image."""
        return "MODEL.NUM_QUERIES", options["num_queries"]

    def best(self, outputs: Outputs) -> TopDetections:
        """Return the best pairs of a query and a class, one for each query."""
        labels, queries, scores = rank_queries(outputs["logits"])
        masks = outputs.get("masks")
        if masks is not None:  # of the same queries
            masks = paddle.take_along_axis(masks, queries.unsqueeze([2, 3]), axis=1)
        return TopDetections(labels, select_corners(outputs["boxes"], queries), scores, masks)


def rank_queries(logits: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Return the best pairs of a query and a class, as many as queries, best first: labels, queries, scores (N, Q).

    ``logits`` are (N, Q, classes).
    """
    logits = single_or_double(logits)
    classes = logits.shape[2]
    scores, indices = paddle.topk(nn.functional.sigmoid(logits).flatten(1), logits.shape[1], axis=1)
    return indices % classes, indices // classes, scores


def build_backbone(
    name: str, fixed: Mapping[str, Any], options: Mapping[str, Any] | None, levels: Sequence[int]
) -> Model:
    """Build a model for its feature maps of images of any size.

    Args:
        fixed: options, used if the model has them.
        options: further options.
        levels: the maps that are used, as indices that may be negative.

    Raises:
        UserError: the model does not have such a map.
    """
    model_defaults = model_options(name).defaults
    fixed = {key: value for key, value in {"any_size": True, **fixed}.items() if key in model_defaults}
    model = create_model(name, num_classes=0, **{**fixed, **(options or {})})
    drop_layers(model, ("head.last_conv",))
    number = len(model.feature_strides)
    if not number:
        raise UserError(f"backbone '{name}' has no feature maps: use a ResNet, a Swin, a PVTv2 or a ConvNeXt")
    for level in levels:
        if not -number <= level < number:
            raise UserError(f"backbone '{name}' has {number} feature maps: feature_level {level} is out of range")
    return model


def without_gradient(x: paddle.Tensor) -> paddle.Tensor:
    """Return ``x.detach()``, from a copy in a static graph.

    Paddle 3.3 does not know there that the two share memory, and may overwrite the detached tensor before it is read.
    """
    return x.detach() if paddle.in_dynamic_mode() else x.clone().detach()


def select_corners(boxes: paddle.Tensor, places: paddle.Tensor) -> paddle.Tensor:
    """Convert boxes (N, queries, 4) at ``places`` (N, n) to x0, y0, x1, y1; sides may be negative (D-FINE)."""
    boxes = single_or_double(boxes)
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    ends = paddle.concat([center - half, center + half], axis=-1)
    return paddle.take_along_axis(ends, places.unsqueeze(-1), axis=1)


def choose_images(images: paddle.Tensor, rows: Sequence[int], sizes: np.ndarray) -> paddle.Tensor:
    """Select ``rows`` of a batch (N, 3, H, W), padded no more than their ``sizes``, int64 (rows, 2), need."""
    if len(rows) < images.shape[0]:
        first = rows[0]
        is_run = list(rows) == list(range(first, first + len(rows)))
        images = (
            images[first : first + len(rows)] if is_run else paddle.gather(images, to_device(np.array(rows)), axis=0)
        )
    height, width = sizes.max(axis=0).tolist()
    return images if [height, width] == images.shape[2:] else images[:, :, :height, :width]


def zero_padding(images: paddle.Tensor, sizes: np.ndarray, on_device: paddle.Tensor | None = None) -> paddle.Tensor:
    """Set images (N, 3, H, W) to zero outside ``sizes``, int64 (N, 2) (``on_device``: a copy), as DETR's authors do."""
    height, width = images.shape[2:]
    if (sizes == (height, width)).all():
        return images
    limits = to_device(sizes) if on_device is None else on_device
    rows = (paddle.arange(height) < limits[:, :1]).astype("float32")  # (N, H)
    columns = (paddle.arange(width) < limits[:, 1:]).astype("float32")  # (N, W)
    return images * (rows.unsqueeze(2) * columns.unsqueeze(1)).unsqueeze(1)  # (N, 1, H, W)
