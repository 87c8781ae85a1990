"""Under which licences the sources of the corpus `pydocs` are published, as their own metadata say."""

import importlib.metadata

from stillhouse.corpora.pydocs.extraction import STANDARD_LIBRARY, installed_packages

_SHORT = 60


def package_licences() -> dict[str, str]:
    """Package and version to its licence; an empty licence where the metadata name none."""
    distributions = importlib.metadata.packages_distributions()
    found = {}
    for package in installed_packages():
        known = distributions.get(package.name, [])
        licence = "PSF-2.0" if package.name == STANDARD_LIBRARY else _licence(known[0]) if known else ""
        found[f"{package.name} {package.version}"] = licence
    return found


def _licence(distribution: str) -> str:
    """An SPDX expression, else the short name of a licence, else the classifiers."""
    metadata = importlib.metadata.metadata(distribution)
    for name in ("License-Expression", "License"):
        given = (metadata[name] if name in metadata else "").strip()
        if given and "\n" not in given and len(given) <= _SHORT:
            return given
    classified = [c.rsplit(" :: ", 1)[-1] for c in metadata.get_all("Classifier") or [] if "License ::" in c]
    return ", ".join(classified)
