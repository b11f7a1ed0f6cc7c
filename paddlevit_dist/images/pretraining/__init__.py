"""Learning from images without labels: masked autoencoders and self-distillation."""
