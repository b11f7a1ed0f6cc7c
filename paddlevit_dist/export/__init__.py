"""Trained models for other programs: Paddle Inference, PaddleX, ONNX; and the score of exported models, also of those
that others made. An extension: it can be deleted (see ``extensions``).

- ``command``: the command ``export``
- ``onnx_files``: from Paddle's inference model to an ONNX file, also in float16, and what that computes on the CPU
- ``graph``: an ONNX graph that can be edited, and its simplification
- ``fusion``: the same graph with onnxruntime's own operators, and fewer passes over memory around them
- ``descriptions``: what is written beside it, for people and for PaddleX
- ``settings``, ``files``: for ``evaluate MODEL.onnx``: the keys, and which files are meant
- ``functions``: what such files compute; ``scoring``: in the model's place in an evaluation, with the difference to the
  trained weights
"""

COMMANDS = {"export": (".export.command:run", "a trained model for Paddle Inference, PaddleX or ONNX")}
KEYS = ".export.settings:TABLE"
EVALUATION_CALLBACKS = {"EXPORTED": ".export.scoring:Comparison"}
EVALUATED = {"EXPORTED": ".export.scoring:exported_model"}
HOOKS = {
    "evaluated_word": ".export.files:setting_of",
    "evaluated_weights": ".export.scoring:in_place_of_weights",
}
