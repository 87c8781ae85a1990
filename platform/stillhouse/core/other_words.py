"""The names that other libraries have for what is called otherwise here."""

from collections.abc import Sequence

_OURS = {
    "learning_rate": (("lr", "learning_rate"), "1e-3"),
    "batch_size": (("bs", "batch_size", "train_batch_size", "per_device_train_batch_size"), "64"),
}
"""Ends of our names, with those of others and a value."""
_EPOCHS = ("epoch", "epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs")


def in_our_words(name: str, known: Sequence[str] = ()) -> str:
    """Say how something is given here that a user names as other libraries do; empty if it is not known.

    Args:
        name: A flag, or a name of `--set`.
        known: Names of the method's hyper-parameters, if it is known.
    """
    plain = name.lstrip("-").replace("-", "_").lower()
    if plain in _EPOCHS:
        return "Training is counted in examples: one epoch of 60,000 texts is --distil-budget 60000."
    for ours, (others, value) in _OURS.items():
        if plain in others:
            names = [each for each in known if each.endswith(ours)] or [ours]
            return f"{name} is {' or '.join(names)}: --set {names[0]}={value}."
    return ""
