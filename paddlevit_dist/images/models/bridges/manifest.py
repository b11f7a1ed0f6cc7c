"""What the bridges bring: models of other packages, ``SOURCE:NAME``, and of clones of PaddleViT."""

from ....core.registry.manifest import CLASS_LABELS, Manifest

MANIFEST = Manifest(
    __package__,
    annotations=CLASS_LABELS,
    bridges={
        "timm": ".timm_model:TimmModel",
        "paddlevit": ".paddlevit_model:PaddleVitModel",
        "paddleclas": ".package_model:PaddleClasModel",
        "paddle": ".package_model:PaddleVisionModel",
    },
    sources={"timm": ".timm_model", "paddleclas": ".package_files", "paddle": ".package_files"},
    functions={
        "explain_unsupported": ".paddlevit_files:explain_unsupported",
        "explain_other_task": ".paddlevit_files:explain_other_task",
        "adapt_clone": ".paddlevit_files:adapt",
        "refuse_clone_model": ".paddlevit_files:refuse_clone_model",
    },
)
