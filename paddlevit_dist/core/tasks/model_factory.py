"""Build models by name, and the model of a run's task."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..registry.extension_points import ACCELERATE
from ..registry.lookup import as_source, find_name, is_weights_name, require_derived, resolve
from ..registry.names import REGISTRY
from ..runtime import limits
from ..runtime.errors import OwnCodeError, UserError
from ..runtime.printing import describe_value, shorten
from ..settings.custom_keys import name_option
from ..settings.every_run import RunSettings
from ..settings.key import OPTIONS, show
from ..settings.key_tables import custom_tables
from ..settings.table import find_tables, get_value, index_keys
from .seeding import seed_libraries

if TYPE_CHECKING:
    import paddle

    from .task import Task


def create_model(
    name: str,
    num_classes: int | None = None,
    image_size: int | Sequence[int] | None = None,
    **options: Any,
):
    """Build a model, a ``tasks.model.Model``, with fresh weights.

    Args:
        name: one of ``list_models()``.
        num_classes: outputs of the classifier; 0 builds a model that returns features. None: 1,000, or timm's default.
        image_size: side of the square input or ``(height, width)`` in pixels; None uses the variant's size.
        **options: dimensions and regularization that differ from the variant (``patch_size``, ``embed_dim``,
            ``in_channels``, ``dropout``, ``drop_path`` and others documented by the model's class). None keeps the
            variant's value.

    Raises:
        UserError: unknown name or option, incompatible dimensions, or a name of weights (``hf:timm/resnet18.a1_in1k``).
    """
    if is_weights_name(name):
        raise UserError(
            f"create_model: {name} names weights, but a model is built with fresh ones: use "
            f"model = create_model('{find_name('model', name)}'), then load_weights(model, '{as_source(name)}')"
        )
    chosen = {key: value for key, value in options.items() if value is not None}
    # A network may accept any option and read none of them; tasks pass channels to any network.
    named = _canonical_name(name)
    _family(named).require_options(named, {key: value for key, value in chosen.items() if key != "in_channels"})
    return build_network(name, num_classes, image_size, chosen)


def build_network(
    name: str, num_classes: int | None, image_size: int | Sequence[int] | None, options: Mapping[str, Any]
) -> Any:
    """Build a model as ``create_model`` does, with ``options`` unchanged: None is a value."""
    from .model import Model  # not at the top: listing names must not import Paddle

    name = _canonical_name(name)
    classes = default_classes(name) if num_classes is None else num_classes
    image_size = tuple(image_size) if isinstance(image_size, Sequence) else image_size
    try:
        model = prepare(_family(name).build(name, num_classes=classes, image_size=image_size, **options))
    except ZeroDivisionError as error:
        zero = next((key for key, value in options.items() if type(value) is int and value == 0), None)
        if zero is None:
            raise
        raise UserError(f"model '{name}' cannot be built with {zero} 0: expected a number from 1 up") from error
    if not hasattr(model, "num_classes"):
        model.num_classes = classes  # ``load_weights`` knows the classifier of a user's network by it
    channels = options.get("in_channels", model_options(name).defaults.get("in_channels"))
    if (
        isinstance(channels, int)
        and isinstance(model, Model)
        and "in_channels" not in {*vars(model), *vars(type(model))}
    ):
        model.in_channels = channels  # a user's network takes them, and need not keep them
    return model


def build_outline(build: Callable[[], Any]) -> Any:
    """Return the network that ``build`` makes, for its names and shapes, if possible without memory for parameters."""
    import paddle

    try:
        with paddle.LazyGuard():
            return build()
    except UserError:
        raise
    except Exception:  # its initialization reads or writes values, as that of Paddle's recurrent layers
        return build()


def default_classes(name: str) -> int:
    """Return the default number of classes of the model ``name``."""
    return int(_family(name).default_classes(_canonical_name(name)))


def prepare(model: paddle.nn.Layer) -> paddle.nn.Layer:
    """Give a new model running variances as PyTorch has them; a second call changes nothing."""
    from ..distributed import unbias_running_variance

    if hasattr(model, "sublayers"):
        unbias_running_variance(model)
    return model


def accelerate(model: paddle.nn.Layer) -> None:
    """Use the compiled layers of CPUs, if they are there."""
    replace_layers = ACCELERATE.find()
    if replace_layers is not None:
        replace_layers(model)


@contextlib.contextmanager
def explain_options(name: str, options: Mapping[str, Any] | None) -> Iterator[None]:
    """Name MODEL.OPTIONS in the line about an exception inside the block that builds the network ``name`` with them.

    Raises UserError if one is a text and its default is not, or the reverse, else ``OwnCodeError`` with the traceback.
    """
    try:
        yield
    except Exception as error:
        if not options or isinstance(error, UserError) or limits.explain(error):
            raise
        given = ", ".join(f"{option}: {show(value)}" for option, value in options.items())
        reason = shorten(f"{type(error).__name__}: {error}", 200)
        message = f"{OPTIONS} {{{given}}}: {name} could not be built: {reason}"
        for option, default in model_options(name).defaults.items():
            value = options.get(option)
            if None not in (value, default) and isinstance(value, str) != isinstance(default, str):
                raise UserError(f"{message}; {option} is {show(default)} by default") from error
        raise OwnCodeError.wrap(message, error) from error


def build_model(config: RunSettings, task: Task) -> paddle.nn.Layer:
    """Build the task's model in training mode; its weights depend on SEED only and are equal on all ranks.

    Raises:
        UserError: a setting does not apply to this model.
    """
    import paddle

    from ..distributed import set_batch_norm_momentum
    from .task_factory import name_network

    paddle.seed(config.SEED)
    seed_libraries(config.SEED, with_paddle=False)
    with explain_options(config.MODEL.NAME, config.MODEL.OPTIONS):
        network: object = task.build_model()
        if not isinstance(network, paddle.nn.Layer):
            raise UserError(
                f"{type(task).__name__}.build_model returns {describe_value(network)}, expected a paddle.nn.Layer: "
                "return the network"
            )
        model = prepare(network)
    if config.MODEL.OPTIONS and not getattr(task, "reads_options", False):
        raise UserError(
            f"{OPTIONS}: task {config.TASK} builds its network without them: use create_configured(self, ...) "
            "of paddlevit_dist.core.tasks"
        )
    _require_known_layers(model)
    accelerate(model)
    momentum = config.TRAIN.BATCH_NORM_MOMENTUM
    if momentum is not None and not set_batch_norm_momentum(model, momentum):
        raise UserError(
            f"TRAIN.BATCH_NORM_MOMENTUM {momentum}: {name_network(config, task)} has no batch norm; remove this key"
        )
    return model


def _require_known_layers(model: paddle.nn.Layer) -> None:
    """Raise UserError if a plain list, tuple or dict has layers: they would be neither trained nor saved."""
    from paddle import nn

    known = {id(parameter) for parameter in model.parameters()}
    for layer in model.sublayers(include_self=True):
        for name, value in vars(layer).items():
            held = list(value.values()) if isinstance(value, dict) else value
            if name.startswith("_") or not isinstance(held, (list, tuple)):
                continue
            for inner in (each for each in held if isinstance(each, nn.Layer)):
                if any(id(each) not in known and not each.stop_gradient for each in inner.parameters()):
                    raise UserError(
                        f"{type(layer).__name__}.{name} is a plain {type(value).__name__} with layers, which are "
                        "neither trained nor saved: use paddle.nn.LayerList or LayerDict"
                    )


def variant_options(name: str) -> dict[str, Any]:
    """Return the dimensions that ``name`` implies; empty for a model without a table of variants. Raises UserError."""
    name = _canonical_name(name)
    return dict(_family(name).variants.get(name, {}))


def _canonical_name(name: str) -> str:
    name = find_name("model", name)
    return REGISTRY.aliases.get(name, name)


def _family(name: str) -> Any:
    from .model import Model  # not at the top: listing names must not import Paddle

    return require_derived(resolve("model", name), Model)


class ModelOptions(NamedTuple):
    """The configurable options of a model."""

    defaults: dict[str, Any]  # every option with the value that the name implies
    variant: dict[str, Any]  # the options that the table of variants sets
    fixed: dict[str, Any]  # dimensions that recipes name but that have only one value
    notices: list[str]  # lines about the model for the user


def model_options(name: str) -> ModelOptions:
    """Return the options of a registered model, including its class's; raises UserError for an unknown name."""
    family, variant = _family(_canonical_name(name)), variant_options(name)
    return ModelOptions({**family.options(), **variant}, variant, dict(family.fixed_options), family.list_notices(name))


def create_configured(
    task: Task, num_classes: int | None = None, image_size: int | Sequence[int] | None = None, **options: Any
) -> Any:
    """Build the model that MODEL.NAME names, for ``Task.build_model``, with the options that ``join_options`` returns.

    Arguments and errors are as in ``create_model``; the task sets ``options`` itself.
    """
    chosen = {key: value for key, value in options.items() if value is not None}
    return build_network(task.config.MODEL.NAME, num_classes, image_size, join_options(task, chosen))


def join_options(task: Task, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task's ``options`` with the options of the keys that the model declares, and MODEL.OPTIONS.

    Raises:
        UserError: the model has no such option, or not with this value, or it is set twice.
    """
    task.reads_options = True
    name, given = task.config.MODEL.NAME, dict(task.config.MODEL.OPTIONS or {})
    keys = {name_option(row.name): row.name for table in custom_tables("model", name) for row in table.keys}
    declared = {option: value for option in keys if (value := get_value(task.config, keys[option])) is not None}
    for option in (option for option in given if option in declared):
        raise UserError(f"{OPTIONS}.{option}: {name} has a key for it: set {keys[option]} instead")
    require_unset(
        task,
        options,
        {option: keys[option] if option in declared else f"{OPTIONS}.{option}" for option in (*declared, *given)},
    )
    about = model_options(name)
    backbone = {**about.defaults, **options}.get("backbone")
    inner = model_options(backbone).defaults if isinstance(backbone, str) and backbone in REGISTRY.models else ()
    for option in (option for option in given if option in inner and option not in about.defaults):
        raise UserError(f"{OPTIONS}.{option}: {backbone} has it: set {OPTIONS}.backbone_options.{option} instead")
    family = _family(name)
    family.require_options(name, {**declared, **given})
    for option, least in family.least_values.items():
        value = given.get(option, least)
        if type(value) is not int or value < least:
            raise UserError(f"{OPTIONS}.{option} is {show(value)}: expected a whole number >= {least}")
    defaults = {**about.defaults, **fit_backbone_options(about.variant, options)}
    return {**options, **declared, **{option: _fit(value, defaults.get(option)) for option, value in given.items()}}


def require_unset(task: Task, options: Collection[str], sources: Mapping[str, str] | None = None) -> None:
    """Check that no option that the task sets is also among ``sources``: what sets it, by option; None: MODEL.OPTIONS.

    Raises:
        UserError: one is.
    """
    config: Any = task.config
    set_by = {option: f"{OPTIONS}.{option}" for option in config.MODEL.OPTIONS or ()} if sources is None else sources
    own = {*options, "num_classes", "image_size", *(["backbone"] if "BACKBONE" in config.MODEL else [])}
    for option in (option for option in set_by if option in own):
        rows = (row for row in index_keys(find_tables(config)).values() if row.name != set_by[option])
        same = [row for row in rows if row.name.replace("_", "").endswith(option.replace("_", "").upper())]
        same.sort(key=lambda row: row.effect != "network")  # TRAIN.BATCH_NORM sets no layers
        advice = f"set {same[0].name} instead" if same else "remove it"
        raise UserError(f"{set_by[option]}: task {config.TASK} sets the option {option} itself: {advice}")


def _fit(value: Any, default: Any) -> Any:
    """Return a value of YAML as the default is: a list as a tuple, a mapping with the default's other items."""
    if isinstance(value, Mapping) and isinstance(default, Mapping):
        return {**default, **{name: _fit(item, default.get(name)) for name, item in value.items()}}
    return tuple(value) if isinstance(value, list) and isinstance(default, tuple) else value


# Options of any backbone in a detector or segmenter; the other options of a variant are dimensions.
_BACKBONE_USES = ("any_size", "dilation", "frozen_batch_norm", "frozen_stages", "norm_features")


def fit_backbone_options(variant: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``options``; if their backbone is not the variant's, with the uses of a backbone that it supports.

    Uses are images of any size, dilation and frozen layers; the user's ``backbone_options`` win. The variant's
    dimensions do not apply to another backbone.
    """
    backbone = options.get("backbone")
    if backbone is None or backbone == variant.get("backbone"):
        return dict(options)
    supported = model_options(backbone).defaults
    uses = {"any_size": True, **(variant.get("backbone_options") or {})}
    backbone_options = {key: value for key, value in uses.items() if key in _BACKBONE_USES and key in supported}
    return {"backbone_options": backbone_options, **options}
