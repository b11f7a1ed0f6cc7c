"""Weights in several files, as Hugging Face stores large models: an index in JSON beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List

from .refusal import reading

INDEX_ENDING = ".index.json"
_LARGEST_INDEX = 100_000_000  # bytes


def shards_of(index: Path) -> List[Path]:
    """The files beside ``index`` that it names, each once.

    Raises:
        UserError: unreadable, damaged, or naming files in other places.
    """
    with reading(str(index), "index of weights"):
        if index.stat().st_size > _LARGEST_INDEX:
            raise ValueError("it is too large")
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        if not names or any(
            Path(name).name != name or Path(name).suffix not in (".safetensors", ".bin") for name in names
        ):
            raise ValueError("it names files that are not beside it")
    return [index.with_name(name) for name in names]
