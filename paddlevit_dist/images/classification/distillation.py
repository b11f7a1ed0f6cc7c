"""Distillation: a teacher's predictions in addition to the labels.

Source: H. Touvron et al., "Training data-efficient image transformers & distillation through attention", arXiv
2012.12877, section 3: equation 2 (soft) and equation 3 (hard).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paddle
import paddle.nn.functional as F

from ...core.checkpoint.class_rows import ClassNames, order_outputs
from ...core.checkpoint.load import count_classes, load_weights
from ...core.checkpoint.load_report import LoadReport
from ...core.checkpoint.model_record import read_record
from ...core.checkpoint.output_names import read_class_names
from ...core.checkpoint.weight_files import EXTENSION, evaluated_weights
from ...core.checkpoint.weights import read_weights
from ...core.inference.trained import build_trained, open_source
from ...core.losses import log_softmax
from ...core.registry.lookup import annotation_type, find_built_in, find_package
from ...core.registry.manifest import BOX_LABELS, KEYPOINT_LABELS, MASK_LABELS, NO_LABELS
from ...core.registry.model_sources import find_bridged
from ...core.registry.names import REGISTRY
from ...core.runtime.errors import UserError
from ...core.runtime.printing import one_line
from ...core.tasks.model import Model
from ...core.tasks.model_factory import accelerate, build_outline, create_model
from ...core.tasks.network_checks import require_output
from ...core.tasks.protocols import load_meta
from ...core.tasks.task_factory import make_task
from ..image_size import ImageSize, as_pair
from ..settings import RGB
from ..transforms.on_device import PixelNormalizer
from .settings import ClassificationDataSection, ClassificationTrainSection
from .teacher_input import TeacherInput, find_exported_input, find_weights_input, find_weights_task

_EXPORTED = (".json", ".pdmodel")
LOGITS = "logits (images, classes)"
_SMALLEST = 1e-38  # lower bound of probabilities before the logarithm


class TeacherModel:
    """A teacher, which is never trained: outside the data-parallel model, its averages and its checkpoints.

    ``name`` is a registered model, an exported one by its path without extension, a run, or weights with its record
    (TRAIN.TEACHER_MODEL); ``weights`` are a registered model's. Pixels and channels are the student's, and
    ``num_classes`` is the number of classes of weights without a classifier. A ``UserError`` says that the model is
    missing, its weights do not fit completely, or it does not fit the student.
    """

    def __init__(
        self, name: str, weights: str | None, num_classes: int, image_size: ImageSize, in_channels: int
    ) -> None:
        self.name, self._classes = name, num_classes
        self._order: paddle.Tensor | None = None  # int64 (classes,), the output of each of the student's classes
        self._renormalize: PixelNormalizer | None = None
        self.gives_probabilities = False
        is_registered = name in REGISTRY.models or find_bridged(name) is not None
        if is_registered:
            if weights is None:
                raise UserError(f"TRAIN.TEACHER_MODEL {name} needs its weights: set TRAIN.TEACHER_WEIGHTS")
            source = evaluated_weights(weights)
            self.model, report = _load_registered(name, source, num_classes, image_size, in_channels)
            self.summary, self.input = report.summary(), find_weights_input(name, source)
            self._class_names, self._classes = read_class_names(source)[0], self.model.num_classes
            self._task = find_weights_task(source)
            self._channels = getattr(self.model, "in_channels", in_channels)
            accelerate(self.model)
        elif not any(Path(name + end).is_file() for end in _EXPORTED):
            self.model, self.summary, file, self._task = _load_run(name, weights, image_size)
            self.input, self._class_names = find_weights_input(name, file), read_class_names(file)[0]
            self._channels = getattr(self.model, "in_channels", in_channels)
        else:
            self.input, about = find_exported_input(name)
            self._task = about.get("task")
            self.gives_probabilities = str(about.get("output")).startswith("probabilities")
            classes = about.get("classes")
            self._class_names = list(map(str, classes)) if isinstance(classes, list) else None
            self.model, self.summary = paddle.jit.load(name), "exported model"
            self._channels = len(self.input.mean) or in_channels
        self.model.eval()
        for parameter in self.model.parameters():
            parameter.stop_gradient = True
        if {len(self.input.mean), len(self.input.deviation)} != {self._channels}:
            self.input = TeacherInput()  # it describes weights for other images, such as published ones
        if not is_registered:
            self._classes = self._count_classes((2, in_channels, *as_pair(image_size)))

    def _count_classes(self, shape: tuple[int, ...]) -> int:
        """Compute logits of a model that is not registered, and return their number; a ``UserError`` if that fails."""
        if self._channels < shape[1]:
            raise UserError(
                f"TRAIN.TEACHER_MODEL {self.name} takes images of {self._channels} channels, the student's have "
                f"{shape[1]} (DATA.IMAGE_CHANNELS)"
            )
        try:
            found = self(paddle.zeros(shape)).shape
        except Exception as error:  # C++ errors of several classes
            reason = one_line(str(error).strip().rpartition("\n")[2])[-300:]
            raise UserError(
                f"TRAIN.TEACHER_MODEL {self.name} cannot compute images of {shape[2]} x {shape[3]} pixels "
                f"(DATA.IMAGE_SIZE): {reason}"
            ) from error
        if len(found) != 2:
            raise UserError(f"TRAIN.TEACHER_MODEL {self.name} gives {found} for two images: expected {LOGITS}")
        return int(found[-1])

    def require_task(self, task: str) -> None:
        """Raise a UserError if the teacher's outputs mean something else: one class, or several labels of an image."""
        known = [annotation_type("task", name) for name in (task, self._task) if isinstance(name, str)]
        if None not in known and len(set(known)) > 1:
            raise UserError(
                f"TRAIN.TEACHER_MODEL {self.name} was trained for TASK {self._task}, whose outputs do not teach TASK "
                f"{task}: name a teacher of this task"
            )

    def match_classes(self, student: Model, class_names: Sequence[str], num_classes: int) -> None:
        """Order the outputs as the student's from now on, by name; a ``UserError`` if they do not teach its classes.

        ``class_names`` are of the student's first outputs; empty if unknown.
        """
        names, source = ClassNames(self._class_names, class_names), f"TRAIN.TEACHER_MODEL {self.name}"
        order, is_named = order_outputs(student, names, self._classes, num_classes, source)
        self._order = None if order is None else paddle.to_tensor(order, dtype="int64")
        by_name = "matched by name" if is_named else "unknown: its outputs are taken for the student's classes in order"
        self.summary += f", classes {by_name}"

    def fit_input(self, data: ClassificationDataSection) -> str:
        """Normalize the student's images as the teacher's from now on, and return a line about both for the log."""
        if self.input.mean:
            ours = PixelNormalizer(data.IMAGENET_MEAN, data.IMAGENET_STD)
            theirs = PixelNormalizer(self.input.mean, self.input.deviation)
            is_equal = len(ours.mean) == len(theirs.mean) and (ours.mean == theirs.mean).all()
            if not (is_equal and (ours.deviation == theirs.deviation).all()):
                self._renormalize = theirs.after(ours)
        return f"teacher {self.name}: {self.summary}; {self.input.format_for(data)}"

    @paddle.no_grad()
    def __call__(self, images: paddle.Tensor) -> paddle.Tensor:
        """Compute logits float32 (batch, classes) of the student's images, normalized and mixed."""
        if images.shape[1] < self._channels:
            images = images.expand([-1, self._channels, -1, -1])  # gray images as colors
        if self._renormalize is not None:
            images = self._renormalize(images)
        outputs = self.model(images).astype("float32")
        if self._order is not None:
            outputs = paddle.index_select(outputs, self._order, axis=1)
        return paddle.log(paddle.clip(outputs, min=_SMALLEST)) if self.gives_probabilities else outputs


