"""A published model, or a trained stage: it runs here, in a pool of actors or in this process."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import nn

from stillhouse.core.artifacts import Workspace
from stillhouse.core.devices import usable_device
from stillhouse.core.roles import DOCUMENT, QUERY
from stillhouse.core.tokenizing import FastTokenizer, cut_texts
from stillhouse.core.types import FloatArray, InRoles
from stillhouse.students.cpu.products import quick_products
from stillhouse.students.head import head_remark
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.teachers.embedding import in_process, resolve_compute, through_ray
from stillhouse.teachers.forward import Forward, default_batch_tokens
from stillhouse.teachers.kinds import Embed, TeacherKind
from stillhouse.teachers.loading import (
    as_encoder,
    check_teacher,
    load_sentence_transformer,
    load_teacher,
    tokenizer_of,
)
from stillhouse.teachers.prompts import prompts_remark
from stillhouse.teachers.runtimes import require_runtime
from stillhouse.teachers.shards import Shard, Work
from stillhouse.teachers.weights import on_this_machine
from stillhouse.values.data import Model, Store


class Models(TeacherKind):
    """See `TeacherKind`."""

    def find(self, choice: TeacherChoice) -> Model:
        """Find the folder of a published model."""
        return choice.finder.published()

    def remarks(self, choice: TeacherChoice, teacher: Model) -> list[str]:
        """Say what is assumed of its head, or what it contradicts, and which prompts it has."""
        normed = choice.normalize is not None
        head = head_remark(teacher, pooling_given=bool(choice.pooling), normalize_given=normed)
        return [line for line in (head, prompts_remark(teacher)) if line]

    def ready(self, work: Work) -> Work:
        """Refuse a precision, a runtime or a model that cannot run here, and add the tokenizer."""
        resolve_compute(work.device, work.store.compute)
        require_runtime(work.store.runtime, work.device, work.store.compute)
        if work.store.teacher.checkpoint:
            check_teacher(on_this_machine(work.store.model))
        return replace(work, tokenizer=tokenizer_of(work.store.teacher))

    def shards(
        self, works: list[Work], missing: list[tuple[int, int]], actors: int, told: Callable[[int, int], None]
    ) -> Iterator[tuple[int, Shard]]:
        """Embed shards by Ray Data, or in this process."""
        return through_ray(works, missing, actors) if actors else in_process(works, missing, told)

    def encoder(self, teacher: Model, max_length: int, device: str) -> "tuple[TeacherEncoder, nn.Module]":
        """Load the model by sentence-transformers."""
        loaded = TeacherEncoder(teacher, max_length, device)
        return loaded, loaded.module

    def load(self, store: Store, workspace: Workspace, device: str) -> Callable[[Store], Embed]:
        """Load the model as it embeds."""
        loaded, tokens = load_teacher(store, workspace, device), default_batch_tokens(device, 1)

        def embed(each: Store) -> Embed:
            tokenizer = FastTokenizer(Path(on_this_machine(each.model).path), each.max_length)
            forward = Forward(as_encoder(loaded, each), tokenizer.pad_id, tokens, each.compute, device)
            return lambda texts: forward(*tokenizer([each.prompt + text for text in texts]))

        return embed


class TeacherEncoder(InRoles):
    """The teacher, truncating texts at its own maximum length."""

    def __init__(self, model: Model, max_length: int, device: str) -> None:
        self._device = usable_device(device)
        self.module = load_sentence_transformer(model, self._device)
        cut_texts(self.module, max_length)

    def encoded(self, role: str, texts: Sequence[str]) -> FloatArray:
        """Encode texts of a role as vectors, (N, E), in their order."""
        named = {QUERY: self.module.encode_query, DOCUMENT: self.module.encode_document}
        with quick_products(self._device, "float32"):
            encode = named.get(role, self.module.encode)
            vectors = encode(list(texts), convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float32)
