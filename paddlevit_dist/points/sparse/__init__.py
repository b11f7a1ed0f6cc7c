"""Sparse tensors and convolution on voxels, using only gathers and matrix products: no compiled extension.

Usage in a task. The plan of a batch depends on coordinates only, so the loader process builds it:

    spec = model.plan_spec()                                   # once; small, pickled to the loader process

    def collate(samples):                                      # in the loader process: no Paddle
        coordinates, features = sparse_collate(...)            # int32 (N, 1 + D), float32 (N, C)
        plan = build_plan(coordinates, spec, num_scenes=len(samples))
        return {"features": features, **plan}                  # "plan_pairs" int32, "plan_header" bytes

    x = SparseTensor(batch["features"], plan=Plan.of_batch(batch))      # in the training step
    logits = model(x)                                          # (N, classes), rows in the order of the features
    point_logits = paddle.gather(logits, batch["inverse"])     # (P, classes): inverse as sparse_quantize returns it

For experiments, ``SparseTensor(features, coordinates)`` builds the plan on demand.

- ``coordinate_keys``, ``coordinate_levels``: sorted keys, levels, and the search for neighbors
- ``coordinate_plan``: the tables that a network needs, built without Paddle and packed into two arrays
- ``device_plan``: kernel maps on the device; ``convolution``: forward and backward pass
- ``tensor``: ``SparseTensor`` and operations on several of them; ``fields``: points between voxels, dense arrays
- ``layers``, ``padded`` (spconv's rule), ``depthwise``, ``pooling``, ``per_scene``, ``functional``: building blocks
- ``switching``: keyword arguments of other libraries' layers; ``weights``: conversion from spconv and torchsparse
"""

from ...core.runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
