"""What the engine brings: the keys of every run."""

from ..registry.manifest import Manifest

MANIFEST = Manifest(__package__, key_tables=(".settings:TABLE",))
