"""Loss of a masked autoencoder: squared errors of the pixels of masked patches.

Source: K. He et al., Masked Autoencoders Are Scalable Vision Learners, 2021 (section 3, "Reconstruction target").
"""

import paddle

_EPSILON = 1e-6


def normalize_patches(patches: paddle.Tensor) -> paddle.Tensor:
    """Normalize each patch of (..., pixels) by its own mean and unbiased variance."""
    mean = patches.mean(axis=-1, keepdim=True)
    centered = patches - mean
    variance = centered.square().sum(axis=-1, keepdim=True) / (patches.shape[-1] - 1)
    return centered / (variance + _EPSILON).sqrt()


def reconstruction_losses(
    prediction: paddle.Tensor, target: paddle.Tensor, restore: paddle.Tensor, kept: int
) -> paddle.Tensor:
    """Compute the mean squared error over the masked patches of each image, (batch,).

    Args:
        prediction, target: pixels of all patches, (batch, patches, pixels).
        restore: place of each patch in the drawn order, int64 (batch, patches).
        kept: how many patches of that order are not masked.
    """
    errors = (prediction - target).square().mean(axis=-1)  # (batch, patches)
    is_masked = (restore >= kept).astype(errors.dtype)
    return (errors * is_masked).sum(axis=1) / (restore.shape[1] - kept)
