"""Classification of shapes: ``task``, ``settings``, ``data`` (the contract, ModelNet) and ``solids``, made up."""
