"""What export brings: models for other programs, and their evaluation."""

from ...core.registry.manifest import Manifest

MANIFEST = Manifest(
    __package__,
    key_tables=(".settings:TABLE",),
    commands={"export": (".command:run", "export a trained model to Paddle Inference, PaddleX or ONNX")},
    observers={"EXPORTED": ".scoring:ExportComparison"},
    functions={
        "open_exported": ".prediction:open_exported",
        "build_exported": ".prediction:build_exported",
        "load_comparison_weights": ".scoring:load_comparison_weights",
        "load_exported_layer": ".scoring:load_exported_layer",
        "parse_evaluated_argument": ".files:parse_evaluated_argument",
        "read_exported_about": ".files:read_exported_about",
    },
)
