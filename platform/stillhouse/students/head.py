"""What a published model does with its transformer's states, read from its folder."""

from pathlib import Path
from typing import NamedTuple

from stillhouse.core.artifacts import read_json
from stillhouse.core.errors import require
from stillhouse.plan.data import Model


class Head(NamedTuple):
    """What a published model does with its transformer's states."""

    pooling: str
    normalize: bool


def own_head(base: Model) -> Head:
    """Pooling and normalisation as a model's sentence-transformers modules say; the mean where it has none.

    Raises:
        BadInput: A pooling that is none of ours, or modules after it that change the vector otherwise.
    """
    modules = _modules(base)
    if not modules:
        return Head("mean", normalize=False)
    others = sorted(set(modules) - {"Transformer", "Pooling", "Normalize"})
    config = read_json(Path(base.path) / modules["Pooling"] / "config.json") if "Pooling" in modules else {}
    named = {
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_cls_token": "cls",
        "pooling_mode_max_tokens": "max",
    }
    chosen = [name for flag, name in named.items() if config.get(flag)] or [
        config.get("pooling_mode", "mean")
    ]
    require(
        len(chosen) == 1 and chosen[0] in named.values() and not others,
        "a teacher that runs along or is fine-tuned pools by mean, cls or max, with no other module after",
        model=base.name or base.path,
        pooling=chosen,
        modules=others,
    )
    return Head(chosen[0], normalize="Normalize" in modules)


def gives_unit_vectors(base: Model) -> bool:
    """Whether a model's sentence-transformers modules end by giving vectors of length 1."""
    return "Normalize" in _modules(base)


def _modules(base: Model) -> dict[str, str]:
    """Names of the modules and where they lie; none for a plain Hugging Face encoder."""
    described = Path(base.path) / "modules.json"
    if not described.is_file():
        return {}
    return {module["type"].rpartition(".")[2]: module["path"] for module in read_json(described)}
