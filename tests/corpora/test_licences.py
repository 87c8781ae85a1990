"""Licences of the packages whose docstrings are used, read from the packages' metadata."""

from stillhouse.corpora.pydocs.licences import package_licences


def test_known_packages_have_their_licence() -> None:
    found = package_licences()
    by_name = {package.split()[0]: licence for package, licence in found.items()}
    assert by_name["python"] == "PSF-2.0"
    assert "BSD" in by_name["numpy"] and "Apache" in by_name["transformers"]
    assert all(len(licence) < 200 for licence in found.values())
