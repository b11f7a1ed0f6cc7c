"""Models by name with their weights, and their feature maps."""

import os
from typing import Any, cast

import numpy as np
import paddle
from paddle import nn

from .. import settings as configuration
from ..checkpoint.about_schema import ABOUT
from ..checkpoint.load import count_classes, load_weights
from ..checkpoint.load_report import require_trained
from ..checkpoint.published import fetch_record, find_published_for, find_sibling_file, is_repository
from ..checkpoint.weight_files import evaluated_weights
from ..checkpoint.weights import read_weights
from ..inference.trained import build_trained, open_source, prepare_task
from ..launch.tuning import choose_kernels
from ..registry.lookup import find_name, is_weights_name
from ..registry.model_sources import find_weights_address
from ..runtime.errors import UserError
from ..settings.every_run import RunSettings
from ..tasks import model_factory
from ..tasks.model import Model


def create_model(
    name: str | os.PathLike[str],
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    *,
    pretrained: bool | str | os.PathLike[str] = False,
    features_only: bool = False,
    **options: Any,
) -> nn.Layer:
    """Build a model with new or trained weights.

    Args:
        name: one of ``list_models()``. With ``pretrained`` also the name of weights (``resnet50.a1_in1k``,
            ``hf:timm/resnet50.a1_in1k``), or weights with stored training settings. Also without it a run's folder,
            a folder of ``export -format=hub``, or ``hf:OWNER/NAME``, where it was uploaded.
        num_classes: outputs of the classifier, 0 for features only; None: the weights' number, else 1,000 or timm's
            number. With another number than the weights', the last layer is new.
        image_size: side of the square input or ``(height, width)`` in pixels; None: the variant's, or the weights'.
        pretrained: True: the published weights of ``name``; else a source for ``load_weights``.
        features_only: the model returns the list of its feature maps (batch, channels, height, width), from fine to
            coarse; ``feature_channels`` and ``feature_strides`` describe them.
        **options: dimensions and regularization that differ from the variant, see ``model_factory.create_model``.

    Returns:
        A ``tasks.model.Model``; with trained weights in evaluation mode.

    Raises:
        UserError: a name or option is unknown, dimensions do not fit, or the weights do not exist.
    """
    choose_kernels()
    model_name, sides = os.fspath(name), image_size if isinstance(image_size, (list, tuple)) else [image_size]
    if image_size is not None and not (len(sides) <= 2 and all(_is_whole(side, 1) for side in sides)):
        raise UserError(f"create_model: image_size={image_size!r}: expected a whole number, or (height, width)")
    if num_classes is not None and not _is_whole(num_classes, 0):
        raise UserError(f"create_model: num_classes={num_classes!r}: expected a whole number, 0 for features only")
    # The name of a place has no other meaning than what is stored there.
    is_place = isinstance(pretrained, bool) and _is_place(model_name)
    is_stored = is_place or (pretrained is True and os.path.exists(model_name))
    if not pretrained and not is_stored:
        if reason := _find_silence(model_name):
            raise UserError(f"create_model: {reason}")
        model = model_factory.create_model(model_name, num_classes, image_size, **options)
        model.made_of = model_name, None
    elif is_stored:
        if options or image_size is not None:
            raise UserError(f"create_model: {name} stores how its model is built: remove image_size and other options")
        model = load_trained(model_name, num_classes)
    else:
        model = _load_pretrained(model_name, pretrained, num_classes, image_size, options)
    model_factory.accelerate(model)
    return FeatureMaps(model) if features_only else model


def _is_place(name: str) -> bool:
    """Return whether a name is the path of a folder, or a repository at Hugging Face with a model of this package."""
    return (os.sep in name and os.path.isdir(os.path.expanduser(name))) or fetch_record(name) is not None


def _find_silence(name: str) -> str:
    """Return why it is unknown whether the repository at Hugging Face of that name has a model; else empty."""
    return find_sibling_file(name, ABOUT, True)[1] if is_repository(name) else ""


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= least


