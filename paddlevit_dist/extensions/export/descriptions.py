"""Description files of an exported model: JSON for users and programs, and the content of PaddleX's ``inference.yml``.

``inference.yml`` selects a predictor of PaddleX and its pre- and postprocessing. Source:
``paddlex/inference/models/image_classification/predictor.py`` of PaddleX 3, which reads Global, PreProcess and
PostProcess, and selects its predictor by the model's name alone, from a list of names.
"""

import math
import re
from typing import TYPE_CHECKING, Any

import yaml

from ...core.runtime.errors import UserError
from ...core.runtime.json_format import format_json

if TYPE_CHECKING:
    from paddle import nn

    from ...core.settings.every_run import RunSettings
    from ...core.tasks.prediction import CheckpointMeta
    from ...core.tasks.protocols import Exportable
    from ...core.tasks.step_types import ExportParts
    from ...core.tasks.task import Task

# PaddleX's names of the networks it lists; all have the same predictor.
_NAMES = {
    "swin_tiny_patch4_window7_224": "SwinTransformer_tiny_patch4_window7_224",
    "swin_small_patch4_window7_224": "SwinTransformer_small_patch4_window7_224",
    "swin_base_patch4_window7_224": "SwinTransformer_base_patch4_window7_224",
    "swin_base_patch4_window12_384": "SwinTransformer_base_patch4_window12_384",
    "convnext_tiny": "ConvNeXt_tiny",
    "convnext_small": "ConvNeXt_small",
    "convnext_base": "ConvNeXt_base_224",
    "convnext_large": "ConvNeXt_large_224",
    "resnet18": "ResNet18",
    "resnet34": "ResNet34",
    "resnet50": "ResNet50",
    "resnet101": "ResNet101",
}
_DEFAULT_NAME = "CLIP_vit_base_patch16_224"
_TEXT_OR_DIGITS = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![.\d])\d+(?=e)')  # digits: of 1e-06, which is text in YAML 1.1
_UNPRINTABLE = re.compile("[\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # what YAML refuses unless it is escaped


def build_paddlex_description(
    processing: dict[str, Any], model: str, num_classes: int, class_names: list[str] | None
) -> dict[str, Any]:
    """Build the content of ``inference.yml``.

    Args:
        processing: "PreProcess" and "PostProcess" of the task.
        model: registered name; names that PaddleX does not list are replaced by a listed one, with the same predictor.
        num_classes: number of outputs.
        class_names: in the order of the outputs; None: classes are named by number.
    """
    names = list(class_names) if class_names else [str(number) for number in range(num_classes)]
    requested = dict(processing["PostProcess"]["Topk"])
    top = {"topk": min(int(requested["topk"]), num_classes), "label_list": names}
    return {
        "Global": {"model_name": _NAMES.get(model, _DEFAULT_NAME)},
        "PreProcess": processing["PreProcess"],
        "PostProcess": {"Topk": {**requested, **top}},
    }


class _PlainDumper(yaml.SafeDumper):
    """YAML writer without aliases for repeated lists, and with lists of numbers on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write a list that occurs twice twice."""
        return True


def _numbers_on_one_line(dumper: yaml.SafeDumper, values: Any) -> yaml.Node:
    is_short = all(value is None or isinstance(value, (int, float)) for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=is_short)


_PlainDumper.add_representer(list, _numbers_on_one_line)


def to_yaml(content: object) -> str:
    """Format plain values as YAML, in their order."""
    return yaml.dump(content, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=120)


def format_about(about: dict[str, Any]) -> str:
    """Format the description of a model as JSON that YAML readers take, too.

    What JSON cannot express, such as numbers as names in the options of a user's network, is formatted as YAML.
    """
    if not _is_json(about):
        return to_yaml(about)
    text = format_json(about, indent=1, ensure_ascii=False)
    text = _TEXT_OR_DIGITS.sub(lambda found: found[0] if found[0].startswith('"') else f"{found[0]}.0", text)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def _is_json(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) for name in value) and all(map(_is_json, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_json, value))
    return not isinstance(value, float) or math.isfinite(value)


def require_exportable(task: "Task") -> "Exportable":
    """Return the aspect of a task that exports its models; raises a UserError if it cannot."""
    from ...core.tasks.aspects import get_aspect
    from ...core.tasks.protocols import Exportable

    aspect = get_aspect(task, Exportable)
    if aspect is None:
        raise UserError(f"export: task {task.config.TASK} does not support it: its class is not Exportable")
    return aspect


def describe_model(name: str, weights: str, model: "nn.Layer", parts: "ExportParts | None") -> dict[str, Any]:
    """Return the facts of a network that its exported description has."""
    from ...core.tasks.model import input_size

    size = input_size(model) if parts is None or parts.size is None else parts.size
    shape = [None, parts.channels if parts else model.in_channels, *size]
    num_classes = getattr(model, "num_classes", 1)  # a network that no ``create_model`` built may have none
    return {"model": name, "weights": weights, "num_classes": num_classes, "input_shape": shape}


def describe_run(config: "RunSettings", learned: "CheckpointMeta") -> dict[str, Any]:
    """Return what ``predict`` needs to know of the run, as its ``about.yaml`` has it, without files and folders."""
    from ...core.engine.compatibility import to_plain_settings
    from ...core.settings.table import split_paths

    settings, _ = split_paths(to_plain_settings(config))
    names = None if learned.class_names is None else list(learned.class_names)
    settings["MODEL"]["NUM_CLASSES"] = learned.num_classes
    settings["ALLOW_CHANGES"] = False  # at the export
    split = {"number of classes": learned.num_classes, "classes": names, **learned.data}
    return {"input": dict(learned.input), "data": {"trained": split}, "settings": settings}