def _load_registered(
    name: str, weights: str, num_classes: int, image_size: ImageSize, in_channels: int
) -> tuple[paddle.nn.Layer, LoadReport]:
    """Build a registered teacher with its weights; weights for colors get a network for colors."""
    options: dict[str, Any] = {"image_size": image_size, "in_channels": in_channels}
    outline = build_outline(lambda: create_model(name, num_classes=1, **options))
    state = read_weights(weights)
    model = create_model(name, num_classes=count_classes(outline, state) or num_classes, **options)
    report = load_weights(model, state, strict=True, follows=True)
    first_convolutions = [key for key in report.resized if len(report.shapes[key][1] or ()) == 4]
    if in_channels != RGB and any((report.shapes[key][0] or (0, 0))[1] == RGB for key in first_convolutions):
        return _load_registered(name, weights, num_classes, image_size, RGB)
    return model, report


def _load_run(name: str, weights: str | None, image_size: ImageSize) -> tuple[paddle.nn.Layer, str, str, str]:
    """Build the network of a run, or of weights with its record, for images of the student's size.

    No code is imported that the run has imported. Return the network, a summary of its weights, their file and task.
    """
    place = f"TRAIN.TEACHER_MODEL {name}"
    onnx = next((file for file in (name, f"{name}.onnx") if file.endswith(".onnx") and Path(file).is_file()), None)
    if onnx is not None:
        raise UserError(f"{place}: {onnx} cannot teach: name its run, or export it with -format=paddle")
    if not any(Path(f"{name}{end}").expanduser().exists() for end in ("", EXTENSION)):
        raise UserError(
            f"{place} is neither a registered model, nor a run or weights, nor an exported model ({name}.json or "
            f"{name}.pdmodel)"
        )
    if weights is not None:
        raise UserError(f"{place} has its weights: remove TRAIN.TEACHER_WEIGHTS {weights}")
    task_name = read_record(evaluated_weights(name)).about.get("task")
    if isinstance(task_name, str) and (built_in := find_built_in(task_name)) and not _has_classes(built_in):
        raise UserError(
            f"{place} was trained for TASK {task_name}, which does not classify images: name a classifier's run"
        )
    opened = open_source(name, "TRAIN.TEACHER_MODEL", options={"DATA.IMAGE_SIZE": image_size})
    task = make_task(opened.config)
    load_meta(task, opened.learned)
    model, report = build_trained(task, opened)
    return model, report.summary(), opened.weights, opened.config.TASK


