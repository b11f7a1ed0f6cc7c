"""The command line, one command per file. Only ``__main__`` and ``main_multi_gpu.py`` import this package.

- ``train``, ``evaluate``: the main job; ``replay``, ``selftest``: what it does with these flags
- ``predict``: what trained weights say of data without labels
- ``prepare``: one-time processing of data; ``convert``, ``export``: processing of weights
- ``inspect_data``, ``inspect_model``, ``inspect_recipes``, ``doctor``, ``version``: look at samples, models, recipes
  and the machine
- ``parser``: how all but the main job parse their arguments
"""
