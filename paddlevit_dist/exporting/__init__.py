"""Trained models for other programs: Paddle Inference, PaddleX, ONNX. A wing: it can be deleted (see ``wings``).

- ``command``: the command ``export``
- ``onnx_files``: from Paddle's inference model to an ONNX file, also in float16, and what that computes on the CPU
- ``graph``: an ONNX graph that can be edited, and its simplification
- ``fusion``: the same graph with onnxruntime's own operators, and fewer passes over memory around them
- ``descriptions``: what is written beside it, for people and for PaddleX
"""

COMMANDS = {"export": (".exporting.command:run", "a trained model for Paddle Inference, PaddleX or ONNX")}