def _has_classes(task: str) -> bool:
    """Return whether a task of this package gives classes or labels of whole images."""
    others = (BOX_LABELS, KEYPOINT_LABELS, MASK_LABELS, NO_LABELS)
    return find_package("task", task) == find_package("task", "classification") and (
        annotation_type("task", task) not in others
    )


def build_teacher(
    train: ClassificationTrainSection, num_classes: int, data: ClassificationDataSection
) -> TeacherModel | None:
    """Build the teacher of the TRAIN section, None without distillation; a ``UserError`` if no teacher is named."""
    if train.DISTILLATION_TYPE == "none":
        return None
    if train.TEACHER_MODEL is None:
        raise UserError(f"TRAIN.DISTILLATION_TYPE {train.DISTILLATION_TYPE} needs TRAIN.TEACHER_MODEL")
    return TeacherModel(train.TEACHER_MODEL, train.TEACHER_WEIGHTS, num_classes, data.IMAGE_SIZE, data.IMAGE_CHANNELS)


def split_heads(
    outputs: Any, model: paddle.nn.Layer, shape: tuple[int, int | None], has_teacher: bool
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return logits (images, classes) for the labels and for the teacher, equal ones of a network with one head."""
    is_distilled = has_teacher and isinstance(outputs, tuple) and len(outputs) == 2
    own, taught = outputs if is_distilled else (outputs, outputs)
    return require_output(own, shape, model, LOGITS), require_output(taught, shape, model, LOGITS)


def distillation_loss(
    kind: str, student: paddle.Tensor, teacher: paddle.Tensor, temperature: float = 1.0
) -> paddle.Tensor:
    """Compute the distillation loss of logits float32 (batch, classes), summed over the batch.

    "hard" is the cross-entropy with the teacher's decision, "soft" ``temperature ** 2`` times the divergence KL(teacher
    || student) of the softened distributions; DeiT's recipes have temperature 1.
    """
    if kind == "hard":
        return F.cross_entropy(student, teacher.argmax(axis=-1), reduction="sum")
    softened = F.softmax(teacher / temperature, axis=-1)
    return F.kl_div(log_softmax(student / temperature), softened, reduction="sum") * temperature**2
