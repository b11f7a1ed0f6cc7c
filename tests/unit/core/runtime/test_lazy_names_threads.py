"""Paddle's dynamic mode, which the thread that imports Paddle holds."""

import sys
from types import SimpleNamespace

import pytest

from paddlevit_dist.core.runtime import lazy_names


def test_what_holds_the_mode_is_kept_once_even_if_the_import_fails(monkeypatch):
    context = object()
    state = SimpleNamespace(global_var=SimpleNamespace(_functional_dygraph_context_manager=context))
    monkeypatch.setitem(sys.modules, "paddle.base.framework", state)
    monkeypatch.setattr(lazy_names, "_mode_contexts", [])
    for _ in range(2):
        with lazy_names.needing_paddle("train"):
            pass
    with pytest.raises(ValueError, match="own"), lazy_names.needing_paddle("train"):
        raise ValueError("own")
    assert lazy_names._mode_contexts == [context]


def test_nothing_is_kept_without_paddle(monkeypatch):
    monkeypatch.setitem(sys.modules, "paddle.base.framework", None)
    monkeypatch.setattr(lazy_names, "_mode_contexts", [])
    lazy_names.keep_dynamic_mode()
    assert lazy_names._mode_contexts == []
