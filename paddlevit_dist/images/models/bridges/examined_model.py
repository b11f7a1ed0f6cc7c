"""Networks of other packages: the trainer finds by trial what their files do not state."""

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle import nn

from ....core.runtime.errors import UserError
from ....core.tasks.model_factory import build_outline
from .bridged_model import BridgedModel, one_line_for, outside_lazy_mode

_NOT_DECAYED = re.compile(  # parameters, or parts of a list of them as CrossViT has
    r"(?:^|\.)(?:pos_emb|position_emb|cls_token|class_token|dist_token|relative_position_bias)\w*(?:\.\d+)?$"
)
_BLOCKS = ("blocks", "layers", "stages")  # lists of what an input passes one after the other
# Methods without arguments that merge the branches of a layer, as PaddleViT and PaddleClas call them.
_MERGING = ("switch_to_deploy", "merge_kernel", "local_inject", "re_parameterize")
_LARGEST_DIFFERENCE = 1e-3  # of outputs before and after a merge, relative to the largest of them


class ExaminedModel(BridgedModel):
    """A network that ``build(num_classes, in_channels)`` makes.

    The classifier is what has another shape in a network for another number of classes. If nothing has, the build
    function does not take the number: new linear layers replace the layers of ``own_classes`` outputs. A ``UserError``
    says that the files raise an exception, or ignore what is asked of them.

    A network that returns several outputs in training only, such as VOLO and distilled ones, returns in training what
    it returns in evaluation: otherwise a part of the evaluated output would never learn.
    """

    image_size: tuple[int, int]

    def __init__(
        self,
        name: str,
        build: Callable[[int, int], nn.Layer],
        num_classes: int,
        image_size: tuple[int, int],
        in_channels: int = 3,
        own_classes: int = 1000,
    ) -> None:
        classes = num_classes or own_classes
        with one_line_for(f"model '{name}' cannot be built"), outside_lazy_mode():
            network = build(classes, in_channels)
            heads = _changed_layers(network, lambda: build(classes + 1, in_channels))
            if in_channels != 3 and not _changed_layers(network, lambda: build(classes, 3)):
                raise UserError(f"model '{name}' takes images of 3 channels alone: leave out DATA.IMAGE_CHANNELS")
        is_ignored = not heads
        linear = {path: layer for path, layer in network.named_sublayers() if isinstance(layer, nn.Linear)}
        heads = heads or [path for path, layer in linear.items() if layer.weight.shape[1] == own_classes]
        if not heads:
            raise UserError(
                f"model '{name}': its build function takes no number of classes, and no linear layer has {own_classes} "
                "outputs: it cannot be trained as a classifier here"
            )
        super().__init__(network, num_classes, image_size, in_channels)
        self.classifier_layers = tuple(heads)
        widths = {linear[head].weight.shape[0] if head in linear else None for head in heads}
        self.embed_dim = widths.pop() if len(widths) == 1 else None  # of features, for probes
        lists = [one for one in _BLOCKS if isinstance(getattr(network, one, None), (nn.LayerList, nn.Sequential))]
        self.layer_names = rf"(?:{'|'.join(lists)})\.\d+" if lists else None
        self._learns_from_teacher = False
        message = f"model '{name}' does not take images of {image_size[0]} x {image_size[1]}"
        with one_line_for(message), outside_lazy_mode():
            if num_classes == 0 or (is_ignored and num_classes != own_classes):
                self.reset_classifier(num_classes)
            self._answers_as_evaluation = self._is_several_in_training(name)

    @classmethod
    def build(
        cls, name: str, num_classes: int, image_size: int | Sequence[int] | None = None, **options: Any
    ) -> "ExaminedModel":
        """Build the network of ``name`` for ``num_classes``."""
        cls.require_options(name, options)
        family: Callable[..., ExaminedModel] = cls
        return family(name, num_classes, image_size, **options)

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Return the options of ``build`` with their defaults."""
        return {name: default for name, default in super().options().items() if name != "name"}

    def _is_several_in_training(self, name: str) -> bool:
        """Return whether the network returns several outputs in training and one in evaluation, or fails in training.

        VOLO fails with today's NumPy. No layer inside it is in training mode, and none changes.
        """
        images = paddle.zeros([2, self.in_channels, *self.image_size])
        self.network.eval()
        with paddle.enable_grad():
            evaluated = self.network(images)
        logits, is_several = _first(evaluated), isinstance(evaluated, (tuple, list))
        if len(logits.shape) != 2 or self.num_classes not in (0, logits.shape[1]):
            raise UserError(f"model '{name}' returns {list(logits.shape)} for 2 images and {self.num_classes} classes")
        if is_several:  # no loss reaches what the others alone come from, and processes would wait for its gradients
            parameters = [parameter for parameter in self.network.parameters() if not parameter.stop_gradient]
            for one, gradient in zip(parameters, paddle.grad(logits.sum(), parameters, allow_unused=True)):
                one.stop_gradient = gradient is None
        self.network.training = True
        try:
            with paddle.no_grad():
                trained = self.network(images)
        except Exception:  # a network that cannot train this way differs from evaluation
            trained = (evaluated,)
        self.network.train()
        return isinstance(trained, (tuple, list)) and not is_several

    def forward(self, x: paddle.Tensor) -> Any:
        """Compute logits (batch, num_classes) of images (batch, in_channels, height, width), two with a teacher."""
        if self.training and self._answers_as_evaluation and not self._learns_from_teacher:
            self.network.training = False
            outputs = self.network(x)
            self.network.training = True
            return _first(outputs)
        outputs = self.network(x)
        if self.training and self._learns_from_teacher and isinstance(outputs, (tuple, list)):
            logits, of_teacher = outputs[:2]
            return (logits, of_teacher) if logits.shape == of_teacher.shape else logits
        return _first(outputs)

    def learn_from_teacher(self) -> None:
        """Return the logits of both classifiers in training mode."""
        self._learns_from_teacher = True

    def forward_features(self, x: paddle.Tensor) -> paddle.Tensor:
        """Compute the input of the classifier, (batch, embed_dim); of several, that of the one that is called first."""
        found: list[paddle.Tensor] = []
        heads = [layer for path, layer in self.named_sublayers() if path in self.classifier_layers]
        hooks = [head.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0])) for head in heads]
        self(x)
        for hook in hooks:
            hook.remove()
        return next(features for features in found if len(features.shape) == 2)

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layers with newly initialized ones for ``num_classes``."""
        layers = {"": self.network, **dict(self.named_sublayers())}
        for path in self.classifier_layers:
            head = layers[path]
            if not isinstance(head, nn.Linear):
                raise UserError(
                    f"{path}, the classifier, is not a linear layer: build the model for {num_classes} classes"
                )
            above, _, last = path.rpartition(".")
            bias = None if head.bias is not None else False
            new = nn.Linear(head.weight.shape[0], num_classes, bias_attr=bias) if num_classes else nn.Identity()
            setattr(layers[above], last, new)
        self.num_classes = num_classes

    def no_weight_decay(self) -> tuple[str, ...]:
        """Return the names of position embeddings and tokens, which are not decayed."""
        return tuple(name for name, _ in self.named_parameters() if _NOT_DECAYED.search(name))

    def recomputed_layers(self) -> list[nn.Layer]:
        """None: nothing says which layers map one tensor to one."""
        return []

    def merge_branches(self) -> str:
        """Merge the branches of a re-parametrizable network, and return a note with the error."""
        if not any(hasattr(module, branch) for module in self.sublayers() for branch in _MERGING):
            return ""
        merged, images = copy.deepcopy(self.network), paddle.randn([1, self.in_channels, *self.image_size])
        self.eval()
        as_trained = "its branches are exported unmerged"
        with paddle.no_grad():
            before = _first(self.network(images))
            try:
                for layer, name in [(module, branch) for module in merged.sublayers() for branch in _MERGING]:
                    getattr(layer, name, lambda: None)()
                merged.eval()
                difference = float((_first(merged(images)) - before).abs().max() / before.abs().max())
            except Exception as error:
                return f"{as_trained}: merging them raises {type(error).__name__}: {str(error).strip()[:200]}"
        if not difference <= _LARGEST_DIFFERENCE:
            return f"{as_trained}: merged ones give outputs {difference:.1e} off"
        self.wrap(merged)
        return f"its branches are merged: outputs differ by {difference:.1e} of the largest"


def _first(outputs: paddle.Tensor | Sequence[paddle.Tensor]) -> paddle.Tensor:
    return outputs[0] if isinstance(outputs, (tuple, list)) else outputs


def _changed_layers(network: nn.Layer, build_other: Callable[[], nn.Layer]) -> list[str]:
    """List the layers with a parameter of another shape in the other network, which needs no memory."""
    other = build_outline(build_other)
    shapes = {name: parameter.shape for name, parameter in other.named_parameters()}
    names = [name for name, one in network.named_parameters() if shapes.get(name) != one.shape]
    return list(dict.fromkeys(name.rpartition(".")[0] for name in names if "." in name))
