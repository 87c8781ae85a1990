"""The head of a published model (pooling and norm after its transformer), read from its folder."""

from pathlib import Path
from typing import NamedTuple

from stillhouse.core.artifacts import read_json
from stillhouse.core.errors import BadInput
from stillhouse.plan.data import Model


class Head(NamedTuple):
    """The pooling of a published model, and whether its vectors are normalised."""

    pooling: str
    normalize: bool


def own_head(base: Model) -> Head:
    """Read pooling and norm from a model's sentence-transformers modules; without any, the mean.

    Raises:
        BadInput: A pooling that is not supported, or further modules that change the vector.
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
    if len(chosen) != 1 or chosen[0] not in named.values() or others:
        raise BadInput(
            f"A live or fine-tuned teacher must pool by mean, cls or max, with no other module after it, but "
            f"{base.name or base.path} has pooling={chosen}, modules={others}."
        )
    return Head(chosen[0], normalize="Normalize" in modules)


def gives_unit_vectors(base: Model) -> bool:
    """Whether a model's sentence-transformers modules normalise its vectors."""
    return "Normalize" in _modules(base)


def _modules(base: Model) -> dict[str, str]:
    """Return the modules' paths by name; empty for a plain Hugging Face encoder."""
    described = Path(base.path) / "modules.json"
    if not described.is_file():
        return {}
    return {module["type"].rpartition(".")[2]: module["path"] for module in read_json(described)}
