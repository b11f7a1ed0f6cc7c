"""Fused Triton kernels for the blocks of vision transformers on CUDA GPUs; this folder can be deleted."""
