"""Classes of single elements, points or pixels: what they are scored by, wherever they lie; ``losses.py`` beside this
package is what they are trained with.

- ``counts``: what was taken for what, and how near to boundaries; without Paddle
- ``confusion``: the metrics of a task that labels elements
- ``tables``: what a report tells of them
- ``classification``, ``classifier``, ``classifier_figures``: the same of samples that have one class each
"""
