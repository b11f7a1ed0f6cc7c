"""Weights and training state on disk. No code in a file is ever executed.

- ``store``: checkpoints of a run: written completely or not at all, linked, pruned; ``finding``: the one that a run
  continues from
- ``directory_names``: names in a checkpoint; ``integrity``: files are as written; ``records``: what they say
- ``model_record``: what is known of a model and was chosen for it, of a run, converted weights or an exported file
- ``load``: weights of any origin into a model; ``load_report``: what became of every name, and whether it is enough
- ``naming``: weights under the names of a model; ``foreign_names``: layers that PyTorch and others call otherwise
- ``families``: the model family of weights that say nothing of it
- ``low_rank``: what checkpoints of LoRA hold; ``completion``: the rest, from their base
- ``weight_files``: the file that a path means; ``published`` for names, ``download``; ``weights``: what it contains
- ``unpickling`` (Paddle's files) with ``pickle_instructions``, ``torch_files`` (PyTorch's), ``array_files`` (numpy's,
  safetensors): the formats
"""
