"""Image classification: ``task``, ``metrics``, and ``distillation``, which learns from a teacher."""
