"""Contracts between packages: everything that they may use of one another. All other attributes are private.

- ``dataset``: samples on disk (``Dataset``) and samples with their transforms (``TransformedDataset``)
- ``model``: a network with its variants, key maps and ordered layers
- ``task``: what training and evaluation call; ``step_types``: the values that are exchanged
- ``measured_task``: a task of a user in a few lines
- ``protocols``: what one feature asks in addition, such as a prediction; ``aspects``: finds the class that does it
- ``task_state``: what a task changes in training apart from the model's weights
- ``metrics``: scores and tables of samples; ``score_kind``: computes scores again from these tables;
  ``paired_scores``: scores of two models on the same samples, and their differences
- ``figures``: tables, images and point sets that a task gives to the report
- ``prediction``: inputs without labels, and the files of a prediction or an evaluation
- ``sample_checks``: finite numbers, labels in range; ``sample_arrays``: a sample's arrays from what people have;
  ``class_labels``: its class; ``sample_names``: matches
  names from other programs' results; ``sample_groups``: samples that belong together
"""

from ..runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
