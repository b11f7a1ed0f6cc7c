"""Write one HTML file about one or several runs from their folders, without Paddle, data or network.

This is an extension: the folder can be deleted (see ``registry.features``).

- ``command``: the command ``report``; ``settings``: keys; ``callback``: writes figures and report during a run
- ``store``: the file with the figures of a run; ``still``: an image of a point set
- ``runs``: reads the folder of a run, even if it is damaged
- ``curves``: lay out charts; ``page``: the content of the page as plain data, with its sections in ``render``
- ``report.html.j2``: the page; ``parts.html.j2``: a macro for each kind of figure and part
- ``report.css``, ``report.js``, ``matrix.js``, ``viewer.js``: styles and scripts
"""
