"""Image models: one file per family, plus shared modules.

A family's file has its network, its variants with the input that their weights expect, and the rules for other
projects' parameter names. A new one is such a file and a row of ``families`` in the manifest, then ``make reference``.

- ``classifier``, ``segmenter``: what families have in common; ``layers``, ``attention``: parts
- ``pretrained_input``: the input that weights expect; ``key_names``: how parameters are renamed
- ``resampling``: weights for other sizes
"""
