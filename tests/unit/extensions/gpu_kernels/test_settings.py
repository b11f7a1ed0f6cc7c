"""The key of fused kernels, and the package that it needs."""

import pytest
from support.key_pages import check_effects, check_rows

from paddlevit_dist import UserError
from paddlevit_dist.core import settings


def test_rows_of_the_pages_are_those_of_the_keys():
    check_rows("extensions.gpu_kernels")


def test_effects_of_the_keys_are_those_of_the_table():
    check_effects("extensions.gpu_kernels")


def test_without_triton_the_key_is_refused(module_specs):
    module_specs["triton"] = None
    with pytest.raises(UserError, match=r"GPU_KERNELS .*triton.*pip install '\.\[triton\]' in a clone") as refusal:
        settings.load(["-cfg=vit_digits", "GPU_KERNELS", "True"])
    assert "\n" not in str(refusal.value)
    assert settings.load(["-cfg=vit_digits"]).values.GPU_KERNELS == "auto"
