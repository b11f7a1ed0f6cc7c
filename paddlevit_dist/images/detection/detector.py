"""The contract between a network that finds objects in images and its task; what its layers begin with; and images
of different sizes in one batch."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import paddle
from paddle import nn

from ...models import create_model, model_options
from ...runtime.errors import UserError
from ...runtime.transfers import to_device
from ...tasks.model import Model
from ...tasks.task import LossTerm, StepPosition
from ..models.layers import Linear
from .detections import DetectedObjects

if TYPE_CHECKING:
    from .rtdetr.denoising import ContrastiveNoise, DenoisingQueries

Outputs = dict[str, paddle.Tensor]
_NORMALIZERS = ("global", "reference")

# The 80 categories of COCO's boxes, by their ids, which leave out eleven numbers from 1 to 91.
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


# Names of Pascal VOC for six of these categories, which Darknet gave COCO's too, and transformers' RT-DETR has them.
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
    """The objects in a batch of N images, of which none has more than M; M is at least 1.

    Attributes:
        boxes: float32 (N, M, 4), x0, y0, x1, y1 in pixels of the transformed image; zeros where there are fewer.
        labels: int64 (N, M), from 0; -1 where there are fewer.
        sizes: int64 (N, 2), height and width of each image without padding.
        box_counts: int64 (N,) in the host's memory, how many objects each image has; None where nobody has them
            there: ``labels`` says the same.
        masks: uint8 (N, M, H, W) of the padded images, 1 on the object; None for a network without masks.
        denoising: objects with noise, for a network that learns from them; None for any other.
    """

    boxes: paddle.Tensor
    labels: paddle.Tensor
    sizes: paddle.Tensor
    box_counts: np.ndarray | None = None
    masks: paddle.Tensor | None = None
    denoising: "DenoisingQueries | None" = None


class TopDetections(NamedTuple):
    """Objects found in N images, n in each, best first.

    Attributes:
        labels: int64 (N, n), from 0.
        boxes: float32 (N, n, 4), x0, y0, x1, y1 as shares of the image.
        scores: float32 (N, n).
    """

    labels: paddle.Tensor
    boxes: paddle.Tensor
    scores: paddle.Tensor

    def read(self, original_sizes: np.ndarray) -> list[DetectedObjects]:
        """The same in the host's memory, of images of these heights and widths, int64 (N, 2)."""
        parts = [self.boxes, self.scores.unsqueeze(-1), self.labels.unsqueeze(-1)]
        packed = paddle.concat([part.astype("float32") for part in parts], axis=-1).numpy()  # (N, n, 6)
        found = []
        for own, (height, width) in zip(packed, np.asarray(original_sizes)):
            scale = np.array([width, height, width, height], dtype=np.float32)
            found.append(DetectedObjects(own[:, :4] * scale, own[:, 4].copy(), own[:, 5].astype(np.int64), None))
        return found


class DetectionCriterion:
    """The losses of a detector: plain numbers that can be pickled, no Paddle state.

    The task has one before any model is built, in the loader processes too.
    """

    #: names of the normalizers that ``counts`` returns; a term of another name brings its own count
    count_names: tuple[str, ...] = ()
    #: whether ``terms`` exchanges sums with the other ranks, which must call it together
    communicates: bool = False
    #: how the denoising queries of a batch are drawn; None: it has none
    noise: "ContrastiveNoise | None" = None

    def __init__(self, normalizer: str) -> None:
        """Losses are divided by counts of all devices ("global"), or as a model's authors do ("reference").

        Raises:
            UserError: it is neither.
        """
        if normalizer not in _NORMALIZERS:
            raise UserError(f"normalizer '{normalizer}': expected one of {', '.join(_NORMALIZERS)}")
        self.is_global = normalizer == "global"

    def counts(self, batch: Mapping[str, np.ndarray]) -> dict[str, int | float]:
        """Normalizers of a batch by term name, one for each of ``count_names``. The engine adds them up over all ranks
        and micro-batches of an update. Runs in the loader: numpy only.

        Args:
            batch: as collated for training: ``labels`` int64 (N, M), ``box_counts`` int64 (N,), ...
        """
        raise NotImplementedError

    def terms(self, outputs: Outputs, targets: DetectionTargets) -> dict[str, LossTerm]:
        """Loss terms by name, each a sum over the batch with its count. Every term depends on the outputs, also where
        no image has an object, so that all ranks have gradients of the same parameters."""
        raise NotImplementedError

    def note_objects(self, objects: np.ndarray, step: StepPosition) -> None:
        """Count the objects of each image of a micro-batch, int (N,), for ``epoch_lines``: once for each ``step``,
        since an update may run its passes again."""

    def epoch_lines(self) -> list[str]:
        """Return what the log should say of the objects that this process has trained on since the last call."""
        return []


