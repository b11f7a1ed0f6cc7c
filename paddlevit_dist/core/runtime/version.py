"""The version of this package, which every run stores; setup.py and tools/release.py read it from this file."""

__version__ = "0.1.0rc1"
