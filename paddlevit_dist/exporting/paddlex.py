"""PaddleX's ``inference.yml``: which of its predictors reads a model, and with which pre- and postprocessing.

Source: ``paddlex/inference/models/image_classification/predictor.py`` of PaddleX 3, which looks at Global, PreProcess
and PostProcess, and chooses its predictor by the model's name alone, from a list of names.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

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


def description(
    processing: Dict[str, Any], model: str, num_classes: int, class_names: Optional[List[str]]
) -> Dict[str, Any]:
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
