"""The command line, one command per file. Only ``__main__`` and ``main_multi_gpu.py`` import this package.

- ``train``, ``evaluate``: the main job; ``replay``, ``selftest``: what it does with these flags
- ``predict``: what trained weights say of data without labels
- ``prepare``: one-time processing of data; ``convert``, ``export``: processing of weights
- ``inspect_data``, ``inspect_model``, ``inspect_recipes``, ``doctor``, ``version``: look at samples, models, recipes
  and the machine
- ``completion``, ``schema``: for shells and editors
- ``parser``: how all but the main job parse their arguments
"""

COMMANDS = {  # name -> function under ``commands`` that implements it, and what it does
    "train": ("train:run", "train, and evaluate, on all devices of this machine; takes the main flags"),
    "evaluate": ("evaluate:run", "evaluate trained weights on all devices; takes the main flags"),
    "evaluate detections": ("evaluate_detections:run", "COCO's scores of a file of results; needs no Paddle"),
    "predict": ("predict:run", "what trained weights say of new data without labels"),
    "export": ("export:run", "a trained model for Paddle Inference, PaddleX or ONNX"),
    "convert": ("convert:run", "weights of any origin as .pdparams or .safetensors"),
    "report": ("report:run", "one HTML file about one or several runs: curves, settings, mistakes"),
    "inspect": ("inspect_model:run", "a model's layers and cost by its name; --list: all names"),
    "inspect data": ("inspect_data:run", "a picture of augmented training samples; takes the main flags"),
    "inspect recipes": ("inspect_recipes:run", "the recipes that -cfg=NAME finds, one line each"),
    "inspect submission": ("inspect_submission:run", "predictions against the rules of ScanNet's benchmark"),
    "prepare images": ("prepare:run_images", "check pictures, or pack them as tar files of smaller ones"),
    "prepare scannet": ("prepare:run_scannet", "write raw ScanNet v2 as memory-mapped scenes"),
    "prepare ply": ("prepare:run_ply", "write PLY files as memory-mapped scenes"),
    "prepare pth": ("prepare:run_pth", "the same for PointGroup's _inst_nostuff.pth"),
    "doctor": ("doctor:run", "whether machine, data and first steps of a training are in order; takes the main flags"),
    "completion": ("completion:run", "a script with which a shell completes commands, flags and keys"),
    "schema": ("schema:run", "the keys as a JSON schema, for editors of YAML files"),
    "version": ("version:run", "versions of this package, Paddle and Python"),
}
