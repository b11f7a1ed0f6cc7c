"""Point Transformer V3 and the networks of Sonata, Concerto and Utonia: attention among voxels sorted along a curve.

- ``serialization``: codes of voxels along a curve, depths, and patches of sorted voxels; numpy, in loader processes
- ``tables``: what the network needs of a batch, built and packed with the coordinate plan
- ``attention``, ``blocks``: the layers; ``network``: the networks and their variants
- ``weights``: names of Pointcept's checkpoints
"""
