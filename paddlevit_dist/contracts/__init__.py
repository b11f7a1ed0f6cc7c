"""What rooms may ask of one another: of a data set, of a model, of a task."""
