"""Classification of shapes: ``task``, ``settings``, ``data`` (base class, ModelNet) and ``solids`` (synthetic).

``prediction``, ``figures`` and ``checks`` have the aspects of the task.
"""
