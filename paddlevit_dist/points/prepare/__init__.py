"""``python -m paddlevit_dist prepare scannet | ply | pth``: raw scenes become a store that training maps."""
