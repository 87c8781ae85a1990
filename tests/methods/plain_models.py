"""Students recomputed in float64, text by text and without padding, by stock transformers or by loops."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class Narrow(nn.Module):
    """Word vectors of B dimensions, mapped to H."""

    def __init__(self, narrow: Tensor, widen: Tensor) -> None:
        super().__init__()
        self.narrow, self.widen = nn.Module(), nn.Module()
        self.narrow.weight, self.widen.weight = nn.Parameter(narrow), nn.Parameter(widen)

    def forward(self, ids: Tensor) -> Tensor:
        """Look up and map."""
        rows: Tensor = self.narrow.weight[ids] @ self.widen.weight.T  # type: ignore[index, operator]
        return rows


class PlainBert:
    """Some layers of a published BERT, as stock transformers runs them, one text at a time.

    Args:
        folder: A plain Hugging Face folder with its tokenizer.
        layers: The layers that a text passes through, by their number in the folder; a layer may occur again.
        max_length: Tokens per text.
    """

    def __init__(self, folder: Path, layers: Sequence[int], max_length: int) -> None:
        from transformers import AutoTokenizer, BertModel

        load: Any = BertModel.from_pretrained
        self.model: Any = load(folder, attn_implementation="eager").double().eval()
        self.model.encoder.layer = nn.ModuleList(self.model.encoder.layer[layer] for layer in layers)
        self.model.pooler = None
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.max_length = max_length

    def load(self, state: Mapping[str, Tensor], prefix: str = "student.backbone.") -> "PlainBert":
        """Take over weights; word vectors become narrow ones if these weights have such."""
        words = f"{prefix}embeddings.word_embeddings."
        if f"{words}narrow.weight" in state:
            pair = (state[f"{words}{part}.weight"].double() for part in ("narrow", "widen"))
            self.model.embeddings.word_embeddings = Narrow(*pair)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(state[prefix + name])
        return self

    def parameters(self, prefix: str = "student.backbone.") -> dict[str, Tensor]:
        """The weights by the names that they have in training."""
        return {prefix + name: parameter for name, parameter in self.model.named_parameters()}

    def states(self, text: str) -> list[Tensor]:
        """The states of one text, (T, H) each: of the embedding layer, then of every layer."""
        ids = self.tokenizer(text, truncation=True, max_length=self.max_length)["input_ids"]
        output = self.model(torch.tensor([ids]), output_hidden_states=True)
        return [state[0] for state in output.hidden_states]

    def means(self, text: str) -> list[Tensor]:
        """The same states, averaged over the tokens."""
        return [state.sum(dim=0) / len(state) for state in self.states(text)]

    def mean(self, text: str) -> Tensor:
        """The vector of a text: the average of the last layer's states."""
        return self.means(text)[-1]


def unit(vector: Tensor) -> Tensor:
    """A vector of length 1."""
    return vector / (vector * vector).sum().sqrt()


def cosine(first: Tensor, second: Tensor) -> Tensor:
    """The cosine of two vectors."""
    return (unit(first) * unit(second)).sum()


def squared(first: Tensor, second: Tensor) -> Tensor:
    """‖first − second‖²."""
    return ((first - second) ** 2).sum()


def one_of(positive: Tensor, negatives: Sequence[Tensor]) -> Tensor:
    """−log of the softmax's share of the positive among itself and the negatives."""
    return torch.stack([positive, *negatives]).exp().sum().log() - positive


def average(values: Sequence[Tensor]) -> Tensor:
    """The mean of some numbers."""
    return torch.stack(list(values)).sum() / len(values)


class PlainWords:
    """Word vectors of a folder, one text at a time."""

    def __init__(self, folder: Path, weights: Mapping[str, Tensor], name: str) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.rows = weights[name]

    def __call__(self, text: str) -> list[Tensor]:
        """The vector of every word."""
        return [self.rows[row] for row in self.tokenizer.encode(text).ids]


def lstm(inputs: Sequence[Tensor], weights: Mapping[str, Tensor], name: str) -> list[Tensor]:
    """The states of an LSTM with torch's order of the gates: input, forget, cell, output."""
    from_input, from_state, bias, other_bias = (
        weights[f"{name}.{kind}_l0"] for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    state = memory = torch.zeros(from_state.shape[1], dtype=torch.float64)
    states = []
    for given in inputs:
        gates = (from_input @ given + bias + from_state @ state + other_bias).reshape(4, -1)
        memory = gates[1].sigmoid() * memory + gates[0].sigmoid() * gates[2].tanh()
        state = gates[3].sigmoid() * memory.tanh()
        states.append(state)
    return states


def both_ways(
    inputs: Sequence[Tensor], weights: Mapping[str, Tensor], name: str
) -> tuple[list[Tensor], list[Tensor]]:
    """The states of both directions, each at its own word."""
    leftwards = lstm(inputs[::-1], weights, f"{name}.backwards.0")
    return lstm(inputs, weights, f"{name}.forwards.0"), leftwards[::-1]


def pooled(sides: tuple[list[Tensor], list[Tensor]], pooling: str) -> Tensor:
    """One vector from the states of both directions."""
    forwards, backwards = sides
    if pooling == "last":
        return torch.cat([forwards[-1], backwards[0]])
    states = torch.stack([torch.cat(pair) for pair in zip(forwards, backwards, strict=True)])
    return states.max(dim=0).values if pooling == "max" else states.mean(dim=0)


def convolution(inputs: Sequence[Tensor], weights: Mapping[str, Tensor], name: str) -> Tensor:
    """The maximum over the words of ReLU(W · neighbours + b), nothing on either side of the text."""
    kernel, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    reach = kernel.shape[2] // 2
    outputs = []
    for at in range(len(inputs)):
        output = bias
        for offset in range(-reach, reach + 1):
            if 0 <= at + offset < len(inputs):
                output = output + kernel[:, :, offset + reach] @ inputs[at + offset]
        outputs.append(output.clamp(min=0))
    return torch.stack(outputs).max(dim=0).values
