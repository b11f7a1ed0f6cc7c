"""Score the classes of single elements, points or pixels, and of whole samples.

``losses.py`` beside this package has what such tasks are trained with.

- ``counts``: counts what was taken for what, and how near to boundaries; without Paddle
- ``confusion``: the metrics of a task that labels elements
- ``tables``: tables of a report about them
- ``classification``, ``classifier``, ``classifier_figures``: the same for samples that have one class each
"""
