"""Loading a model, published or trained here, and running it as a teacher: from tokens to vectors."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput, require
from stillhouse.core.model_folder import STATIC, read_folder
from stillhouse.core.roles import DOCUMENT, QUERY
from stillhouse.core.tensors import read_tensors
from stillhouse.core.tokenizing import FastTokenizer, require_vocabulary
from stillhouse.core.types import Tokens
from stillhouse.students.backbone import quiet
from stillhouse.students.cpu.attention import optimise_for_cpu
from stillhouse.students.head import head_of, load_pooler, require_model
from stillhouse.students.pooling import POOLER
from stillhouse.teachers.forward import cast_products
from stillhouse.teachers.prompts import prompts_of
from stillhouse.teachers.runtime_check import require_stock
from stillhouse.teachers.weights import check_safetensors, on_this_machine
from stillhouse.values.data import Model, Store, Teacher
from stillhouse.values.stage import Stage

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TEACHERS = ("Transformer", STATIC)
"""First modules of sentence-transformers that a store supports: both take token ids."""

_TOKENIZERS: dict[str, Model] = {}
_COMPARED = 4
"""Shapes of matrices whose last row is looked for in the files."""


def load_sentence_transformer(model: Model, device: str = "cpu") -> "SentenceTransformer":
    """Load a model with sentence-transformers: float32, evaluation mode, from the local folder only.

    A pooling, a norm or prompts that the model sets replace those of the folder; ``encode_query`` and
    ``encode_document`` use the prompts of `teachers.prompts.prompts_of`.

    Raises:
        BadInput: sentence-transformers cannot load the folder.
    """
    from sentence_transformers import SentenceTransformer

    check_safetensors(Path(model.path))
    folder = read_folder(Path(model.path))
    folder.require_supported()
    if folder.first == "Transformer":
        require_vocabulary(folder.transformer)
    try:
        with quiet():
            loaded = SentenceTransformer(
                model.path,
                device=device,
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True, "dtype": "float32"},
            )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        raise BadInput(
            f"{model.name or model.path} must be a model that sentence-transformers loads, with weights of "
            f"the shapes that its config.json states, but loading it gave: {error}"
        ) from error
    if folder.first == "Transformer":  # Tables of token vectors may be put together from their files.
        _require_weights(loaded, model)
    if model.pooling or model.normalize is not None or model.dimension:
        _replace_head(loaded, model)
    # What is left out of a vector is left out by a module.
    loaded.truncate_dim = None
    if getattr(loaded.tokenizer, "pad_token", "") is None:
        # Any token does, as padding is masked; without one sentence-transformers encodes nothing.
        loaded.tokenizer.pad_token = loaded.tokenizer.convert_ids_to_tokens(0)
    named, loaded.default_prompt_name = prompts_of(model).exported()
    loaded.prompts = {**loaded.prompts, QUERY: "", DOCUMENT: "", **named}
    optimise_for_cpu(loaded, device)
    return loaded.eval()


def _require_weights(loaded: "SentenceTransformer", model: Model) -> None:
    """Refuse a folder none of whose weights was loaded: where names differ, a model keeps random ones.

    Some are compared by their last rows, since loading may rename any.
    """
    rows: dict[tuple[int, ...], Tensor] = {}
    for weight in loaded[0].parameters():
        if weight.ndim == 2 and len(rows) < _COMPARED:
            rows.setdefault(tuple(weight.shape), weight[-1].detach().float().cpu())
    for file in sorted(Path(model.path).rglob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():
                part = tensors.get_slice(name)
                last = rows.get(shape := tuple(part.get_shape()))
                if last is not None and torch.equal(part[shape[0] - 1].float(), last):
                    return
    raise BadInput(
        f"The weights of {model.name or model.path} must have the names that its config.json asks for, "
        "but none of them was loaded, so that the model would be random. Export it again."
    )


class _Truncated(nn.Module):
    """The first dimensions of every vector, as a module of sentence-transformers."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.dimension = dimension

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**features, "sentence_embedding": features["sentence_embedding"][..., : self.dimension]}

    def get_embedding_dimension(self) -> int:
        return self.dimension

    get_sentence_embedding_dimension = get_embedding_dimension


