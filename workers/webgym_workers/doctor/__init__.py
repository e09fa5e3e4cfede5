"""``webgym doctor``: what a user runs first, one page of checks of this machine, each with the mend for what is wrong.

``checks`` lists them and what each needs of the others; ``examination`` runs them. What decides is pure and takes
measured facts (``limits``, ``fonts``, ``colours``, ``clicks``, ``clocks``, ``browsers``, ``software``); what measures
stands beside it. ``host`` and ``mends`` know the platforms, ``report`` writes the page.
"""
