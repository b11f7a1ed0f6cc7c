"""Models of other packages, ``SOURCE:NAME``, and of PaddleViT's clones: a call imports the bridge that answers it."""

from collections.abc import Collection
from typing import Any

from ..runtime.errors import UserError
from ..runtime.lazy_names import import_object
from .extension_points import ADAPT_CLONE, EXPLAIN_OTHER_TASK, EXPLAIN_UNSUPPORTED, REFUSE_CLONE_MODEL
from .manifest import Target
from .names import REGISTRY


def find_bridged(name: str) -> tuple[str, Target] | None:
    """Return ``SOURCE:NAME``, lower case without timm's tag, and the class that builds it; None without a source."""
    source, colon, model = name.partition(":")
    target = REGISTRY.bridges.get(source.lower())
    if not colon or target is None or not model:
        return None
    return f"{source.lower()}:{model.partition('.')[0] if source.lower() == 'timm' else model}", target


def explain_unsupported(name: str) -> str:
    """Return advice for one of PaddleViT's models that does not exist here; empty for any other name."""
    explain = EXPLAIN_UNSUPPORTED.find()
    return explain(name) if explain else ""


def explain_other_task(file: str) -> str:
    """Return why a YAML file with unknown keys, in a clone of PaddleViT, is refused; empty for any other file."""
    explain = EXPLAIN_OTHER_TASK.find()
    return explain(file) if explain else ""


def adapt_clone(settings: list[Any], known: Collection[str]) -> tuple[list[Any], list[str]]:
    """Translate the settings of a YAML file in a clone of PaddleViT; return them and lines for the log (``adapt``)."""
    adapt = ADAPT_CLONE.find()
    return adapt(settings, known) if adapt else (settings, [])


def refuse_clone_model(name: object, origin: str) -> None:
    """Raise ``UserError`` for a model that only weights name, in ``origin``, and that a clone's code would build."""
    refuse = REFUSE_CLONE_MODEL.find() if str(name).startswith("paddlevit:") else None
    if refuse:
        refuse(name, origin)


def find_weights_address(name: str) -> str | None:
    """Return the address of the weights of a name like ``paddle:resnet50``; None for any other name.

    Raises:
        UserError: timm, PaddleClas or paddle.vision has no such model, or no weights of it.
    """
    module = REGISTRY.sources.get(name.partition(":")[0])
    return import_object(f"{module}:find_address")(name) if module and not name.endswith(":") else None


def find_bridged_input(name: str) -> dict[str, Any] | None:
    """Return what a model of another package, ``SOURCE:NAME``, expects of images, in that package's words; else None.

    Raises:
        UserError: timm has no such model or no such weights.
    """
    module = REGISTRY.sources.get(name.partition(":")[0])
    return import_object(f"{module}:get_expected_input")(name) if module else None


def list_bridged_models(source: str) -> list[str]:
    """List the models of "timm", "paddleclas" or "paddle", with that prefix.

    Raises:
        UserError: there is no such source, or its package is not installed.
    """
    if source not in REGISTRY.sources:
        raise UserError(
            f"models of '{source}:' cannot be listed: expected one of {', '.join(sorted(REGISTRY.sources))}"
        )
    return import_object(f"{REGISTRY.sources[source]}:list_names")(source)
