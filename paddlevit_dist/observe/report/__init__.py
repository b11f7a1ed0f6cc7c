"""One HTML file about one or several runs, from what is in their folders: without Paddle, data or network.

- ``store``: the figures of a run in a file of its folder; ``points``: those of point sets, packed for the viewer
- ``runs``: what a run's folder holds, however damaged
- ``curves``: lines over updates, as SVG; ``layouts``: each kind of figure as HTML; ``page``: everything together
- ``report.css``, ``report.js``, ``matrix.js``, ``viewer.js``: how it looks, and what moves
"""

from .page import PAGE, write_last_page, write_page

__all__ = ["PAGE", "write_last_page", "write_page"]
