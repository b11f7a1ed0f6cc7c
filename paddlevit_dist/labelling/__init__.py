"""Classes of single elements, points or pixels: what their predictions are scored by, wherever they lie.

- ``counts``: what was taken for what, and how near to boundaries; without Paddle
- ``confusion``: the metrics of a task that labels elements
- ``tables``: what a report tells of them
"""
