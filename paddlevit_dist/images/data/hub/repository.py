"""Repositories of data sets at Hugging Face: ``hf:OWNER/NAME``, fetched once to the cache of its library.

Only data, cards and lists are fetched: a script of a repository is neither copied nor executed.
"""

import functools
import os
import re
from collections.abc import Callable
from typing import Any

from ....core.checkpoint.download import in_one_line
from ....core.runtime.errors import UserError
from .features import Feature
from .layout import CARD, list_patterns, read_card, read_info

_PREFIX = "hf:"
_SPELLING = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_LISTS = (CARD, "*.json", "*.jsonl", "*.txt", "*.csv")
_DATA = ("*.parquet", "*.arrow", *(f"*.{suffix}" for suffix in "png jpg jpeg webp bmp tif tiff gif".split()))


def is_repository(path: str) -> bool:
    """Return whether a data path names a repository at Hugging Face."""
    return os.fspath(path).startswith(_PREFIX)


def fetch_repository(address: str, configuration: str | None = None) -> str:
    """Return the folder with the data of a repository, of one configuration if the card lists its files.

    Raises:
        UserError: it cannot be fetched, and is not in the cache; with what to copy where.
    """
    return _fetch(address, configuration)


@functools.cache
def _fetch(address: str, configuration: str | None) -> str:
    from huggingface_hub import snapshot_download  # not at the top: few runs fetch data

    name, revision = parse_address(address)
    patterns = list_patterns(_fetch_card(address), configuration)
    data = [pattern.replace("**/", "").replace("**", "*") for pattern in patterns] or _DATA
    options: dict[str, Any] = {"repo_type": "dataset", "revision": revision, "allow_patterns": [*_LISTS, *data]}
    return str(_ask(address, lambda: snapshot_download(name, **options)))


def read_repository_features(address: str) -> dict[str, Feature]:
    """Return the types of columns that the card of a repository gives; empty if it gives none."""
    card = _fetch_card(address)
    infos = card.get("dataset_info")
    first = infos[0] if isinstance(infos, list) and infos else infos
    name = str(first.get("config_name", "default")) if isinstance(first, dict) else "default"
    return read_info(card, name, f"{address}, {CARD}")


@functools.cache
def _fetch_card(address: str) -> dict[str, Any]:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    name, revision = parse_address(address)

    def fetch() -> str | None:
        try:
            return hf_hub_download(name, CARD, repo_type="dataset", revision=revision)
        except LocalEntryNotFoundError:
            raise
        except EntryNotFoundError:  # a repository without a card
            return None

    file = _ask(address, fetch)
    return {} if file is None else read_card(os.path.dirname(file))


def parse_address(address: str) -> tuple[str, str | None]:
    """Return OWNER/NAME and the revision of a repository, None for its main branch; a UserError for other words."""
    match = _SPELLING.fullmatch(address)
    if match is None:
        raise UserError(f"data path {address}: expected hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
    return match[1], match[2]


def _ask(address: str, fetch: Callable[[], Any]) -> Any:
    """Return what Hugging Face's library fetches for a data path; a UserError says what to copy where."""
    name, _ = parse_address(address)
    advice = (
        f"copy it with 'hf download {name} --repo-type dataset --local-dir FOLDER' where there is a network, and give "
        "-data_path=FOLDER"
    )
    with in_one_line(f"data path {address}", advice):
        return fetch()
