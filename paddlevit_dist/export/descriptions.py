"""Files beside an exported model: YAML for people and for readers that know little of it; and the content of
PaddleX's ``inference.yml``, which of its predictors reads a model and with which pre- and postprocessing.

Source: ``paddlex/inference/models/image_classification/predictor.py`` of PaddleX 3, which looks at Global, PreProcess
and PostProcess, and chooses its predictor by the model's name alone, from a list of names.
"""

from typing import Any

import yaml

# Names of PaddleX for the networks it lists; its predictor is the same for all of them.
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
_ANY_OTHER = "CLIP_vit_base_patch16_224"


def paddlex_description(
    processing: dict[str, Any], model: str, num_classes: int, class_names: list[str] | None
) -> dict[str, Any]:
    """The content of ``inference.yml``.

    Args:
        processing: "PreProcess" and "PostProcess", as the task gave them.
        model: registered name; PaddleX lists few of them, and any listed name reads the others as well.
        class_names: in the order of the outputs; None: their numbers are the names.
    """
    names = list(class_names) if class_names else [str(number) for number in range(num_classes)]
    asked = dict(processing["PostProcess"]["Topk"])
    top = {"topk": min(int(asked["topk"]), num_classes), "label_list": names}
    return {
        "Global": {"model_name": _NAMES.get(model, _ANY_OTHER)},
        "PreProcess": processing["PreProcess"],
        "PostProcess": {"Topk": {**asked, **top}},
    }


class _PlainDumper(yaml.SafeDumper):
    """A list that occurs twice is written twice, and a short list of numbers stays on its line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _numbers_on_one_line(dumper: yaml.SafeDumper, values: Any) -> yaml.Node:
    is_short = all(value is None or isinstance(value, (int, float)) for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=is_short)


_PlainDumper.add_representer(list, _numbers_on_one_line)


def as_yaml(content: Any) -> str:
    """Plain values as YAML, in their order."""
    return yaml.dump(content, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=120)
