"""Configuration keys of pictures with boxes."""

from __future__ import annotations

from ....config.key import Table

TABLE = Table(keys=())
