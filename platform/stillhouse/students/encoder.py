"""A student as an `Encoder`: texts in, float32 vectors out, in batches of about equally many tokens."""

import contextlib
import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from stillhouse.core.errors import require
from stillhouse.core.roles import NO_PROMPTS, Prompts
from stillhouse.core.tokenizing import FastTokenizer, pad, token_batches
from stillhouse.core.types import InRoles
from stillhouse.students.cpu.attention import optimise_for_cpu
from stillhouse.students.cpu.products import quick_products

Vectors = npt.NDArray[np.float32]


class StudentEncoder(InRoles):
    """Encodes with a student, without gradients and without dropout; the student keeps its training mode.

    Attributes:
        dim: D.
        tokenizer: Converts texts to ids, truncated as the training texts were.
        prompts: What it puts before every text, by role.
    """

    def __init__(
        self,
        student: Any,
        tokenizer_path: str | Path,
        max_length: int,
        *,
        device: str = "cpu",
        batch_tokens: int = 4096,
        autocast: str = "float32",
        prompts: Prompts = NO_PROMPTS,
    ) -> None:
        """Wrap a student.

        Args:
            student: A `Student` that is a torch module. It is moved to ``device`` and not copied, so it may
                be trained further between two calls.
            tokenizer_path: Folder with the tokenizer's files.
            max_length: Tokens per text, special ones included; longer texts are truncated.
            device: Device that the student runs on.
            batch_tokens: Tokens per batch, padding included; a longer text forms a batch of its own.
            autocast: ``float32`` or ``bfloat16``, the precision of the matrix products.
            prompts: Prompts by role.

        Raises:
            BadInput: A value out of range, or a folder without a tokenizer.
        """
        require(autocast in ("float32", "bfloat16"), "autocast in (float32, bfloat16)", autocast=autocast)
        require(batch_tokens >= 1, "batch_tokens >= 1", batch_tokens=batch_tokens)
        self.student, self.dim = student, student.dim
        self.max_length, self.batch_tokens = max_length, batch_tokens
        self.device, self.autocast, self.prompts = device, autocast, prompts
        self.tokenizer = FastTokenizer(Path(tokenizer_path), max_length)
        student.to(device)
        optimise_for_cpu(student, device)

    def of_tower(self, tower: Any) -> "StudentEncoder":
        """Return an encoder with the same tokenizer and options for a part of the student."""
        other = copy.copy(self)
        other.student, other.dim = tower, tower.dim
        return other

    def in_batches(self, texts: int) -> "StudentEncoder":
        """Return an encoder of the same student that reads that many texts per forward pass."""
        other = copy.copy(self)
        other.batch_tokens = texts * self.max_length
        return other

    def encoded(self, role: str, texts: Sequence[str]) -> Vectors:
        """Encode texts of a role, (N, D), in their order."""
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        prompt = self.prompts.of(role)
        ids, offsets = self.tokenizer([prompt + text for text in texts])
        starts, lengths = offsets[:-1], np.diff(offsets)
        vectors_ND = np.empty((len(texts), self.dim), dtype=np.float32)
        with inferring(self.student, self.device, self.autocast):
            for rows in token_batches(lengths, self.batch_tokens):
                tokens = pad(ids, starts[rows], lengths[rows], self.tokenizer.pad_id)
                encoding = self.student(tokens.to(self.device))
                vectors_ND[rows] = encoding.embedding_BD.float().cpu().numpy()
        return vectors_ND


@contextlib.contextmanager
def inferring(student: nn.Module, device: str, autocast: str) -> Iterator[None]:
    """Run a block in evaluation mode, without gradients, in a given precision; see `evaluating`."""
    precision = torch.autocast(torch.device(device).type, torch.bfloat16, enabled=autocast == "bfloat16")
    with evaluating(student), torch.no_grad(), precision, quick_products(device, autocast):
        yield


@contextlib.contextmanager
def evaluating(student: nn.Module) -> Iterator[None]:
    """Run a block in evaluation mode; afterwards every part returns to its own mode."""
    modes = [(module, module.training) for module in student.modules()]
    student.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
