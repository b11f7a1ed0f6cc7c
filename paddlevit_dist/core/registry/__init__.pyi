from .lookup import resolve

__all__ = ["resolve"]
