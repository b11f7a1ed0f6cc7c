"""Names that are imported on first use."""

import sys
import warnings

import pytest

from paddlevit_dist.core.runtime import lazy_names, printing


def test_a_package_has_the_names_of_its_stub(tmp_path):
    (tmp_path / "__init__.pyi").write_text(
        '"""Text."""\nfrom .printing import shorten\nfrom .spelling import compose\n'
    )
    names, get, list_all = lazy_names.lazy_names("paddlevit_dist.core.runtime", str(tmp_path / "__init__.py"))
    assert get("shorten") is printing.shorten and names == list_all() == ["compose", "shorten"]
    with pytest.raises(AttributeError, match=r"^module 'paddlevit_dist.core.runtime' has no attribute 'other'$"):
        get("other")


@pytest.mark.parametrize("name, is_explained", [("paddle", True), ("paddle.nn", False), ("numpy", False)])
def test_what_needs_paddle_says_how_to_install_it(name, is_explained):
    error = ModuleNotFoundError("none", name=name)
    with pytest.raises(ModuleNotFoundError) as raised, lazy_names.needing_paddle("train"):
        raise error
    text = (
        f"train needs Paddle, which is not installed: {sys.executable} -m pip install paddlepaddle, or its build for "
        "your device"
    )
    assert (str(raised.value), raised.value.name) == ((text, "paddle") if is_explained else ("none", name))
    assert (raised.value is error) is not is_explained


def test_the_warning_of_paddles_import_is_hidden_in_the_block_only():
    before = list(warnings.filters)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with lazy_names.needing_paddle("train"):
            for module in ("paddle.utils.cpp_extension.extension_utils", "own"):
                warnings.warn_explicit("No ccache found. Please", UserWarning, "file.py", 1, module)
    assert len(shown) == 1
    with lazy_names.needing_paddle("train"):
        pass
    assert list(warnings.filters) == before


def test_an_object_is_imported_from_its_place():
    for place in ("paddlevit_dist.core.runtime.printing:shorten", ".core.runtime.printing:shorten"):
        assert lazy_names.import_object(place) is printing.shorten
    assert lazy_names.import_object(".printing:shorten", "paddlevit_dist.core.runtime") is printing.shorten
