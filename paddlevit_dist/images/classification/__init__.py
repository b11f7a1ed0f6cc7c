"""Classification of images.

``task`` has training, evaluation, prediction and export, with ``samples``; ``distillation`` (a teacher),
``class_balance`` (rare classes), ``figures`` of the report and ``prediction`` (what is drawn) beside it. ``settings``
has the keys.
"""
