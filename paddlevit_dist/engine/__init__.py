"""The training run. It knows tasks by their contract, and no subject.

- ``trainer``: model, record and what is asked for; ``parts``: what a training computes with; ``training``: its loop;
  ``watchers``: who is told of it; ``reports``, ``profile``: two of them; ``evaluation``; ``steps``, ``finite``: one
  update
- ``checkpointer``, ``resumption``, ``about``: what is saved and restored, and what a checkpoint says about itself;
  ``background``: what the training does not wait for; ``weights_check``: finite, and the same on all ranks
- ``evidence``: what is kept of an update that was skipped; ``replay``, ``layer_watch``: which layer makes it not finite
- ``figure_maker``: what is kept of an evaluation for the report, and when its figures are made
- ``trained``: weights without the data they were trained on; ``predictor``, ``prediction_journal``: predictions, and
  what is kept of them while they go on
- ``selftest``: the same updates with other numbers of processes
- ``optimizer``, ``schedule``, ``precision``, ``loss_scale``, ``model_ema``; ``settings``: their keys
- ``one_pass``, ``memory_loops``, ``multi_tensor``: an update of all parameters at once
- ``introduction``, ``remaining``: the first lines of a run, and the time left
"""
