"""Classes of single elements, points or pixels: what they are trained with and scored by, wherever they lie.

- ``losses``: sums over the labelled ones, and what these are divided by
- ``counts``: what was taken for what, and how near to boundaries; without Paddle
- ``confusion``: the metrics of a task that labels elements
- ``tables``: what a report tells of them
- ``classification``, ``classifier``, ``classifier_figures``: the same of samples that have one class each
"""
