"""Users' models without the base class, behind the interface of ``Model``: the only place where a model is probed."""

import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from paddle import nn

from .model import Model, groups_by_layers

# The usual names: blocks.N, layers.N, layers.N.blocks.M, stages.N.blocks.M, block1.N.
_USUAL_LAYERS = r".*?\b(?:blocks|layers|stages|block\d)\.\d+(?:\.blocks\.\d+)?"


class UserFamily:
    """The argument of ``register_model``: a function or a class that is called with ``(name, num_classes=,
    image_size=, **options)``."""

    def __init__(self, target: Callable[..., Any]) -> None:
        self.build = target

    @property
    def variants(self) -> Mapping[str, Mapping[str, Any]]:
        """The table VARIANTS of the module that the target is defined in."""
        return getattr(sys.modules[self.build.__module__], "VARIANTS", {})

    @property
    def fixed_options(self) -> Mapping[str, Any]:
        """Those of the class that is built."""
        return getattr(self._built(), "fixed_options", {})

    def options(self) -> dict[str, Any]:
        """Arguments with names and their defaults: of the class that a function is annotated to return, or of the
        function itself where that says no class."""
        built = self._built()
        parameters = inspect.signature(built if inspect.isclass(built) else self.build).parameters.values()
        named = {p.name: p.default for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        return {name: named[name] for name in named if name not in ("name", "num_classes", "image_size")}

    def _built(self) -> Any:
        return (
            self.build if inspect.isclass(self.build) else typing.get_type_hints(self.build).get("return", self.build)
        )


class UserModel:
    """A network of any class. Each attribute and method is that of ``Model``; what the network has under the same name
    is taken, and the defaults otherwise. It wraps the network instead of being its base: as a base, ``Model.features``
    would hide a sublayer of that name.
    """

    def __init__(self, layer: nn.Layer) -> None:
        self.layer = layer

    def __getattr__(self, name: str) -> Any:
        default = getattr(Model, name)
        default = types.MethodType(default, self) if inspect.isfunction(default) else default
        return getattr(self.layer, name, default)

    def layer_groups(self) -> list[list[str]]:
        return groups_by_layers([name for name, _ in self.layer.named_parameters()], _USUAL_LAYERS)

    def recomputed_layers(self) -> list[nn.Layer]:
        """The contents of the lists named ``blocks``."""
        return [
            block
            for name, layers in self.layer.named_sublayers()
            if name.rpartition(".")[2] == "blocks" and isinstance(layers, nn.LayerList)
            for block in layers
        ]

    def learn_from_teacher(self) -> None:
        if hasattr(self.layer, "distilled_training"):
            self.layer.distilled_training = True


def contract_of(layer: nn.Layer) -> Model | UserModel:
    """The ``Model`` interface of a network: itself, if it is a ``Model``."""
    return layer if isinstance(layer, Model) else UserModel(layer)


def family_of(target: Callable[..., Any]) -> type[Model] | UserFamily:
    """The same for what is registered under a model's name."""
    return target if inspect.isclass(target) and issubclass(target, Model) else UserFamily(target)
