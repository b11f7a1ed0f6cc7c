"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .coordinate_plan import MapKey, PlanSpec, build_plan
from .depthwise import DepthwiseConvolution
from .device_plan import Plan
from .fields import PointFeatures, features_at, from_dense, to_dense
from .layers import (
    BatchNorm,
    Convolution,
    Dropout,
    GenerativeConvolution,
    InverseConv3D,
    NestedBatchNorm,
    Pointwise,
    ReLU,
    SparseNetwork,
    StridedConv3D,
    SubmanifoldConv3D,
    TransposedConvolution,
)
from .padded import PaddedConvolution, PaddedInverseConvolution, PaddedMaxPooling
from .per_scene import InstanceNorm, broadcast
from .pooling import AveragePooling, GlobalPooling, MaxPooling, SumPooling, Unpooling
from .tensor import SparseTensor, cat, intersection, on_all_voxels, prune, union
from .weights import from_spconv, from_torchsparse

__all__ = [
    "AveragePooling",
    "BatchNorm",
    "Convolution",
    "DepthwiseConvolution",
    "Dropout",
    "GenerativeConvolution",
    "GlobalPooling",
    "InstanceNorm",
    "InverseConv3D",
    "MapKey",
    "MaxPooling",
    "NestedBatchNorm",
    "PaddedConvolution",
    "PaddedInverseConvolution",
    "PaddedMaxPooling",
    "Plan",
    "PlanSpec",
    "PointFeatures",
    "Pointwise",
    "ReLU",
    "SparseNetwork",
    "SparseTensor",
    "StridedConv3D",
    "SubmanifoldConv3D",
    "SumPooling",
    "TransposedConvolution",
    "Unpooling",
    "broadcast",
    "build_plan",
    "cat",
    "features_at",
    "from_dense",
    "from_spconv",
    "from_torchsparse",
    "intersection",
    "on_all_voxels",
    "prune",
    "to_dense",
    "union",
]
