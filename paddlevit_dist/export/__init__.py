"""Trained models for other programs: Paddle Inference, PaddleX, ONNX; and the score of exported models, also of those
that others made. An extension: it can be deleted (see ``extension``).

- ``command``: the command ``export``
- ``pixels``: a model of normalized images as one of their pixels; ``differences``: how far outputs are apart
- ``onnx_files``: from Paddle's inference model to an ONNX file, and what that computes on the CPU
- ``half``: the same graph in float16, with float32 where 11 bits are too few
- ``graph``: an ONNX graph that can be edited, and its simplification
- ``fusion``: the same graph with onnxruntime's own operators, and fewer passes over memory around them
- ``descriptions``: what is written beside it, for people and for PaddleX
- ``settings``, ``files``: for ``evaluate MODEL.onnx``: the keys, and which files are meant
- ``functions``: what such files compute; ``scoring``: in the model's place in an evaluation, with the difference to the
  trained weights
"""