class Detector(Model):
    """Base class of networks that find objects in images of any size."""

    #: outputs of the classifier in the authors' weights, one for each number up to COCO's largest id and one besides
    coco_outputs: ClassVar[int]
    #: whether the probabilities of the classes and of no object add up to 1; else each class has its own
    has_no_object: ClassVar[bool] = True
    #: the sides of images that it takes are multiples of this
    side_multiple: int = 1
    #: whether images of a training may be padded
    takes_padding: ClassVar[bool] = True
    #: whether training needs a mask of each object
    learns_masks: ClassVar[bool] = False
    #: whether ``forward`` of images alone and ``best`` are functions of tensors, which can be exported
    is_exportable: ClassVar[bool] = False
    #: words of a command line that prepare images as the published weights expect them, where it is not the default
    published_input: ClassVar[tuple[str, ...]] = ()
    #: what losses are divided by with TRAIN.DETECTION_NORMALIZER reference, for the log
    reference_normalizer: ClassVar[str] = (
        "as DETR's authors do: boxes by the count of all devices, classes by that of each device"
    )

    def count_cells(self, height: int, width: int) -> int | None:
        """Count the cells of its maps of an image of this size, of which each query needs one of its own; None: queries
        do not begin at cells."""
        return None

    def require_size(self, key: str, size: tuple[int, int], name: str) -> None:
        """See that it takes images of this height and width, which ``key`` sets.

        Args:
            name: of the model, for the message.
        Raises:
            UserError: a side is no multiple of what it has to be, or there are fewer cells than queries.
        """
        multiple = self.side_multiple
        for side in size:
            if side % multiple:
                below = side // multiple * multiple
                raise UserError(
                    f"{key} {side}: {name} takes images whose sides {multiple} divides: take {below or multiple} or "
                    f"{below + multiple}"
                )
        cells, queries = self.count_cells(*size), getattr(self, "num_queries", 0)
        if cells is not None and cells < queries:
            enough = next(side for side in count(multiple, multiple) if (self.count_cells(side, side) or 0) >= queries)
            shown = size[0] if size[0] == size[1] else list(size)
            raise UserError(
                f"{key} {shown}: the maps of {name} have {cells:,} cells there, and each of its {queries:,} queries "
                f"needs one: take {enough} or more, or lower MODEL.NUM_QUERIES"
            )

    @property
    def pretrained_part(self) -> Model:
        """The model whose weights a classifier brings."""
        return self.backbone

    def outputs_to_classes(self, outputs: int) -> int:
        """The classes of a classifier with so many outputs, of which one may be for no object."""
        return len(COCO_CATEGORIES) if outputs == self.coco_outputs else outputs - self.has_no_object

    def plain_class(self, name: str) -> str:
        """See ``Model.plain_class``; Pascal VOC's names of COCO's categories are COCO's."""
        plain = super().plain_class(name)
        return _OTHER_NAMES.get(plain, plain)

    @classmethod
    def most_objects(cls, **options: Any) -> tuple[str, int] | None:
        """Say how many objects the model of these options finds in an image at most: what to set for more, such as a
        key, and the number. None: nothing limits them.

        Args:
            options: all that the model has.
        """
        return None

    @classmethod
    def criterion(
        cls, name: str, num_classes: int, losses: Mapping[str, Any] | None = None, **options: Any
    ) -> DetectionCriterion:
        """The losses of the model that ``build(name, num_classes, **options)`` builds, without building it.

        Args:
            losses: arguments of the family's criterion that differ from its defaults, such as ``normalizer``.
        """
        raise NotImplementedError

    def forward(
        self, images: paddle.Tensor, sizes: paddle.Tensor | None = None, targets: DetectionTargets | None = None
    ) -> Outputs:
        """Compute what the network says of a batch, for ``decode`` and for the criterion.

        Args:
            images: float32 (N, 3, H, W), normalized, zeros where padded, which is at the right and the bottom.
            sizes: int64 (N, 2), height and width of each image without padding; None: none is padded.
            targets: in training only; without them nothing is random.
        """
        raise NotImplementedError

    def best(self, outputs: Outputs) -> TopDetections:
        """The objects among ``outputs`` of ``forward`` without targets, as tensors, as many in each image."""
        raise NotImplementedError

    def decode(self, outputs: Outputs, sizes: np.ndarray, original_sizes: np.ndarray) -> list[DetectedObjects]:
        """The objects found in each image, in the host's memory, best first; it waits for the device once.

        Args:
            outputs: of ``forward`` without targets.
            sizes: int64 (N, 2), as ``forward`` was given them.
            original_sizes: int64 (N, 2), height and width of the images as stored: boxes are in their pixels.
        """
        return self.best(outputs).read(original_sizes)


