"""The part of PyTorch's names that the files of timm import, on Paddle.

Names that are not here are Paddle's own, which in 3.3 take PyTorch's arguments. Each entry here is a difference that
one of timm's files has shown: another meaning, another order of arguments, or a name that Paddle does not have.
"""

import contextlib
import importlib.util
import operator
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn

from . import torch_functions as functions
from . import torch_layers as layers


class Namespace(types.ModuleType):
    """Hold names of a module of PyTorch; what is not set is looked up in modules of Paddle."""

    def __init__(self, name: str, names: Mapping[str, Any], *others: object) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__dict__.update(names)
        self._others = others

    def __getattr__(self, name: str) -> Any:
        for other in self._others:
            if hasattr(other, name):
                return getattr(other, name)
        raise AttributeError(f"Paddle has no {self.__name__}.{name}")


def _unused(name: str) -> type:
    """Make a class for names that timm's files only mention, in annotations or in code that no model here runs."""
    return type(name, (), {"__class_getitem__": classmethod(lambda cls, item: cls)})


def _same(function: object = None, *args: object, **options: object) -> Any:
    """Decorate without a change, with or without arguments."""
    return function if callable(function) else lambda decorated: decorated


def _functional() -> Namespace:
    compat = paddle.compat.nn.functional
    names = {name: getattr(compat, name) for name in compat.__all__}
    names |= {
        "linear": layers.linear,
        "conv2d": layers.conv2d,
        "dropout": functions.dropout,
        "avg_pool2d": layers.avg_pool2d,
        "max_pool2d": layers.max_pool2d,
        "group_norm": functions.group_norm,
        "rms_norm": functions.rms_norm,
        "batch_norm": functions.batch_norm,
        "relu6": functions.relu6,
        "interpolate": functions.interpolate,
        "grid_sample": functions.grid_sample,
        "affine_grid": functions.affine_grid,
        "one_hot": functions.one_hot,
        "scaled_dot_product_attention": functions.attend,
    }
    return Namespace("torch.nn.functional", names, F)


def _init() -> Namespace:
    names = {"kaiming_uniform_": functions.kaiming(True), "kaiming_normal_": functions.kaiming(False)}
    return Namespace("torch.nn.init", {**names, "_calculate_fan_in_and_fan_out": functions.fans}, nn.init)


_ACTIVATIONS = ("ReLU", "ReLU6", "GELU", "Hardswish", "Hardsigmoid", "LeakyReLU", "Mish", "Sigmoid", "Tanh", "ELU")


def _layers(functional: Namespace, init: Namespace) -> Namespace:
    names = {name: getattr(paddle.compat.nn, name) for name in paddle.compat.nn.__all__}
    names |= {name: layers.without_inplace(getattr(nn, name)) for name in (*_ACTIVATIONS, "CELU", "SELU", "Softplus")}
    names |= {
        name: value
        for name, value in vars(layers).items()
        if isinstance(value, type) and value.__module__ == layers.__name__ and not name.startswith("_")
    }
    names |= {"functional": functional, "init": init, "Dropout2d": nn.Dropout2D}
    names |= {"AdaptiveAvgPool2d": nn.AdaptiveAvgPool2D, "AdaptiveMaxPool2d": nn.AdaptiveMaxPool2D}
    bases = {
        "batchnorm": Namespace("torch.nn.modules.batchnorm", {**names, "_BatchNorm": layers.DistributedBatchNorm}, nn),
        "instancenorm": Namespace("torch.nn.modules.instancenorm", {"_InstanceNorm": nn.InstanceNorm2D}),
        "transformer": Namespace("torch.nn.modules.transformer", {"_get_activation_fn": _unused("activation")}),
    }
    modules = Namespace("torch.nn.modules", bases, nn)
    fusion = Namespace("torch.nn.utils.fusion", {"fuse_conv_bn_eval": _unused("fusion")})
    utils = Namespace("torch.nn.utils", {"fusion": fusion}, nn.utils)
    return Namespace("torch.nn", {**names, "modules": modules, "utils": utils}, nn)


def _torch() -> Namespace:
    names = {name: getattr(paddle.compat, name) for name in paddle.compat.__all__}
    functional, init = _functional(), _init()
    jit = ("ignore", "unused", "script", "export", "interface", "script_if_tracing", "_script_if_tracing")
    annotations = Namespace("torch.jit.annotations", {"List": list})
    # A model that is traced does not keep values computed from its weights, which a later update would make wrong.
    of_jit = {"is_scripting": bool, "is_tracing": lambda: True, "annotate": lambda kind, value: value}
    checkpoint = Namespace("torch.utils.checkpoint", {"checkpoint": functions.checkpoint})
    names |= {
        "nn": _layers(functional, init),
        "jit": Namespace(
            "torch.jit",
            {**dict.fromkeys(jit, _same), **of_jit, "Final": _unused("Final"), "annotations": annotations},
        ),
        "fx": Namespace("torch.fx", {"wrap": _same}),
        **{name: Namespace(f"torch.{name}", {}, _Anything()) for name in ("hub", "optim")},
        "distributed": paddle.distributed,
        "compiler": Namespace("torch.compiler", {"is_exporting": bool, "is_compiling": bool, "disable": _same}),
        "utils": Namespace("torch.utils", {"checkpoint": checkpoint}),
        "autograd": paddle.autograd,
        "pow": operator.pow,
        "div": functions.div,
        "addcmul": functions.addcmul,
        "var_mean": functions.var_mean,
        "get_default_dtype": lambda: getattr(paddle, paddle.get_default_dtype()),
        "contiguous_format": None,
        "channels_last": None,
        "inference_mode": paddle.no_grad,
        "_assert": _same,
        "__version__": "2.9",
    }
    return Namespace("torch", names, paddle)


class _Anything:
    """Provide every name, as a class that is never instantiated."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _unused(name)


_VISION = ("ops", "ops.misc", "transforms", "transforms.functional", "datasets", "utils")


def _modules() -> dict[str, types.ModuleType]:
    """Return the modules that timm's files import, by name."""
    found: dict[str, types.ModuleType] = {}

    def add(module: types.ModuleType) -> None:
        found[module.__name__] = module
        for one in list(vars(module).values()):
            if isinstance(one, Namespace) and one.__name__.startswith(f"{module.__name__}."):
                add(one)

    add(_torch())
    found["torch.distributed"] = paddle.distributed
    for name in ("torchvision", *(f"torchvision.{part}" for part in _VISION)):
        found[name] = Namespace(name, {}, _Anything())
    return found


@contextlib.contextmanager
def torch_on_paddle(constants: str) -> Iterator[None]:
    """Let ``import torch`` mean these names while the block runs, whether PyTorch is installed or not.

    ``constants`` is the file with timm's ``data/constants.py``; the rest of its ``data`` reads images with PyTorch.
    """
    functions.install_methods()
    spec = importlib.util.spec_from_file_location("timm.data.constants", constants)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    data = Namespace("timm.data", {key: value for key, value in vars(module).items() if key.isupper()})
    names = {**_modules(), "timm.data": data, "timm.data.constants": module}
    hidden = {key: one for key, one in sys.modules.items() if key.partition(".")[0] in ("torch", "torchvision")}
    for name in hidden:
        del sys.modules[name]
    sys.modules.update(names)
    try:
        yield
    finally:
        for name in names:
            if name.startswith("torch"):
                sys.modules.pop(name, None)
        sys.modules.update(hidden)
