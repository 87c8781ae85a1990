"""Licences of the sources of the corpus `pydocs`, according to their own metadata."""

import importlib.metadata

from stillhouse.corpora.pydocs.extraction import STANDARD_LIBRARY, installed_packages

_SHORT = 60


def package_licences() -> dict[str, str]:
    """Map package and version to its licence, which is empty if the metadata name none."""
    distributions = importlib.metadata.packages_distributions()
    found = {}
    for package in installed_packages():
        known = distributions.get(package.name, [])
        licence = "PSF-2.0" if package.name == STANDARD_LIBRARY else _licence(known[0]) if known else ""
        found[f"{package.name} {package.version}"] = licence
    return found


def _licence(distribution: str) -> str:
    """Return an SPDX expression, else the short name of a licence, else the classifiers."""
    metadata = importlib.metadata.metadata(distribution)
    for name in ("License-Expression", "License"):
        given = (metadata[name] if name in metadata else "").strip()
        if given and "\n" not in given and len(given) <= _SHORT:
            return given
    classified = [c.rsplit(" :: ", 1)[-1] for c in metadata.get_all("Classifier") or [] if "License ::" in c]
    return ", ".join(classified)
