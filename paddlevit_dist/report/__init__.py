"""One HTML file about one or several runs, from what is in their folders: without Paddle, data or network. An
extension: it can be deleted (see ``extensions``).

- ``command``: the command ``report``; ``settings``: keys; ``callback``: when a run writes figures and report
- ``store``: the figures of a run in a file of its folder
- ``runs``: what a run's folder holds, however damaged
- ``curves``: lines over updates, as SVG; ``layouts``: each kind of figure as HTML; ``page``: everything together,
  its sections listed in ``render``
- ``report.css``, ``report.js``, ``matrix.js``, ``viewer.js``: how it looks, and what moves
"""

COMMANDS = {"report": (".report.command:run", "one HTML file about one or several runs: curves, settings, mistakes")}
KEYS = ".report.settings:TABLE"
TRAINING_CALLBACKS = EVALUATION_CALLBACKS = {"REPORT": ".report.callback:ReportCallback"}
HOOKS = {"run_failed": ".report.page:write_last_page"}
