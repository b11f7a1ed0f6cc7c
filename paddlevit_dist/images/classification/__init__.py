"""Classification of images.

``task`` has training, evaluation, prediction and export, with the help of ``samples``, ``distillation`` (a teacher),
``class_balance`` (rare classes), ``figures`` (for the report) and ``prediction`` (drawings). ``settings`` has the keys.
"""
