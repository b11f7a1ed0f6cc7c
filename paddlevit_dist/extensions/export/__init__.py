"""Export trained models to Paddle Inference, PaddleX and ONNX, and evaluate exported models of any program.

This extension can be deleted (see ``registry.features``).

- ``command``: the command ``export``; ``trained_models``: load what it exports
- ``pixels``: move the normalization of images into the model; ``differences``: compare outputs
- ``onnx_files``: convert Paddle's inference model to an ONNX file, and compute it on the CPU
- ``half``: convert a graph to float16, with float32 where 11 bits are too few
- ``quantization``: quantize a graph to int8; ``int8``: calibrate, choose its layers by the score, and measure the cost;
  ``int8_options``: what this needs
- ``graph``: editable ONNX graph, and its simplification
- ``fusion``: replace parts of a graph by onnxruntime's fused operators, with fewer passes over memory
- ``descriptions``: description files of an exported model, for users and for PaddleX
- ``outputs``: the files of an export, and which ones it may replace
- ``hub_folder``: weights, record and card of a run as a folder for Hugging Face
- ``settings``, ``files``: keys and file lookup of ``evaluate MODEL.onnx``
- ``functions``, ``openvino_model``: compute exported models; ``scoring``: evaluate them, with the difference to the
  trained weights; ``prediction``: predict with them
"""
