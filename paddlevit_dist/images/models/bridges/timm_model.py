"""timm's models, built by timm's own source code with Paddle in place of torch."""

import functools
import importlib.util
import inspect
import itertools
import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import paddle
from paddle import nn

from ....core.checkpoint.foreign_names import from_torch_names, statistics_in, to_torch_names
from ....core.distributed import has_batch_norm
from ....core.registry.names import REGISTRY
from ....core.runtime.errors import UserError
from ....core.runtime.hints import find_similar
from ....core.tasks.model import ClassLayout
from .bridged_model import BridgedModel, one_line_for, outside_lazy_mode

REQUIREMENT = "timm>=1.0.31,<1.1"

# Our own networks of the same names -> how many times as fast they train on a CPU (benchmarks/results/networks.md).
_OWN_SPEED = {"vit": 1.8, "swin": 1.9, "convnext": 3.0}

# Modules of timm with models that have been compared with PyTorch (tests/golden/timm_zoo.json and timm_zoo_more.json).
COMPARED_MODULES = frozenset(
    "beit byoanet byobnet cait coat convit convmixer convnext cpubone crossvit cspnet cspnext davit deit densenet "
    "dla dpn edgenext efficientformer efficientformer_v2 efficientnet efficientvim efficientvit_mit "
    "efficientvit_msra eva fasternet fastvit focalnet gcvit ghostnet hardcorenas hgnet hiera hieradet_sam2 hrnet "
    "iformer inception_next inception_resnet_v2 inception_v3 inception_v4 lcnetv2 levit lowformer mambaout maxxvit "
    "metaformer mlp_mixer mobilenetv3 mobilenetv5 mobilevit mvitv2 naflexvit nasnet nest nextvit nfnet pit pnasnet "
    "pvt_v2 qwen3_vit rdnet regnet repghost repvit res2net resnest resnet resnetv2 rexnet selecsls senet sequencer "
    "shvit sknet starnet swiftformer swin_transformer swin_transformer_v2 swin_transformer_v2_cr tiny_vit tnt "
    "tresnet twins visformer vision_transformer vision_transformer_hybrid vision_transformer_relpos "
    "vision_transformer_sam vitamin volo vovnet xception xception_aligned xcit".split()
)


# Options that detectors and segmenters set for a backbone, see ``TimmModel.build``.
_BACKBONE_OPTIONS = {
    "any_size": False,
    "dilation": 0,
    "frozen_batch_norm": False,
    "frozen_stages": 0,
    "norm_features": False,
}
# timm's arguments of networks that take images of any size, and pad them to whole patches.
_DYNAMIC_SIZE = {"dynamic_img_size": True, "dynamic_img_pad": True}


@functools.cache
def load_timm() -> ModuleType:
    """Import timm on Paddle, once in a process.

    A ``UserError`` says that timm is missing, Paddle is too old, or the program has imported timm with PyTorch.
    """
    if not hasattr(paddle, "compat"):
        raise UserError(f"models of timm need Paddle 3.3 or newer, and this is {paddle.__version__}: upgrade Paddle")
    spec = importlib.util.find_spec("timm")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"models of timm need the package timm: pip install --no-deps '{REQUIREMENT}' (PyTorch is not needed)"
        )
    if "timm" in sys.modules:
        raise UserError(
            "this program has imported timm with PyTorch: build models of timm for Paddle in another process"
        )
    from . import torch_names

    with torch_names.torch_on_paddle(f"{spec.submodule_search_locations[0]}/data/constants.py"):
        import timm
        from timm.layers import create_act, norm_act

    # timm's copy of BatchNorm2d.forward bypasses synchronized statistics; this one calls the layer's own normalization.
    normalization: Any = norm_act.BatchNormAct2d
    normalization.forward = lambda layer, x: layer.act(layer.drop(layer._normalize(x)))
    # It logs resized positions in each conversion, also where a run reads its own weights; ``_convert`` notes them.
    logging.getLogger("timm.layers.pos_embed").setLevel(logging.WARNING)
    # Backward passes written for PyTorch's engine. Paddle's own functions compute the same.
    create_act._ACT_FN_ME.clear()
    create_act._ACT_LAYER_ME.clear()
    return timm


