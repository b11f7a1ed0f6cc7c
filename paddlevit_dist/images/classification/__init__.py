"""Classification of pictures.

``task`` opens the data and builds the model, and joins what it is made of: ``training`` (losses, a teacher;
``class_balance`` makes up for rare classes), ``evaluation`` (scores; ``classifier_figures`` and ``rollout`` for the
report), ``prediction`` and ``export``. ``settings`` has the keys.
"""
