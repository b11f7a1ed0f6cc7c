"""Keys of masked autoencoders: what is masked and predicted, and the size of the decoder."""

from ....core.settings.key import AT_LEAST_1, Range, Section, key, rows
from ....core.settings.table import KeyTable
from ..settings import PretrainingSettings

_INSIDE = Range(low=0, high=1, low_open=True, high_open=True)


class MaskedAutoencoderKeys(Section):
    """Keys of MASKED_AUTOENCODER."""

    MASK_SHARE: float = key(0.75, "share of an image's patches that the encoder does not see", _INSIDE)
    NORMALIZED_PATCHES: bool = key(
        True, "predict pixels normalized by mean and deviation of their patch (norm_pix_loss)"
    )
    DECODER_WIDTH: int = key(512, "width of the decoder's tokens, a multiple of 4", AT_LEAST_1, effect="network")
    DECODER_DEPTH: int = key(8, "blocks of the decoder", AT_LEAST_1, effect="network")
    DECODER_HEADS: int = key(16, "attention heads of the decoder", AT_LEAST_1, effect="network")


class MaskedAutoencoderSettings(PretrainingSettings):
    """Keys of masked autoencoders."""

    MASKED_AUTOENCODER: MaskedAutoencoderKeys


TABLE = KeyTable(keys=rows(MaskedAutoencoderSettings))
