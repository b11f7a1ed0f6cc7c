"""Self-distillation: a student learns the outputs of an average of itself for other views of the same image."""
