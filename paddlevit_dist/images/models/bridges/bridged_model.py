"""The common part of all bridges: a network of another package as a ``Model``."""

import contextlib
from collections.abc import Iterator
from typing import Any

from paddle import nn
from paddle.nn.initializer.lazy_init import lazy_init_helper

from ....core.runtime.errors import UserError
from ....core.tasks.model import Model
from ...imagenet_classes import list_synsets, to_synset


class BridgedModel(Model):
    """Wrap a network of another package.

    The wrapper shares the network's tables of layers, parameters and buffers. Parameters therefore keep the names that
    the other package gives them, and what replaces a layer in the wrapper replaces it in the network.

    Args:
        network: maps images (batch, in_channels, height, width) to logits (batch, num_classes), or to a tuple or list
            that begins with them.
        image_size: (height, width) in pixels that the network is built for; None if it takes any.
    """

    is_capturable = False  # its sublayers do not include the network itself: see ``wrap``

    def __init__(
        self, network: nn.Layer, num_classes: int, image_size: tuple[int, int] | None, in_channels: int
    ) -> None:
        super().__init__()
        self.wrap(network)
        self.num_classes = num_classes
        self.image_size = image_size
        self.in_channels = in_channels

    def wrap(self, network: nn.Layer) -> None:
        """Share the tables of ``network`` from now on."""
        object.__setattr__(self, "network", network)  # not a layer of this one, or all names would begin with it
        self._sub_layers = network._sub_layers
        self._parameters = network._parameters
        self._buffers = network._buffers
        self._non_persistable_buffer_names_set = network._non_persistable_buffer_names_set

    def train(self) -> Any:
        """Set the network to training mode."""
        self.network.train()
        return super().train()

    def eval(self) -> Any:
        """Set the network to evaluation mode."""
        self.network.eval()
        return super().eval()

    def published_classes(self, classes: int) -> list[str] | None:
        """Return the WordNet ids of ImageNet-1k for 1,000 classes, else None."""
        return list_synsets(classes)

    def plain_class(self, name: str) -> str:
        """Normalize a class name, see ``Model.plain_class``; names of ImageNet become WordNet ids."""
        return to_synset(super().plain_class(name))


@contextlib.contextmanager
def outside_lazy_mode() -> Iterator[None]:
    """Leave ``paddle.LazyGuard`` for the block: files of other packages read and change the values of parameters."""
    helper = lazy_init_helper()
    was_lazy = helper.state
    helper.disable()
    try:
        yield
    finally:
        if was_lazy:
            helper.enable()


@contextlib.contextmanager
def one_line_for(what: str) -> Iterator[None]:
    """Turn any exception of another package's files into a ``UserError`` of one line that begins with ``what``."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[-300:]
        raise UserError(f"{what}: its files raise {type(error).__name__}: {reason}") from error
