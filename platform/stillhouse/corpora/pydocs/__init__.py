"""The corpus ``pydocs``: technical English from the docstrings of installed packages."""