class QueryDetector(Detector):
    """Base class of detectors whose queries are matched with objects."""

    is_exportable = True

    @classmethod
    def build(cls, name: str, num_classes: int, image_size: Any | None = None, **options: Any) -> Model:
        """Build as any model; another backbone than the variant's has none of the options that are for that one."""
        usual = cls.variants.get(name, {}).get("backbone")
        if options.get("backbone", usual) != usual:
            options = {"backbone_options": None, **options}
        return super().build(name, num_classes, image_size, **options)

    @classmethod
    def most_objects(cls, **options: Any) -> tuple[str, int] | None:
        return "MODEL.NUM_QUERIES", options["num_queries"]


def build_backbone(name: str, fixed: Mapping[str, Any], own: Mapping[str, Any] | None, levels: Sequence[int]) -> Model:
    """A model for its maps of images of any size.

    Args:
        fixed: options of which it takes those that it knows; own: others.
        levels: the maps that are read, counted as Python counts.

    Raises:
        UserError: it has no such map.
    """
    known = model_options(name).defaults
    fixed = {key: value for key, value in {"any_size": True, **fixed}.items() if key in known}
    model = create_model(name, num_classes=0, **{**fixed, **(own or {})})
    number = len(model.feature_strides)
    if not number:
        raise UserError(f"backbone '{name}' has no feature maps: take a ResNet, a Swin, a PVTv2 or a ConvNeXt")
    for level in levels:
        if not -number <= level < number:
            raise UserError(f"backbone '{name}' has {number} feature maps: feature_level {level} is none of them")
    return model


def normal(deviation: float) -> paddle.ParamAttr:
    """Normally distributed around 0."""
    return paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, deviation))


def uniform(bound: float) -> paddle.ParamAttr:
    """Evenly distributed between -bound and bound."""
    return paddle.ParamAttr(initializer=nn.initializer.Uniform(-bound, bound))


def zeros() -> paddle.ParamAttr:
    return paddle.ParamAttr(initializer=nn.initializer.Constant(0.0))


def dense(inputs: int, outputs: int) -> Linear:
    """A linear layer whose weights and bias are uniform up to 1 / sqrt(inputs), as PyTorch begins."""
    bound = inputs**-0.5
    return Linear(inputs, outputs, weight_attr=uniform(bound), bias_attr=uniform(bound))


def single_or_double(x: paddle.Tensor) -> paddle.Tensor:
    """As float32, unless it is float64: boxes and losses in 16 bits would be off by pixels."""
    return x if x.dtype == paddle.float64 else x.astype("float32")


def without_gradient(x: paddle.Tensor) -> paddle.Tensor:
    """``x.detach()``. In a static graph it is detached from a copy: there Paddle 3.3 does not know that the two share
    memory, and may write over it while the detached one is still to be read."""
    return x.detach() if paddle.in_dynamic_mode() else x.clone().detach()


def corners_of_best(boxes: paddle.Tensor, places: paddle.Tensor) -> paddle.Tensor:
    """x0, y0, x1, y1 of the boxes (N, queries, 4) at ``places`` (N, n), given by center, width and height, which D-FINE
    may give below 0: float32 (N, n, 4)."""
    center, half = boxes[..., :2].astype("float32"), boxes[..., 2:].astype("float32") / 2
    ends = paddle.concat([center - half, center + half], axis=-1)
    return paddle.take_along_axis(ends, places.unsqueeze(-1), axis=1)


def choose_images(images: paddle.Tensor, rows: Sequence[int], sizes: np.ndarray) -> paddle.Tensor:
    """The images ``rows`` of a batch (N, 3, H, W), with no more padding than these need.

    Args:
        sizes: int64 (rows, 2), of these images.
    """
    if len(rows) < images.shape[0]:
        first = rows[0]
        is_run = list(rows) == list(range(first, first + len(rows)))
        images = (
            images[first : first + len(rows)] if is_run else paddle.gather(images, to_device(np.array(rows)), axis=0)
        )
    height, width = sizes.max(axis=0).tolist()
    return images if [height, width] == images.shape[2:] else images[:, :, :height, :width]


def zero_padding(images: paddle.Tensor, sizes: np.ndarray, on_device: paddle.Tensor | None = None) -> paddle.Tensor:
    """Normalized images (N, 3, H, W) with zeros outside of their sizes, int64 (N, 2), as DETR's authors have it.

    Args:
        on_device: the same sizes where the images are, if they are there.
    """
    height, width = images.shape[2:]
    if (sizes == (height, width)).all():
        return images
    limits = to_device(sizes) if on_device is None else on_device
    rows = (paddle.arange(height) < limits[:, :1]).astype("float32")  # (N, H)
    columns = (paddle.arange(width) < limits[:, 1:]).astype("float32")  # (N, W)
    return images * (rows.unsqueeze(2) * columns.unsqueeze(1)).unsqueeze(1)  # (N, 1, H, W)
