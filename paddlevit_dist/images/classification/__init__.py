"""Image classification: the task, its metrics, learning from a teacher."""
