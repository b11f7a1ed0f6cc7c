"""Classification of shapes: ``task``, ``settings``, ``data`` (base class, ModelNet) and ``solids`` (synthetic)."""
