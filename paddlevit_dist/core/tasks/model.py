"""The interface of a network: what other packages call, with defaults for all that a network does not override."""

import inspect
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import paddle
from paddle import nn

from ..registry.lookup import require_derived
from ..registry.required_methods import missing_method
from ..runtime.errors import UserError
from ..runtime.hints import suggest
from ..settings.habits import OTHER_OPTIONS
from .network_checks import require_free

KeyMap = Callable[[Mapping[str, Any]], dict[str, Any]]
Variants = dict[str, dict[str, Any]]  # arguments of each variant by its name
_BACKBONE = "backbone."


class ClassLayout(NamedTuple):
    """Position of the classes' rows in a parameter of a last layer."""

    each: int = 1  # consecutive outputs of one class
    before: int = 0  # groups of outputs before the classes' outputs that belong to no class, such as the background
    after: int = 0  # groups of outputs after them
    axis: int | None = None  # of the outputs; None: the output axis of the layer's kind


class ConstructorParameters(NamedTuple):
    """What a constructor takes, with the constructors of the parents that it passes ``**options`` on to."""

    defaults: dict[str, Any]  # default by parameter
    takes_rest: bool  # whether the class's own constructor has a parameter such as ``**options``
    takes_any: bool  # whether no constructor ends the chain: any other name may be an option


def list_parameters(cls: type, base: type) -> ConstructorParameters:
    """List the parameters of the constructors of ``cls`` that are derived from ``base``.

    ``**_`` takes what others pass and, by its name, passes nothing on.
    """
    defaults: dict[str, Any] = {}
    takes_rest = takes_any = False
    for owner in (each for each in cls.__mro__[: cls.__mro__.index(base)] if "__init__" in vars(each)):
        parameters = inspect.signature(owner).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)} | defaults
        rest = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
        takes_rest, takes_any = takes_rest or rest is not None, rest is not None and not rest.startswith("_")
        if not takes_any:
            break
    return ConstructorParameters(defaults, takes_rest, takes_any)