class TimmModel(BridgedModel):
    """A classifier of timm by its name, such as ``timm:efficientnet_b0``, with timm's names and layout of weights."""

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Return what ``build`` can set, besides the number of classes and the image size, with its default."""
        return {"in_channels": 3, "dropout": 0.0, "drop_path": 0.0, **_BACKBONE_OPTIONS}

    @classmethod
    def require_options(cls, name: str, options: Mapping[str, Any]) -> None:
        """Accept any option: timm refuses those that its network does not have when it builds it."""

    @classmethod
    def default_classes(cls, name: str) -> int:
        """Return the number of classes that timm builds the model with."""
        return _pretrained_cfg(name).num_classes

    @classmethod
    def list_notices(cls, name: str) -> list[str]:
        """Say whether no model of its file has been compared with PyTorch, and which network of ours is faster."""
        timm, model_name = load_timm(), name.partition(":")[2]
        _require_model(timm, model_name)
        notices = []
        if not timm.models.is_model_in_modules(model_name, COMPARED_MODULES):
            notices.append(
                f"{name}: no model of this file of timm has been compared with PyTorch here: compare its logits first"
            )
        speed = _OWN_SPEED.get(model_name.partition("_")[0])
        if speed is not None and model_name in REGISTRY.models and paddle.get_device() == "cpu":
            notices.append(f"ours is {speed:g} times as fast on a CPU: MODEL.NAME {model_name}")
        return notices

    @classmethod
    def build(
        cls, name: str, num_classes: int, image_size: int | Sequence[int] | None = None, **options: Any
    ) -> "TimmModel":
        """Build the model that ``timm:NAME`` stands for; a ``UserError`` if timm has no such model or option.

        Args:
            name: with the prefix.
            num_classes: outputs; 0 for the features alone.
            image_size: pixels, one number or (height, width); None: the one that its weights were trained at.
            options: ``in_channels``, ``dropout``, ``drop_path``, timm's own, which it gets unchanged, and these of
                backbones:
                any_size: accept images of any size (timm's ``dynamic_img_size``).
                dilation: number of last stages that keep their resolution (timm's ``output_stride``).
                frozen_batch_norm: fix the statistics, scales and shifts of all batch norms.
                frozen_stages: fix the parameters of this number of first stages; the stem is the first one.
                norm_features: apply the network's last norm to the maps.
        """
        timm, model_name, pretrained_cfg = load_timm(), name.partition(":")[2], _pretrained_cfg(name)
        backbone = {key: options.pop(key, default) for key, default in _BACKBONE_OPTIONS.items()}
        channels = options.pop("in_channels", 3)
        names = {"dropout": "drop_rate", "drop_path": "drop_path_rate"}
        arguments = {names.get(key, key): value for key, value in options.items() if key not in names or value}
        arguments.update({"num_classes": num_classes, **({"in_chans": channels} if channels != 3 else {})})
        if backbone["dilation"]:
            arguments["output_stride"] = 32 >> int(backbone["dilation"])
        size = pretrained_cfg.input_size[1:]
        if image_size is not None:
            size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
            arguments["img_size"] = size
        with one_line_for(f"model '{name}' cannot be built on Paddle"), outside_lazy_mode():
            network = _create(timm, model_name, {**arguments, **(_DYNAMIC_SIZE if backbone["any_size"] else {})})
        built = cls(network, num_classes, tuple(size), channels, is_dilated=bool(backbone["dilation"]))
        if size[0] != size[1]:  # a few networks are built for squares without saying so
            shown = " x ".join(map(str, size))
            with one_line_for(f"model '{name}' does not take images of {shown}"), outside_lazy_mode(), paddle.no_grad():
                built.eval()
                built(paddle.zeros([1, channels, *size]))
            built.train()
        built.norm_features = backbone["norm_features"]
        built.freeze(backbone["frozen_batch_norm"], backbone["frozen_stages"])
        return built

    def __init__(
        self,
        network: nn.Layer,
        num_classes: int,
        image_size: tuple[int, int],
        in_channels: int,
        is_dilated: bool = False,
    ) -> None:
        super().__init__(network, num_classes, image_size, in_channels)
        from .torch_functions import apply_changes, forget_changes  # they need Paddle 3.3

        self._apply_changes, self._forget_changes = apply_changes, forget_changes
        self._has_teacher = self.norm_features = False
        self._resized: list[str] = []  # by the last conversion of weights, each with its shapes
        self.embed_dim = getattr(network, "head_hidden_size", None) or network.num_features  # of ``forward_features``
        named = network.pretrained_cfg.get("classifier") or ()
        self.classifier_layers = (named,) if isinstance(named, str) else tuple(named)
        info = getattr(network, "feature_info", None) if hasattr(network, "forward_intermediates") else None
        levels = _pyramid(info, is_dilated)
        self._levels = [level for level, _, _ in levels]
        self.feature_strides = tuple(stride for _, stride, _ in levels)
        self.feature_channels = tuple(channels for _, _, channels in levels)

    def freeze(self, batch_norms: bool, stages: int) -> None:
        """Fix all batch norms and the parameters of the first stages, as ``build`` explains."""
        if batch_norms:
            for layer in self.sublayers():
                if hasattr(layer, "_use_global_stats"):
                    layer._use_global_stats = True
                    for parameter in (layer.weight, layer.bias):
                        if parameter is not None:
                            parameter.stop_gradient = True
        if stages:
            if not hasattr(self.network, "group_matcher"):
                raise UserError("this model of timm does not name its stages: remove frozen_stages")
            parameters = dict(self.named_parameters())
            for name in itertools.chain(*self._group_parameters(coarse=True)[:stages]):
                parameters[name].stop_gradient = True

    @property
    def key_maps(self) -> Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]:  # type: ignore[override]
        """Return timm's own conversion of weights in other forms or for other sizes."""
        return {"timm": self._convert}

    def _convert(self, state: Mapping[str, Any]) -> dict[str, Any]:
        state, self._resized = to_torch_names(state), []
        shapes = {name: tuple(tensor.shape) for name, tensor in to_torch_names(self.network.state_dict()).items()}
        convert = getattr(sys.modules[type(self.network).__module__], "checkpoint_filter_fn", None)
        if convert is not None and any(getattr(state.get(name), "shape", None) != shapes[name] for name in shapes):
            tensors = {name: paddle.to_tensor(np.asarray(value, order="C")) for name, value in state.items()}
            with paddle.no_grad(), one_line_for("these weights cannot be converted to this image size or model"):
                state = {name: tensor.numpy() for name, tensor in convert(tensors, self.network).items()}
            pairs = {name: (tuple(tensors[name].shape), state[name].shape) for name in tensors.keys() & state.keys()}
            self._resized = [f"{name} {old} -> {new}" for name, (old, new) in sorted(pairs.items()) if old != new]
        return from_torch_names(state)

    def list_source_notices(self, naming: str, state: Mapping[str, Any]) -> list[str]:
        """Return a line about the parameters that timm resized, such as positions for another image size."""
        return [f"resized by timm: {', '.join(self._resized)}"] if self._resized else []

    def forward(self, x: paddle.Tensor) -> Any:
        """Compute logits (batch, num_classes); in training with a teacher also those for the teacher's labels."""
        outputs = self._apply_changes(self._network_in_mode()(x))
        if not isinstance(outputs, (tuple, list)):
            return outputs
        return tuple(outputs) if self._has_teacher and self.training else outputs[0]

    def _network_in_mode(self) -> Any:
        """Return the network with this layer's ``training`` flag: it is not a sublayer, whose flag parents set."""
        self._forget_changes()
        self.network.training = self.training
        return self.network

    def forward_features(self, x: paddle.Tensor) -> paddle.Tensor:
        """Compute the input of the classifier, (batch, channels)."""
        network = self._network_in_mode()
        return self._apply_changes(network.forward_head(network.forward_features(x), pre_logits=True))

    def feature_maps(self, x: paddle.Tensor, sizes: paddle.Tensor | None = None) -> list[paddle.Tensor]:
        """Compute the maps (batch, channels, height, width) of ``feature_strides``, from fine to coarse."""
        if not self._levels:
            return super().feature_maps(x, sizes)
        try:
            maps = self._network_in_mode().forward_intermediates(
                x, indices=self._levels, norm=self.norm_features, output_fmt="NCHW", intermediates_only=True
            )
            return self._apply_changes(maps)
        except (AssertionError, ValueError) as error:
            height, width = x.shape[2:]
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"this model of timm cannot compute maps of {height} x {width} pixels: choose another one ({reason})"
            ) from error

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layers with newly initialized ones for ``num_classes``, or with nothing for 0."""
        self.num_classes = num_classes
        self.network.reset_classifier(num_classes)

    def learn_from_teacher(self) -> None:
        """Return class and distillation logits in training mode (timm's ``set_distilled_training``)."""
        if hasattr(self.network, "set_distilled_training"):
            self.network.set_distilled_training(True)
            self._has_teacher = True

    def class_layout(self, name: str) -> ClassLayout:
        """Return where a parameter has the rows of the classes: weights are (out, in, ...) here."""
        return ClassLayout(axis=0)

    def no_weight_decay(self) -> tuple[str, ...]:
        """Return the names that timm does not decay."""
        names: set[str] = getattr(self.network, "no_weight_decay", set)()
        return tuple(name for name, _ in self.named_parameters() if name in names)

    def layer_groups(self) -> list[list[str]]:
        """Group the names of parameters by timm's ``group_matcher``, or in order, from the input to the head."""
        return self._group_parameters(coarse=False)

    def _group_parameters(self, coarse: bool) -> list[list[str]]:
        if not hasattr(self.network, "group_matcher"):
            return self._group_in_order()
        from timm.models import group_parameters

        matcher = self.network.group_matcher(coarse=coarse)
        groups = group_parameters(self.network, matcher)
        return [groups[number] for number in sorted(groups)]

    def _group_in_order(self) -> list[list[str]]:
        """Group the names as timm's ``auto_group_layers`` does: twelve parameters in turn, then the classifier."""
        names = [parameter_name for parameter_name, _ in self.named_parameters()]
        if not self.classifier_layers:
            return [names]
        statistics = set(statistics_in(names))
        groups: list[list[str]] = []
        head, number = [], 0
        for name in names:
            if name.startswith(self.classifier_layers):
                head.append(name)
                continue
            if name not in statistics:
                if number % 12 == 0:
                    groups.append([])
                number += 1
            groups[-1].append(name)
        return [*groups, head]

    def recomputed_layers(self) -> list[nn.Layer]:
        """Return the blocks of timm's ``group_matcher``; none with batch norms, which would count a batch twice."""
        matcher = self.network.group_matcher(coarse=False) if hasattr(self.network, "group_matcher") else None
        blocks = matcher.get("blocks") if isinstance(matcher, Mapping) else None
        if not blocks:
            return []
        candidates = [blocks] if isinstance(blocks, str) else next(zip(*blocks))
        patterns = [pattern for pattern in candidates if r"(\d+)" in pattern]
        layers = [
            layer
            for name, layer in self.network.named_sublayers()
            if any(re.fullmatch(pattern.rstrip("$"), name) for pattern in patterns)
        ]
        return [] if any(map(has_batch_norm, layers)) else layers


def list_names(prefix: str) -> list[str]:
    """List timm's models and weights as ``PREFIX:NAME``; the prefix is "timm"."""
    timm = load_timm()
    return [f"{prefix}:{name}" for name in sorted({*timm.list_models(), *timm.list_pretrained()})]


def find_address(name: str) -> str:
    """Return the address of the weights ``timm:NAME.TAG``, or of the first ones of ``timm:NAME``.

    It is ``hf:OWNER/REPOSITORY``, or a web address. A ``UserError`` says that timm has no such model or weights.
    """
    pretrained_cfg = _pretrained_cfg(name)
    repository = pretrained_cfg.hf_hub_id
    if repository:
        tag = f".{pretrained_cfg.tag}" if pretrained_cfg.tag else ""
        return f"hf:{repository}{pretrained_cfg.architecture}{tag}" if repository.endswith("/") else f"hf:{repository}"
    if not pretrained_cfg.url:
        raise UserError(f"{name}: timm names no weights for it: give a file (-pretrained=FILE), or train without")
    return pretrained_cfg.url


def get_expected_input(name: str) -> dict[str, Any]:
    """Return what timm's ``pretrained_cfg`` says of the images of ``timm:NAME`` or ``timm:NAME.TAG``."""
    return _pretrained_cfg(name).to_dict()


@functools.cache
def _pretrained_cfg(name: str) -> Any:
    timm, whole_name = load_timm(), name.partition(":")[2]
    model, _, tag = whole_name.partition(".")
    _require_model(timm, model)
    if tag:
        tags = [name_and_tag.partition(".")[2] for name_and_tag in timm.list_pretrained(f"{model}.*")]
        if tag not in tags:
            expected = ", ".join(tags) or "none"
            raise UserError(f"{name}: timm has no such weights of {model}: expected one of the tags {expected}")
    return timm.get_pretrained_cfg(whole_name)


def _require_model(timm: ModuleType, name: str) -> None:
    if not timm.is_model(name):
        near = ", ".join(find_similar(name, timm.list_models(), 3))
        hint = f"did you mean {near}? " if near else ""
        raise UserError(
            f"timm {timm.__version__} has no model '{name}': {hint}'paddlevit-dist inspect --list timm:' names all"
        )


def _create(timm: ModuleType, name: str, arguments: dict[str, Any]) -> nn.Layer:
    """Call timm's ``create_model``; drop the size arguments that the network does not accept.

    A network of convolutions alone takes images of any size, and has neither ``img_size`` nor ``dynamic_img_size``.
    """
    refused: list[str] = []
    while True:
        try:
            network = timm.create_model(
                name, **{option: arguments[option] for option in arguments if option not in refused}
            )
            break
        except TypeError as error:  # in Python's words, or in timm's own, which list all names
            _, _, listed = str(error).partition("unexpected keyword argument")
            unknown = [
                option for option in re.findall(r"'(\w+)'", listed) if option in arguments and option not in refused
            ]
            if not unknown:
                raise
            for key in unknown:
                if key not in ("img_size", *_DYNAMIC_SIZE):
                    module = sys.modules[timm.models.model_entrypoint(name).__module__]
                    owner = getattr(module, str(error).partition(".__init__")[0], object)
                    names = ", ".join(inspect.signature(owner).parameters)
                    raise UserError(f"model 'timm:{name}' has no option '{key}': valid options: {names}") from None
            refused += unknown
    patches: Any = getattr(network, "patch_embed", None)
    if "dynamic_img_size" in arguments:
        if getattr(patches, "strict_img_size", False):
            raise UserError(
                f"model 'timm:{name}' takes images of {patches.img_size} pixels only: choose another backbone"
            )
        if hasattr(patches, "dynamic_img_pad"):
            patches.dynamic_img_pad = True  # Swin has no argument for it
    return network


def _pyramid(info: Iterable[Mapping[str, Any]] | None, is_dilated: bool) -> Sequence[tuple[int, int, int]]:
    """Return index, stride and channels of the maps of a network: the last of each stride, or the last four if dilated.

    A plain ViT, whose maps have one stride, has four in equal steps.
    """
    maps = [] if info is None else [(i, level["reduction"], level["num_chs"]) for i, level in enumerate(info)]
    if is_dilated:
        return maps[-4:]
    if len({stride for _, stride, _ in maps}) == 1 and len(maps) >= 4:
        return [maps[len(maps) * part // 4 - 1] for part in (1, 2, 3, 4)]
    last = {stride: (index, stride, channels) for index, stride, channels in maps}
    return [last[stride] for stride in sorted(last) if stride >= 4]
