"""Untrained networks whose outputs differ between inputs, as a trained one's do.

In evaluation, a new network on voxels returns nearly the same numbers for all points, whatever it is given.
"""

from paddle import nn


def vary(model: nn.Layer) -> nn.Layer:
    """Multiply the weights, but no scales and shifts, and set the network to evaluation."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.set_value(6 * parameter)
    model.eval()
    return model