class FeatureMaps(nn.Layer):
    """Wrap a network to return its ``feature_maps``, without its classifier.

    It has ``feature_channels`` and ``feature_strides`` of each map, strides in pixels of the input. Raises a UserError
    if the network has no feature maps.
    """

    def __init__(self, body: nn.Layer) -> None:
        super().__init__()
        if not isinstance(body, Model) or not body.feature_strides:
            kind = type(body).__name__
            raise UserError(
                f"features_only: {kind} has no feature maps; use another model, such as resnet50 or vit_*, swin_*"
            )
        body.reset_classifier(0)
        self.body = body
        self.feature_channels, self.feature_strides = body.feature_channels, body.feature_strides

    def forward(self, x: paddle.Tensor) -> list[paddle.Tensor]:
        """Compute the maps of images (batch, in_channels, height, width), from fine to coarse."""
        return cast(Model, self.body).feature_maps(x)


def load_trained(source: str, num_classes: int | None = None) -> nn.Layer:
    """Load a trained model in evaluation mode.

    Args:
        source: a run's folder, a checkpoint, or weights with stored training settings.
        num_classes: None: the trained number; with another number, the last layer is new.

    Raises:
        UserError: the weights do not exist.
    """
    advice = "name the model: create_model('resnet50', pretrained=...)"
    opened = open_source(source, "create_model", advice=advice)
    task = prepare_task(opened)
    model, _ = build_trained(task, opened)
    if num_classes is not None and getattr(type(model), "reset_classifier", None) is Model.reset_classifier:
        trained, model = model, model_factory.prepare(task.build_model(num_classes))  # of a user
        load_weights(model, trained.state_dict())
        model.eval()
    elif num_classes is not None:
        model.reset_classifier(num_classes)
    model.made_of = opened.config
    return cast(nn.Layer, model)


def _load_pretrained(
    name: str,
    pretrained: Any,
    num_classes: int | None,
    image_size: int | tuple[int, int] | None,
    options: dict[str, Any],
) -> nn.Layer:
    try:
        registered, source = find_name("model", name), pretrained
    except UserError:
        if ":" not in name:
            raise
        message = f"create_model: the model of the weights {name} is unknown: name it, for example"
        reason = _find_silence(name)
        advice = f"create_model('resnet50', pretrained='{name}')" + (f"; its {ABOUT}: {reason}" if reason else "")
        raise UserError(f"{message} {advice}") from None
    if pretrained is True and is_weights_name(name):
        source = model_factory.as_source(name)
    elif pretrained is True and find_weights_address(registered):
        source = registered
    elif pretrained is True:
        row = find_published_for(registered)
        if row is None:
            raise UserError(f"create_model: no published weights of {registered} are known: use pretrained='FILE'")
        source = row.name
    source = evaluated_weights(os.fspath(source))
    weights = read_weights(source)
    model = model_factory.create_model(registered, num_classes, image_size, **options)
    trained_classes = count_classes(model, weights)
    if num_classes is None and trained_classes not in (None, model_factory.default_classes(registered)):
        model = model_factory.create_model(registered, trained_classes, image_size, **options)
    report = load_weights(model, weights, strict=num_classes in (None, trained_classes), follows=True)
    require_trained(report, remedy="load a part of them with load_weights")
    model.eval()
    model.made_of = registered, str(source)
    return cast(nn.Layer, model)


def find_settings(model: nn.Layer) -> RunSettings | None:
    """Find the configuration with the preprocessing of a model's weights; None for a model of unknown origin."""
    made_of: RunSettings | tuple[str, str | None] | None = getattr(model, "made_of", None)
    return _build_settings(*made_of, model) if isinstance(made_of, tuple) else made_of


def _build_settings(name: str, source: str | None, model: nn.Layer) -> RunSettings:
    """Return a run's configuration for this model, with the preprocessing of its weights."""
    words = ["-dataset=folder", f"MODEL.NAME={find_name('model', name)}"]
    words += [f"-pretrained={source}"] if source else []
    sides = getattr(model, "image_size", None)
    if isinstance(sides, tuple):
        words.append(f"-image_size={sides[0]}x{sides[1]}")
    return configuration.load(words).values
