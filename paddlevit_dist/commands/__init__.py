"""What the command line offers, one command a file. Only ``__main__`` and ``main_multi_gpu.py`` import this package.

- ``train``, ``evaluate``: the main job
- ``prepare``: what is done once to data; ``convert``, ``export``: what is done to weights
- ``inspect_data``, ``inspect_model``, ``doctor``: looks at samples, models and the machine
- ``parser``: how all but the main job read their words
"""