class Model(nn.Layer):
    """Base class of the networks that ``create_model`` builds.

    A subclass is a family. It takes ``num_classes`` and its other options as keyword arguments with defaults, and
    ``image_size`` if it is built for images of one size. The registry maps the family's names to it. Models exist in
    the training processes, with equal weights on each rank; loader processes have none.
    """

    #: kind of input, for messages
    works_on: ClassVar[str] = "images"
    #: arguments by name of the variant
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    #: options that recipes may name, but that have only this value
    fixed_options: ClassVar[Mapping[str, Any]] = {}
    #: smallest values of options that are whole numbers, for MODEL.OPTIONS
    least_values: ClassVar[Mapping[str, int]] = {}
    #: by naming scheme of weights that can be loaded, a function that maps a state with its parameter names to one with
    #: this model's, both of numpy arrays; it leaves unknown names unchanged
    key_maps: Mapping[str, KeyMap] = {}
    #: name of a parameter that each network of this family has, and few others, with # for each number: ``convert``
    #: finds the family of weights by it; empty: by all names of a network that is built
    telling_name: ClassVar[str] = ""
    #: names of the last layers, whose shape depends on the number of classes
    classifier_layers: tuple[str, ...] = ()
    #: beginnings of the names of parameters that a detector adds to its backbone: no classifier's weights have them
    own_parts: tuple[str, ...] = ()
    #: regular expression for the names of consecutive layers, such as a transformer's blocks; ``named_parameters`` must
    #: have them in this order
    layer_names: str | None = None

    #: channels of the input
    in_channels: int = 3
    #: pixels of the input images, one number or (height, width); None for a network on other data
    image_size: Any = None
    #: stride in input pixels, and channels, of each map of ``feature_maps``; empty without any
    feature_strides: tuple[int, ...] = ()
    feature_channels: tuple[int, ...] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, value in vars(cls).items():
            require_free(cls, name, value, is_of_class=True)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a UserError says that the class uses its name for something else."""
        require_free(type(self), name, value)
        super().__setattr__(name, value)

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Return the options that ``build`` takes with their defaults, apart from number of classes and image size."""
        defaults = list_parameters(cls, Model).defaults
        return {name: default for name, default in defaults.items() if name not in ("num_classes", "image_size")}

    @classmethod
    def build(cls, name: str, num_classes: int, image_size: Any | None = None, **options: Any) -> "Model":
        """Build the variant ``name``, or with another name the defaults; called by ``create_model``.

        Args:
            name: a key of ``variants``, or any other name.
            num_classes: number of outputs; 0 for the features alone.
            image_size: pixels, one number or (height, width); None: the variant's. Networks on images that do not take
                it work on any size.
            options: arguments that differ from the variant's.

        Raises:
            UserError: an option does not exist, or dimensions do not fit together.
        """
        parameters = list_parameters(cls, Model)
        cls.require_options(name, {} if parameters.takes_rest else options)
        chosen = {**cls.variants.get(name, {}), **options}
        takes_size = "image_size" in parameters.defaults
        if image_size is not None and not takes_size and cls.works_on != "images":
            raise UserError(f"model '{name}' works on {cls.works_on} and has no image size ({image_size}); remove it")
        if takes_size and "image_size" in (options.get("backbone_options") or {}):
            raise UserError(f"model '{name}': its backbone has its image size: remove image_size from backbone_options")
        if image_size is not None and takes_size:
            chosen["image_size"] = image_size
        family: Callable[..., Model] = cls
        try:
            model = family(num_classes=num_classes, **chosen)
        except TypeError:  # the constructor may pass on what its parent does not take
            cls.require_options(name, options)
            raise
        if image_size is not None and model.image_size is None:
            model.image_size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
        return model

    @classmethod
    def require_options(cls, name: str, options: Mapping[str, Any]) -> None:
        """Raise a UserError that names the variant if the family lacks one of these options."""
        valid = cls.options()
        lists_names = any("options" in vars(owner) for owner in cls.__mro__[: cls.__mro__.index(Model)])
        takes_any = list_parameters(cls, Model).takes_any and not lists_names
        for key in () if takes_any else options:
            if key not in valid:
                ours = OTHER_OPTIONS.get(key)
                is_taken = ours in valid or ours == "image_size"  # a separate argument
                hint = suggest(key, valid) if ours is None else f"did you mean '{ours}'? " if is_taken else ""
                raise UserError(
                    f"model '{name}' has no option '{key}': {hint}valid options: {', '.join(sorted(valid))}"
                )

    @classmethod
    def default_classes(cls, name: str) -> int:
        """Return the number of outputs of the variant ``name`` if no number of classes is set."""
        return 1000

    @classmethod
    def list_notices(cls, name: str) -> list[str]:
        """Return log lines about the variant ``name``, which are shown before it is built."""
        return []

    @abstractmethod
    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute the outputs that the task expects, such as logits (batch, classes) of a classifier."""

    def forward_features(self, x: Any) -> Any:
        """Compute the input of the classifier."""
        raise missing_method(type(self), "forward_features")

    def feature_maps(self, x: paddle.Tensor, sizes: paddle.Tensor | None = None) -> list[paddle.Tensor]:
        """Compute feature maps, for a network that uses this one as its backbone.

        Args:
            x: images, (batch, in_channels, height, width); smaller images are padded with zeros at the right and the
                bottom.
            sizes: int64 (batch, 2), height and width of each image without its padding, for families with the option
                ``mask_padding``; ignored by others.

        Returns:
            Maps (batch, channels, height, width), one for each of ``feature_strides``, from fine to coarse, not
            normalized.

        Raises:
            UserError: the family has no feature maps.
        """
        raise UserError(
            f"{type(self).__name__} has no feature maps; choose a model with them, such as swin_tiny_patch4_window7_224"
        )

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layers with newly initialized ones for ``num_classes``, or with nothing for 0."""
        raise missing_method(type(self), "reset_classifier")

    def resize_parameter(self, name: str, value: np.ndarray) -> np.ndarray | None:
        """Resize the ``value`` of parameter ``name``, which is loaded with another shape; None if impossible."""
        return self.resample_parameter(name, value, None)

    def resample_parameter(
        self, name: str, value: np.ndarray, trained_size: tuple[int, int] | None
    ) -> np.ndarray | None:
        """Resize the ``value`` of a parameter with numbers for each place of an image; None for other parameters.

        Also called where the shapes are equal, as 4 x 6 places of one size may be 6 x 4 of another. By default, a layer
        ``backbone`` resizes its own.

        Args:
            name: of the parameter.
            value: of weights for images of another size.
            trained_size: height and width of these images in pixels; None: unknown.
        """
        backbone = self._sub_layers.get("backbone")
        if not isinstance(backbone, Model) or not name.startswith(_BACKBONE):
            return None
        return backbone.resample_parameter(name.removeprefix(_BACKBONE), value, trained_size)

    def begin_classifier(self, name: str, value: np.ndarray) -> np.ndarray | None:
        """Return the first value of a classifier's parameter where ``value`` is of other classes; None: as initially.

        Called when training starts from weights.
        """
        return None

    def outputs_to_classes(self, outputs: int) -> int:
        """Return the number of classes of a last layer with ``outputs`` outputs; by default, they are equal."""
        return outputs

    def class_layout(self, name: str) -> ClassLayout:
        """Return where the parameter ``name`` of one of ``classifier_layers`` has the rows of the classes.

        When training starts from weights of other classes, rows of classes with equal names are copied.
        """
        return ClassLayout()

    def published_classes(self, classes: int) -> list[str] | None:
        """Return the class names of published weights with this number of classes; None: it does not identify them.

        An empty name stands for a label without a class.
        """
        return None

    def find_named_rows(self, names: int, rows: int) -> Sequence[int] | None:
        """Return the rows of a classifier that are of the classes whose names are stored with foreign weights.

        None: all ``rows``. Some programs have more rows than names, such as one for the background.
        """
        return None

    def network_facts(self) -> Mapping[str, Any]:
        """Return what the network computes with and no shape of a parameter tells, by transformers' names of fields.

        "model_type" lists transformers' kinds of networks that these fields are of. By default, weights are not
        compared.
        """
        return {}

    @classmethod
    def read_described(cls, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the options of the network that a ``config.json`` of transformers describes; None: of another family.

        Raises KeyError or TypeError for a file that lacks a field of the family.
        """
        return None

    def plain_class(self, name: str) -> str:
        """Normalize the name of a class, so that variants of one name are equal."""
        return name.strip().casefold()

    def list_course_notices(self, updates: int) -> list[str]:
        """Return log lines about options that do not fit a training run of ``updates`` updates; by default, none."""
        return []

    def list_resize_notices(self, names: Sequence[str]) -> list[str]:
        """Return log lines about the parameters ``names``, all that ``resize_parameter`` resized."""
        return []

    def list_source_notices(self, naming: str, state: Mapping[str, Any]) -> list[str]:
        """Return log lines about weights that ``key_maps[naming]`` renamed to ``state``."""
        return []

    def follow_source(self, state: Mapping[str, np.ndarray]) -> list[str]:
        """Make a classifier that reads what the classifier in ``state`` reads, where its shape tells; return log lines.

        Called before weights are compared with the network; ``state`` has its names and its layout of Linear weights.
        """
        return []

    def list_license_notices(self, naming: str) -> list[str]:
        """Return log lines about the license of weights that were published under the names of ``key_maps[naming]``."""
        return []

    def no_weight_decay(self) -> tuple[str, ...]:
        """Return the names of parameters with two or more axes that are not decayed; those with one axis never are."""
        return ()

    def layer_groups(self) -> list[list[str]]:
        """Group the names of all parameters by depth, from the input to the head.

        TRAIN.LORA and Muon change what is between the first group and the last. TRAIN.LAYER_DECAY: ``rate_groups``.

        By default as in timm's ``group_matcher``: the embedding, then each layer of ``layer_names`` with the parameters
        between it and the next, then the head with ``classifier_layers``. Without ``layer_names``, there is a single
        group.
        """
        names = [name for name, _ in self.named_parameters()]
        heads = [name.partition(".")[0] for name in self.classifier_layers]
        return [names] if self.layer_names is None else group_by_layers(names, self.layer_names, heads)

    def rate_groups(self) -> list[list[str]]:
        """Return the groups for TRAIN.LAYER_DECAY: each has the rate of the next one times it; some may be empty."""
        return self.layer_groups()

    def recomputed_layers(self) -> list[nn.Layer]:
        """Return the layers whose activations TRAIN.RECOMPUTE recomputes; by default, those that match ``layer_names``.

        No layer may contain another. Each maps tensors to a tensor. None may have batch statistics, because a second
        forward pass would count each batch twice.
        """
        pattern = self.layer_names
        return [layer for name, layer in self.named_sublayers() if pattern and re.fullmatch(pattern, name)]

    def merge_branches(self) -> str:
        """Merge parallel branches into an equal single one, in place, and return a log line; by default, do nothing.

        Called before an export, for a model in evaluation mode.
        """
        return ""

    def learn_from_teacher(self) -> None:
        """Prepare for distillation; called before training with a teacher.

        A model with a separate classifier for the teacher's labels then returns two logits in training mode: for the
        labels and for the teacher.
        """


# Attributes that mean something on a Model only: another class that has one gets an error instead of the defaults.
_DECLARED = ("key_maps", "classifier_layers", "layer_names", "no_weight_decay", "layer_groups", "resize_parameter")


def input_size(model: Any) -> tuple[int, int]:
    """Return height and width of the images that a network is built for, which may keep them as one number."""
    size = model.image_size
    return (size, size) if isinstance(size, int) else tuple(size)


def find_built_size(model: Model) -> Any:
    """Return the size of images that a network with numbers for each place is built for: its own, or its backbone's."""
    backbone = model._sub_layers.get("backbone")
    if model.image_size is not None or not isinstance(backbone, Model):
        return model.image_size
    has_places = type(backbone).resample_parameter is not Model.resample_parameter
    return backbone.image_size if has_places else None


class _PlainLayer(Model):
    """Adapter that gives any other layer the defaults of ``Model``."""

    def __init__(self, layer: nn.Layer) -> None:
        super().__init__()
        self.named_parameters = layer.named_parameters


def as_model(layer: nn.Layer) -> Model:
    """Return ``layer`` as a ``Model``: itself, or an adapter with the defaults for a user's own layer.

    Raises:
        UserError: the layer has attributes of a ``Model`` but is not derived from it.
    """
    if isinstance(layer, Model):
        return layer
    for name in _DECLARED:
        if hasattr(type(layer), name):
            require_derived(layer, Model)
    return _PlainLayer(layer)


def group_by_layers(names: Sequence[str], layers: str, heads: Sequence[str] | None = None) -> list[list[str]]:
    """Group parameters in the order of the network: before the first layer, each layer, and the head.

    Parameters between two layers belong to the first of them.

    Args:
        names: names of the parameters.
        layers: regular expression for the names of the layers; a layer called ``downsample`` belongs to the next one.
        heads: names of the head's layers; all other parameters after the last layer, such as a norm, belong to that
            layer. None: all parameters after the last layer are the head.
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
    prefixes = ("",) if heads is None else tuple(f"{prefix}." for prefix in heads)
    head = [each for each in groups[-1] if not pattern.match(each) and each.startswith(prefixes)]
    if not number or not head:
        return groups
    return [*groups[:-1], [each for each in groups[-1] if each not in head], head]
