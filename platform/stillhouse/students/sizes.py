"""The size of a model: its parameters, and the bytes of its weights."""

from collections.abc import Iterator

from torch import Tensor, nn


def sizes(module: nn.Module) -> dict[str, float]:
    """Count ``parameters``, ``parameters_embedding``, ``parameters_encoder`` and ``megabytes``.

    The embedding part is the modules named ``embeddings`` (words, positions, types and their norm) or, in a
    model without such modules, its embedding tables; the encoder is the rest. Megabytes are 10^6 bytes of the
    float32 weights, which is the size of a safetensors file except for its header of a few kilobytes. Shared
    weights count once.
    """
    inside = [part for name, part in module.named_modules() if name.rsplit(".", 1)[-1] == "embeddings"]
    inside = inside or [part for part in module.modules() if isinstance(part, nn.Embedding)]
    total = sum(weight.numel() for weight in module.parameters())
    embedding = sum(weight.numel() for weight in nn.ModuleList(inside).parameters())
    stored = sum(weight.numel() for weight in distinct_weights(module))
    return {
        "parameters": float(total),
        "parameters_embedding": float(embedding),
        "parameters_encoder": float(total - embedding),
        "megabytes": stored * 4 / 1e6,
    }


def distinct_weights(module: nn.Module) -> Iterator[Tensor]:
    """Yield the tensors of a module's state, shared ones once."""
    seen = set()
    for weight in module.state_dict().values():
        if not isinstance(weight, Tensor):
            continue
        storage = (weight.data_ptr(), weight.shape)
        if storage not in seen:
            seen.add(storage)
            yield weight
