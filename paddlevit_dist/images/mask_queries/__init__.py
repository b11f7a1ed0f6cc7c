"""Networks whose queries each have a class and a mask, for all tasks that segment images.

- ``network``: EoMT; ``annealing``: the course of its masks; ``key_names``: others' names of its parameters
- ``mask_logits``: masks given as logits of a few cells
- ``segments``: panoptic segments and instances of a stored image
"""
