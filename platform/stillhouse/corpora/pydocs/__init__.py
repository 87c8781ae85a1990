"""The corpus ``pydocs``: technical English from the docstrings of the installed packages."""
