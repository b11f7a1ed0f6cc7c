"""Weights and states on disk: nothing in a file is ever executed.

- ``store``: checkpoints of a run: written whole or not at all, linked, pruned; ``host_copy``: of what they hold
- ``finding``: which of them a run continues from; ``names``: theirs; ``content``: verified, and believed where it fits
- ``load``: weights of any origin into a model, with a report of every name
- ``weights``: which file a path means, and which of its content are weights; ``download`` for addresses
- ``unpickling`` (Paddle's), ``torch_files`` (PyTorch's), ``safetensors_files``;
  ``refusal``: how a bad file is refused
"""
