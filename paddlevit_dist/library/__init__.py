"""The package as a library: what programs and notebooks call, over what the commands do.

- ``runs``: train, evaluate and predict in the calling process
- ``data``: what a recipe reads, for other loops
- ``models``: models with their weights, and the transform of their images
- ``meters``: scores of anybody's outputs; ``checks`` of what they are given
"""
