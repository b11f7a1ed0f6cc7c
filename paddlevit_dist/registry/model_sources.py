"""Models of other packages, ``SOURCE:NAME``, and of PaddleViT's clones: each call imports the bridge that answers it.

The bridges are in images/models/bridges.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.errors import UserError
from ..runtime.lazy_names import import_object

# Prefix of a model's name that another package builds -> the class that builds it.
_BRIDGES_FOLDER = "paddlevit_dist.images.models.bridges"
BRIDGES: dict[str, str | Callable[..., Any]] = {
    "timm": f"{_BRIDGES_FOLDER}.timm_model:TimmModel",
    "paddlevit": f"{_BRIDGES_FOLDER}.paddlevit_model:PaddleVitModel",
    "paddleclas": f"{_BRIDGES_FOLDER}.package_model:PaddleClasModel",
    "paddle": f"{_BRIDGES_FOLDER}.package_model:PaddleVisionModel",
}
_PADDLEVIT = f"{_BRIDGES_FOLDER}.paddlevit_files"
# Source of models -> the module with its names and weights.
_SOURCE_MODULES = {
    "timm": f"{_BRIDGES_FOLDER}.timm_model",
    **dict.fromkeys(("paddleclas", "paddle"), f"{_BRIDGES_FOLDER}.package_files"),
}


def find_bridged(name: str) -> tuple[str, str | Callable[..., Any]] | None:
    """Return ``SOURCE:NAME`` in lower case and without timm's tag, and the class that builds it.

    None for names without such a source.
    """
    source, colon, model = name.partition(":")
    target = BRIDGES.get(source.lower())
    if not colon or target is None or not model:
        return None
    return f"{source.lower()}:{model.partition('.')[0] if source.lower() == 'timm' else model}", target


def explain_unsupported(name: str) -> str:
    """Return advice for one of PaddleViT's models that does not exist here; empty for any other name."""
    return import_object(f"{_PADDLEVIT}:explain_unsupported")(name)


def explain_other_task(file: str) -> str:
    """Return why a YAML file with unknown keys, in a clone of PaddleViT, is refused; empty for any other file."""
    return import_object(f"{_PADDLEVIT}:explain_other_task")(file)


def adapt_clone(settings: list[Any], known: Sequence[str]) -> tuple[list[Any], list[str]]:
    """Translate the settings of a YAML file in a clone of PaddleViT; return them and lines for the log (``adapt``)."""
    return import_object(f"{_PADDLEVIT}:adapt")(settings, known)


def refuse_clone_model(name: Any, origin: str) -> None:
    """Raise ``UserError`` for a model that only a weights file names and that a clone's code would build.

    Args:
        name: name of the model.
        origin: where it is named, for the message.
    """
    if str(name).startswith("paddlevit:"):
        import_object(f"{_PADDLEVIT}:refuse_clone_model")(name, origin)


def find_weights_address(name: str) -> str | None:
    """Return the address of the weights of a name like ``paddle:resnet50``; None for any other name.

    Raises:
        UserError: timm, PaddleClas or paddle.vision has no such model, or no weights of it.
    """
    module = _SOURCE_MODULES.get(name.partition(":")[0])
    return import_object(f"{module}:find_address")(name) if module and not name.endswith(":") else None


def list_bridged_models(source: str) -> list[str]:
    """List the models of "timm", "paddleclas" or "paddle", with that prefix.

    Raises:
        UserError: there is no such source, or its package is not installed.
    """
    if source not in _SOURCE_MODULES:
        raise UserError(f"models of '{source}:' cannot be listed: expected one of {', '.join(sorted(_SOURCE_MODULES))}")
    return import_object(f"{_SOURCE_MODULES[source]}:list_names")(source)
