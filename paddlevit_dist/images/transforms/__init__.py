"""From an image to a network's input array; all randomness comes from the sample's generator.

- ``crops``: sizes, crops, flips: the transforms as a whole, of training and evaluation
- ``policies``, ``policy_tables``, ``operations``: RandAugment, AutoAugment, colour jitter and their building blocks
- ``operations_compiled``: Pillow's resize and operations in compiled loops, equal to them (``compiled_resize``,
  ``compiled_warp``, ``compiled_levels``, ``levels``)
- ``erasing``, ``mixing``: drawn here, carried out on the device
- ``decoding_opencv``, ``operations_opencv``: the fast ways of DATA.DECODER fast
"""