def _replace_head(loaded: "SentenceTransformer", model: Model) -> None:
    """Replace pooling, pooler, norm and dimension of a loaded model by what is set; the rest stays."""
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling

    own, head = head_of(replace(model.bare(), pooling="", normalize=None)), head_of(model)
    parts = list(loaded)
    if model.pooling:
        first, before = parts[0], next((part for part in parts if isinstance(part, Pooling)), None)
        others = [part for part in parts[1:] if not isinstance(part, Pooling)]
        if own.pooling == POOLER:
            others = others[1:]
        width = first.get_embedding_dimension()
        mode = {"last": "lasttoken", POOLER: "cls"}.get(head.pooling, head.pooling)
        # Prompts stay in or out of the pooling as before.
        pooling = Pooling(width, mode, include_prompt=before.include_prompt if before is not None else True)
        parts = [first, pooling, *others]
        if head.pooling == POOLER:
            dense = Dense(width, width, activation_function=nn.Tanh())
            dense.linear = load_pooler(model)
            parts.insert(2, dense)
    parts = [part for part in parts if not isinstance(part, Normalize)]
    parts += [_Truncated(model.dimension)] if model.dimension else []
    parts += [Normalize()] if head.normalize else []
    for name in [name for name, _ in loaded.named_children()]:
        delattr(loaded, name)
    device = next(parts[0].parameters()).device
    for place, part in enumerate(parts):
        loaded.add_module(str(place), part.to(device))


def tokenizer_of(teacher: Teacher | Stage) -> Model:
    """Return the model whose folder holds a teacher's tokenizer; a student is built once per process."""
    if not isinstance(teacher, Stage):
        return require_model(teacher)
    # By the printed form, not by the fingerprint, which does not cover paths.
    if (key := repr(teacher.student)) not in _TOKENIZERS:
        _TOKENIZERS[key] = teacher.student.build().tokenizer
    return _TOKENIZERS[key]


def load_teacher(store: Store, workspace: Workspace, device: str = "cpu") -> nn.Module:
    """Load a store's teacher, which `as_encoder` makes a function for this store or for one of other prompts.

    Raises:
        BadInput: The teacher's stage is not finished, or the model cannot be loaded.
    """
    if isinstance(store.teacher, Stage):
        return _trained(store.teacher, workspace, device, store.compute)
    local = on_this_machine(require_model(store.teacher))
    check_teacher(local)
    model: nn.Module = load_sentence_transformer(local, device)
    require_stock(model, store, lambda each: as_encoder(model, each), device)
    if not read_folder(Path(local.path)).static:
        cast_products(model, store.compute)
    return model


def as_encoder(teacher: nn.Module, store: Store) -> Callable[[Tokens], Tensor]:
    """Return a loaded teacher as a function from tokens of texts with a store's prompt to vectors (B, E)."""
    if isinstance(store.teacher, Stage):
        return lambda tokens: teacher(tokens).embedding_BD
    local = on_this_machine(require_model(store.teacher))
    static = read_folder(Path(local.path)).static
    return _static(teacher) if static else _contextual(teacher, store, local)


def check_teacher(model: Model) -> None:
    """Refuse a model whose input features a store cannot provide.

    Raises:
        BadInput: Its first module is neither a transformer nor a table of token vectors.
    """
    first = read_folder(Path(model.path)).first
    if first not in TEACHERS:
        raise BadInput(
            f"A teacher's first module must be one of {TEACHERS}, but {model.name or model.path} has "
            f"module={first!r}."
        )


def _contextual(model: Any, store: Store, local: Model) -> Callable[[Tokens], Tensor]:
    positions = getattr(model[0].auto_model.config, "max_position_embeddings", store.max_length)
    require(
        store.max_length <= positions, "max_length <= the teacher's positions", max_length=store.max_length
    )
    # Some poolings exclude the prompt's tokens; they receive their number, as from `encode`.
    tokenizer = FastTokenizer(Path(local.path), store.max_length)
    prompt = {"prompt_length": tokenizer.prefix_length(store.prompt)} if store.prompt else {}

    def forward(tokens: Tokens) -> Tensor:
        features = {"input_ids": tokens.input_ids_BT, "attention_mask": tokens.attention_mask_BT, **prompt}
        vectors: Tensor = model(features)["sentence_embedding"]
        return vectors

    return forward


def _static(model: nn.Module) -> Callable[[Tokens], Tensor]:
    def forward(tokens: Tokens) -> Tensor:
        lengths_B = tokens.attention_mask_BT.sum(dim=1)
        ids_N = tokens.input_ids_BT[tokens.attention_mask_BT.bool()]
        features = {"input_ids": ids_N, "offsets": lengths_B.cumsum(0) - lengths_B}
        vectors: Tensor = model(features)["sentence_embedding"]
        return vectors

    return forward


def _trained(stage: Stage, workspace: Workspace, device: str, compute: str) -> nn.Module:
    if not workspace.finished(stage):
        raise BadInput(
            f"The teacher's stage must be finished, but {stage.label}-{stage.fingerprint} is not. Run it "
            "first."
        )
    student: nn.Module = stage.student.build()
    student.load_state_dict(read_tensors(workspace.path(stage) / "student.safetensors"))
    student.to(device).eval()
    cast_products(student, compute)
    optimise_for_cpu(student, device)
    return student
