"""A model: what other packages may ask of a network, with defaults for whatever a network does not override."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import paddle
from paddle import nn

from ..registry import closest, require_derived
from ..runtime.errors import UserError

KeyMap = Callable[[Mapping[str, Any]], dict[str, Any]]


class ClassLayout(NamedTuple):
    """Where a parameter of a last layer has the rows of classes.

    Attributes:
        each: outputs of a class, one behind the other.
        before, after: how many there are of such groups of outputs, in front of those of the classes and behind them,
            that belong to no class, such as the background.
        axis: of the outputs; None: that of a layer's outputs.
    """

    each: int = 1
    before: int = 0
    after: int = 0
    axis: int | None = None


class Model(nn.Layer):
    """Base class of the networks that ``create_model`` builds.

    A subclass is a family. It takes ``num_classes`` and its other options as keyword arguments with defaults,
    and ``image_size`` where it is built for images of one size; the registry maps the family's names to it.
    Models live in the training processes, the same on each rank; a loader process has none.
    """

    #: what it takes, for messages
    works_on: ClassVar[str] = "images"
    #: name -> the arguments it stands for; a table of a module without Paddle, from which the registry has the names
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    #: dimensions that recipes may name, but that have this one value
    fixed_options: ClassVar[Mapping[str, Any]] = {}
    #: whose weights can be loaded: owner -> function from a state under the owner's names to one under ours, both of
    #: numpy arrays; a name that the owner's model does not have stays as it is
    key_maps: ClassVar[Mapping[str, KeyMap]] = {}
    #: names of the last layers, which depend on the classes
    classifier_layers: ClassVar[tuple[str, ...]] = ()
    #: regular expression of the names of the layers that an input passes one after the other, such as a transformer's
    #: blocks; ``named_parameters`` has them in that order
    layer_names: ClassVar[str | None] = None

    #: of the input
    in_channels: int
    #: (height, width) in pixels of the images it takes; None for a network on anything else
    image_size: tuple[int, int] | None = None
    #: pixels of the input to one of each map of ``features``, and its channels; empty without ``features``
    feature_strides: tuple[int, ...] = ()
    feature_channels: tuple[int, ...] = ()

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Return what ``build`` can set, besides the number of classes and the image size, with its default."""
        parameters = inspect.signature(cls).parameters.values()
        return {p.name: p.default for p in parameters if p.name not in ("num_classes", "image_size")}

    @classmethod
    def build(cls, name: str, num_classes: int, image_size: Any | None = None, **options: Any) -> "Model":
        """The model that ``name`` stands for. Called by ``create_model``.

        Args:
            name: one of ``variants``, or any other for the defaults.
            num_classes: outputs; 0 for the features alone.
            image_size: pixels, one number or (height, width); None: the variant's.
            options: arguments that differ from the variant's.

        Raises:
            UserError: an option that the model does not have, or dimensions that do not fit together.
        """
        cls.require_options(name, options)
        chosen = {**cls.variants.get(name, {}), **options}
        if image_size is not None:
            if "image_size" not in inspect.signature(cls).parameters:
                raise UserError(
                    f"model '{name}' works on {cls.works_on} and has no image size: leave out DATA.IMAGE_SIZE "
                    f"({image_size})"
                )
            chosen["image_size"] = image_size
        family: Callable[..., Model] = cls
        return family(num_classes=num_classes, **chosen)

    @classmethod
    def require_options(cls, name: str, options: Mapping[str, Any]) -> None:
        """Refuse options that the model does not have.

        Raises:
            UserError: there is one.
        """
        valid = cls.options()
        for key in options:
            if key not in valid:
                hint = closest(key, list(valid))
                raise UserError(
                    f"model '{name}' has no option '{key}': {hint}valid options: {', '.join(sorted(valid))}"
                )

    @classmethod
    def default_classes(cls, name: str) -> int:
        """Return the outputs of the model that ``name`` stands for where nobody says how many."""
        return 1000

    @classmethod
    def list_notices(cls, name: str) -> list[str]:
        """Say what a user should know of the model that ``name`` stands for, before it is built."""
        return []

    def forward_features(self, x: Any) -> Any:
        """The input of the classifier."""
        raise NotImplementedError

    def features(self, x: paddle.Tensor, sizes: paddle.Tensor | None = None) -> list[paddle.Tensor]:
        """Maps (batch, channels, height, width) of images (batch, in_channels, height, width), for a network that
        continues from them: one for each of ``feature_strides``, from fine to coarse, not normalized.

        Args:
            x: the images; those smaller than the batch are padded with zeros at the right and the bottom.
            sizes: int64 (batch, 2), height and width of each without its padding, for a family that has an option
                ``mask_padding``; others do not read it.

        Raises:
            UserError: the family has none.
        """
        raise UserError(
            f"{type(self).__name__} has no feature maps; choose a model that has, such as swin_tiny_patch4_window7_224"
        )

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layers with newly initialized ones for ``num_classes``, or with nothing for 0."""
        raise NotImplementedError

    def resize_parameter(self, name: str, value: np.ndarray) -> np.ndarray | None:
        """``value`` of the parameter ``name``, whose shape differs, made to fit this model; None if that is impossible.
        Called while weights are loaded."""
        return None

    def classes_of_outputs(self, outputs: int) -> int:
        """The classes of a last layer with so many outputs, for a family that has others among them."""
        return outputs

    def class_layout(self, name: str) -> ClassLayout:
        """Where the parameter ``name`` of one of ``classifier_layers`` has the rows of classes: a training from weights
        of other classes takes those of the same names."""
        return ClassLayout()

    def published_classes(self, classes: int) -> list[str] | None:
        """The names of the classes of published weights with so many, where these weights can be no others; "" for a
        number without a class. None: there are none."""
        return None

    def plain_class(self, name: str) -> str:
        """The name of a class without what names of the same class may differ by."""
        return name.strip().casefold()

    def notices_of_resized(self, names: Sequence[str]) -> list[str]:
        """Say what a user should know of the parameters ``names``, all that ``resize_parameter`` made to fit."""
        return []

    def notices_of_source(self, owner: str, state: Mapping[str, Any]) -> list[str]:
        """Say what a user should know of weights that ``key_maps[owner]`` renamed to ``state``."""
        return []

    def no_weight_decay(self) -> tuple[str, ...]:
        """Names of parameters with several axes that are not decayed; those with one axis never are."""
        return ()

    def layer_groups(self) -> list[list[str]]:
        """Names of all parameters, grouped from the input to the head by how far they are from it: under
        TRAIN.LAYER_DECAY a group learns more slowly than the next.

        By default the embedding, then each layer of ``layer_names`` with what is between it and the next, then what
        ``classifier_layers`` are in, such as "head": as timm's ``group_matcher`` counts. A single group without such
        layers.
        """
        names = [name for name, _ in self.named_parameters()]
        heads = [name.partition(".")[0] for name in self.classifier_layers]
        return [names] if self.layer_names is None else groups_by_layers(names, self.layer_names, heads)

    def recomputed_layers(self) -> list[nn.Layer]:
        """The layers whose inner values TRAIN.RECOMPUTE drops: none inside another, each maps tensors to a tensor, and
        none has batch statistics, in which a second pass would count each batch twice. By default those of
        ``layer_names``; none without."""
        pattern = self.layer_names
        return [layer for name, layer in self.named_sublayers() if pattern and re.fullmatch(pattern, name)]

    def merge_branches(self) -> str:
        """Merge what was trained as several branches and computes the same as one, and say so. Called before an export,
        of a model in evaluation mode; by default there is nothing to merge, and nothing to say."""
        return ""

    def learn_from_teacher(self) -> None:
        """Called before training with a teacher: a model with a separate classifier for the teacher's labels
        returns two logits from then on in training mode, the labels' and the teacher's."""


# What was once read of networks of any class: nobody who declares it is to get the defaults in silence.
_DECLARED = ("key_maps", "classifier_layers", "layer_names", "no_weight_decay", "layer_groups", "resize_parameter")


class _PlainLayer(Model):
    """A network of another class: it has the defaults of ``Model``."""

    def __init__(self, layer: nn.Layer) -> None:
        super().__init__()
        self.named_parameters = layer.named_parameters


def as_model(layer: nn.Layer) -> Model:
    """Return what a network declares of itself: itself, if it is a ``Model``; else the defaults, for programs that
    bring a layer of another kind.

    Raises:
        UserError: it declares something, and is no ``Model``.
    """
    if isinstance(layer, Model):
        return layer
    for name in _DECLARED:
        if hasattr(type(layer), name):
            require_derived(layer, Model)
    return _PlainLayer(layer)


def groups_by_layers(names: Sequence[str], layers: str, heads: Sequence[str] | None = None) -> list[list[str]]:
    """``names`` of parameters in the order of the network: what comes before the first layer, each layer with what is
    between it and the next, and the head.

    Args:
        layers: regular expression of the layers' names; one called ``downsample`` counts as part of the next.
        heads: names of the head's layers; what else follows the last layer, such as a norm, belongs to that one. None:
            all that follows it is the head.
    """
    pattern = re.compile(rf"(?:{layers})(?=\.)")
    groups: list[list[str]] = [[]]
    number: dict[str, int] = {}
    joins_next = False
    for name in names:
        match = pattern.match(name)
        if match and match[0] not in number:
            if not joins_next:
                groups.append([])
            number[match[0]] = len(groups) - 1
            joins_next = match[0].endswith(".downsample")
        groups[number[match[0]] if match else -1].append(name)
    prefixes = ("",) if heads is None else tuple(f"{head}." for head in heads)
    head = [name for name in groups[-1] if not pattern.match(name) and name.startswith(prefixes)]
    if not number or not head:
        return groups
    return [*groups[:-1], [name for name in groups[-1] if name not in head], head]
