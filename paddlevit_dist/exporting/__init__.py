"""Exported models in other formats than Paddle's. Nothing in here knows a task or a run.

- ``onnx_files``: from Paddle's inference model to an ONNX file, and what that computes on the CPU
- ``graph``: an ONNX graph that can be edited, and its simplification
- ``fusion``: the same graph with onnxruntime's own operators, with ``picture_parts``; ``half``: in float16
- ``plain_yaml``: YAML without aliases; ``paddlex``: the description that PaddleX reads
"""
