"""The package as a library for programs and notebooks.

- ``runs``: train, evaluate and predict in the calling process
- ``data``: datasets of recipes, for other training loops
- ``models``: models with their weights, and the transform of their images
- ``meters``: scores of outputs of any program; ``checks``: validation of their arguments
"""
