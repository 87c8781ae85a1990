"""The head of a published model (pooling, pooler and norm after its transformer), read from its folder.

A folder of sentence-transformers states its head in ``modules.json``. One without, such as a plain Hugging
Face encoder, states nothing: then the mean is assumed, or the last token for a decoder, without a norm, as
stock sentence-transformers does. A `Model` may set its pooling and its norm, which then count instead.
"""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stillhouse.core.errors import BadInput, require
from stillhouse.core.model_folder import STATIC, ModelFolder, Module, read_folder
from stillhouse.students.backbone import build_options, fresh, max_tokens, quiet, read_config
from stillhouse.students.pooling import POOLER, POOLINGS
from stillhouse.values.data import Model, Teacher

HEADS = (*POOLINGS, POOLER)
"""Poolings that a head may be given."""
_ENCODERS = ("Transformer", STATIC)
_VECTOR = "sentence_embedding"
_UNLIMITED = 1 << 20
"""Tokens of the longest text of a model without any limit, such as a table of token vectors."""


class Head(NamedTuple):
    """The way from a published model's states to one vector.

    Attributes:
        pooling: One of `HEADS`, or the names that its modules state, joined by ``+``.
        normalize: Whether its vectors have length 1.
        dense: Whether a linear layer, or several in a row, follow the pooling; see `load_dense`.
        others: Names of further modules, which change the vector too.
        stated: Whether the folder states its head, in ``modules.json``.
    """

    pooling: str
    normalize: bool
    dense: bool = False
    others: tuple[str, ...] = ()
    stated: bool = True

    def __str__(self) -> str:
        """``cls pooling, a dense layer, vectors of length 1``."""
        parts = [f"{self.pooling} pooling"] if self.pooling else []
        parts += ["a dense layer"] if self.dense else []
        return ", ".join([*parts, "vectors of length 1" if self.normalize else "not normalised"])


def require_model(teacher: Teacher) -> Model:
    """Return a teacher that is a model.

    Raises:
        BadInput: Only its vectors are there, or there are several teachers.
    """
    if teacher.checkpoint is not None:
        return teacher.checkpoint
    remedy = (
        "Name one of them alone (teacher.name)"
        if len(teacher.members) > 1
        else "Leave teacher.vectors and teacher.endpoint out and name the model (teacher.name)"
    )
    raise BadInput(
        f"this needs the teacher as one model, to run or to train it, but got {teacher.name}. {remedy}, or "
        "take a method that reads vectors, such as ibkd, ckd or mse."
    )


def head_of(teacher: Teacher) -> Head:
    """Return a model's head: that of its folder, or what the model sets instead; vectors have no pooling."""
    model = teacher.checkpoint
    if model is None:
        return Head("", bool(teacher.normalize))
    own = _stated_head(model)
    normalize = own.normalize if model.normalize is None else model.normalize
    return own._replace(pooling=model.pooling or own.pooling, normalize=normalize)


def own_head(base: Teacher) -> Head:
    """Return a model's head if a student can have the same.

    Raises:
        BadInput: A pooling that is not supported, further modules that change the vector, or no model.
    """
    base = require_model(base)
    head = head_of(base)
    require(
        not base.dimension,
        "a live or fine-tuned teacher must keep all of its dimensions",
        teacher=base.name or base.path,
        dimension=base.dimension,
        remedy="Leave teacher.dimension out, or give the whole where the folder states truncate_dim.",
    )
    folder = read_folder(Path(base.path))
    if head.pooling not in HEADS or head.others or folder.static:
        raise BadInput(
            f"A live or fine-tuned teacher must pool by one of {', '.join(HEADS)}, with nothing after it but "
            f"linear layers and the norm, but {base.name or base.path} has pooling={head.pooling!r}, "
            f"modules={list(folder.kinds)}."
        )
    return head


def check_published(model: Model) -> None:
    """Refuse a published model of which a store, an evaluation and an export would not honour everything.

    Raises:
        BadInput: Its folder has a module or a setting that is not supported, or compares vectors otherwise.
    """
    folder = read_folder(Path(model.path))
    folder.require_supported()
    same_order = ("cosine", "dot", "euclidean") if head_of(model).normalize else ("cosine",)
    require(
        folder.similarity in same_order,
        "vectors must be compared by their cosine, as everything here compares them",
        model=model.name or model.path,
        similarity_fn_name=folder.similarity,
        remedy="Set teacher.normalize=true to distil its vectors with length 1, or give another model.",
    )


def with_head(model: Model, pooling: str, normalize: bool | None) -> Model:
    """Return a model with a head of the user's; what its folder states already changes nothing.

    Raises:
        BadInput: Unknown pooling, or a pooling for a table of token vectors.
    """
    require(pooling in ("", *HEADS), f"pooling in {HEADS}", pooling=pooling)
    static = bool(pooling) and read_folder(Path(model.path)).static
    require(
        not static,
        "a pooling goes with a teacher that has layers",
        teacher=model.name,
        pooling=pooling,
        remedy="A table of token vectors is averaged: leave the pooling out.",
    )
    own = _stated_head(model)
    if pooling == POOLER and pooling != own.pooling:
        load_pooler(model)
    return dataclasses.replace(
        model,
        pooling="" if pooling == own.pooling else pooling,
        normalize=None if normalize == own.normalize else normalize,
    )


def truncated(model: Model, dimension: int) -> Model:
    """Return a model with the first dimensions of its vectors alone; 0, or as many as it has, keeps all.

    Raises:
        BadInput: It has fewer dimensions.
    """
    if not dimension:
        return model
    whole = own_dimension(model)
    require(
        1 <= dimension <= whole,
        "1 <= teacher.dimension <= dimensions of the teacher",
        dimension=dimension,
        teacher=model.name,
        dimensions=whole,
    )
    return dataclasses.replace(model, dimension=dimension if dimension < whole else 0)


def own_dimension(model: Model) -> int:
    """Return the number of dimensions of a model's vectors, before any are left out; reads no weights."""
    folder = read_folder(Path(model.path))
    for module in reversed(folder.modules):
        if module.kind == "Dense":
            return int(module.config["out_features"])
        if module.kind == "Pooling" and not model.pooling:
            width = module.config.get("embedding_dimension") or module.config["word_embedding_dimension"]
            return int(width) * len(folder.poolings)
    if folder.static:
        return max(shape[1] for shape in _shapes(folder.transformer).values() if len(shape) == 2)
    return int(read_config(model).get_text_config().hidden_size)


def dimension_of(teacher: Teacher) -> int:
    """Return the number of dimensions of a teacher's vectors (E); 0 if an endpoint's are not known yet."""
    each = [
        member.dimension or (own_dimension(member.checkpoint) if member.checkpoint else 0)
        for member in teacher.members
    ]
    return sum(each) if all(each) else 0


def _shapes(folder: Path) -> dict[str, list[int]]:
    from safetensors import safe_open

    with safe_open(next(iter(sorted(folder.glob("*.safetensors")))), "pt") as weights:
        return {name: list(weights.get_slice(name).get_shape()) for name in weights.keys()}


def stated_by_user(model: Model, pooling: str, normalize: bool | None) -> Model:
    """Return a model whose folder states no head, with the one that the user states.

    Raises:
        BadInput: See `with_head`; or the folder states another head.
    """
    own, model = _stated_head(model), with_head(model, pooling, normalize)
    require(
        not own.stated or head_of(model) == own,
        "a stated head must be that of the model's modules.json, where there is one",
        model=model.name,
        stated=str(head_of(model)),
        modules=str(own),
        remedy="Leave --pooling and --normalize out.",
    )
    return model


def head_remark(
    model: Model,
    *,
    pooling_given: bool = False,
    normalize_given: bool = False,
    remedy: str = "Set teacher.pooling ({}) and teacher.normalize",
) -> str:
    """Say in one line what was assumed of a model's head, or how it contradicts its folder; else empty.

    Args:
        model: The model, with what the user set.
        pooling_given: Whether the user set the pooling, be it to what is assumed otherwise.
        normalize_given: The same of the norm.
        remedy: How to set them, with ``{}`` where the poolings are named.
    """
    own, head, name = _stated_head(model), head_of(model), model.title
    if own.stated and head != own:
        return f"note: {name} is used with {head}, as given, although its modules state {own}."
    assumed = [] if pooling_given else [f"{head.pooling} pooling"]
    assumed += [] if normalize_given else ["vectors of length 1" if head.normalize else "no normalisation"]
    if own.stated or not assumed:
        return ""
    return (
        f"note: {name} has no modules.json: {' and '.join(assumed)} assumed. "
        f"{remedy.format(', '.join(HEADS))} if it was trained otherwise."
    )


def published_length(model: Model) -> int:
    """Return the tokens per text that a model reads: what its folder states, within its positions."""
    limits = (read_folder(Path(model.path)).length, positions(model), _UNLIMITED)
    return min(limit for limit in limits if limit)


def positions(model: Model) -> int:
    """Return the number of tokens that a model has positions for, 0 if that is unknown; reads no weights."""
    file = read_folder(Path(model.path)).transformer / "config.json"
    status = file.stat() if file.is_file() else None
    stamp = (status.st_ino, status.st_size, status.st_mtime_ns) if status else ()
    return _positions(model.path, stamp)


@functools.lru_cache(maxsize=64)
def _positions(path: str, stamp: tuple[int, ...]) -> int:
    """`positions`, once per configuration: the whole model is built, without memory for its weights."""
    try:
        config: Any = read_config(Model("", path=path))
    except BadInput:  # no encoder, which may still teach
        return 0
    with torch.device("meta"), quiet():
        return max_tokens(fresh(config, build_options(config, "sdpa"), seed=0))


def load_pooler(base: Model) -> nn.Linear:
    """Load the pooler of a published model: the layer that BERT applies, with tanh, to the first token.

    It is the checkpoint's own, or a dense layer with tanh after the first token among the folder's modules.

    Raises:
        BadInput: The model has none.
    """
    dense = _dense_pooler(read_folder(Path(base.path)))
    if dense is not None:
        weights = _tensors(dense, "linear.")
    else:
        known = "add_pooling_layer" in build_options(read_config(base), "sdpa")
        weights = _tensors(read_folder(Path(base.path)).transformer, "pooler.dense.") if known else {}
    if set(weights) != {"weight", "bias"} or weights["weight"].shape[0] != weights["weight"].shape[1]:
        raise BadInput(
            f"`pooling = pooler` needs the weights of a pooler (pooler.dense), but {base.name or base.path} "
            "has none. Take pooling=cls, the state that a pooler reads."
        )
    return _layer_of(weights)


def load_dense(base: Model) -> nn.Linear:
    """Load the linear layers that follow the pooling of a published model, multiplied into one, H → D.

    Raises:
        BadInput: The model has none.
    """
    require_dense(base)
    matrix: Tensor | None = None
    bias: Tensor | None = None
    for folder in _linear_layers(read_folder(Path(base.path))):
        tensors = {name: tensor.double() for name, tensor in _tensors(folder, "linear.").items()}
        weight = tensors["weight"]
        matrix = weight if matrix is None else weight @ matrix
        moved = None if bias is None else weight @ bias
        bias = tensors.get("bias") if moved is None else moved + tensors.get("bias", 0.0)
    assert matrix is not None
    return _layer_of({"weight": matrix} | ({} if bias is None else {"bias": bias}))


def _layer_of(tensors: dict[str, Tensor]) -> nn.Linear:
    """Make a layer in float32, to be trained, of its weight and, if there is one, its bias."""
    outside, inside = tensors["weight"].shape
    layer = nn.Linear(inside, outside, bias="bias" in tensors, device="meta")
    layer.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
    return layer.requires_grad_(True)


def require_dense(base: Model) -> None:
    """Refuse a model that has no linear layer after its pooling.

    Raises:
        BadInput: It has none.
    """
    folder = read_folder(Path(base.path))
    require(
        bool(_linear_layers(folder)),
        "student.dense = true needs a checkpoint with dense layers without an activation after its pooling",
        checkpoint=base.name or base.path,
        modules=folder.kinds,
        remedy="Leave student.dense out.",
    )


def has_pooler(base: Model) -> bool:
    """Return whether a model has a pooler; see `load_pooler`."""
    try:
        load_pooler(base)
    except BadInput:
        return False
    return True


def _stated_head(model: Model) -> Head:
    """Read the head that a folder states; without ``modules.json``, what is assumed."""
    folder = read_folder(Path(model.path))
    if not folder.modules:
        return Head("last" if _is_decoder(folder) else "mean", normalize=False, stated=False)
    normalize = "Normalize" in folder.kinds
    others = [each for each in folder.kinds if each not in (*_ENCODERS, "Pooling", "Normalize", "Dropout")]
    if not folder.poolings:
        return Head("mean" if folder.static else "none", normalize, others=tuple(others))
    pooling, linear = "+".join(folder.poolings), len(_linear_layers(folder))
    if _dense_pooler(folder) is not None:
        others.remove("Dense")
        pooling = POOLER
    for _ in range(linear):
        others.remove("Dense")
    return Head(pooling, normalize, bool(linear), tuple(others))


def _is_decoder(folder: ModelFolder) -> bool:
    """Return whether a folder was saved as a causal language model, by the rule of sentence-transformers."""
    architectures = folder.config.get("architectures") or [""]
    return str(architectures[0]).endswith("ForCausalLM") and bool(folder.config.get("is_causal", True))


def _dense_pooler(folder: ModelFolder) -> Path | None:
    """Find a dense layer H → H with a bias and tanh right after the first token among a folder's modules."""
    if folder.kinds[1:3] != ("Pooling", "Dense") or folder.poolings != ("cls",):
        return None
    module = folder.modules[2]
    like_a_pooler = (
        module.config.get("in_features") == module.config.get("out_features")
        and module.config.get("bias", True)
        and str(module.config.get("activation_function", "")).endswith(".Tanh")
        and _plain_dense(module)
    )
    return module.path if like_a_pooler else None


def _linear_layers(folder: ModelFolder) -> tuple[Path, ...]:
    """Find the dense layers without an activation after the pooling; empty if another one is there too."""
    start = folder.kinds.index("Pooling") + 1 if "Pooling" in folder.kinds else len(folder.kinds)
    after = folder.modules[start + (_dense_pooler(folder) is not None) :]
    dense = [module for module in after if module.kind == "Dense"]
    in_a_row = tuple(dense) == after[: len(dense)]
    return tuple(module.path for module in dense) if in_a_row and all(map(_is_linear, dense)) else ()


def _is_linear(dense: Module) -> bool:
    activation = str(dense.config.get("activation_function", "")).rpartition(".")[2]
    return activation == "Identity" and _plain_dense(dense)


def _plain_dense(dense: Module) -> bool:
    """Return whether a dense layer maps a text's vector to its next one, and nothing is added."""
    ends = (dense.config.get(f"module_{end}_name") or _VECTOR for end in ("input", "output"))
    return all(end == _VECTOR for end in ends) and not dense.config.get("use_residual", False)


def _tensors(folder: Path, prefix: str) -> dict[str, Tensor]:
    """Read the tensors under a prefix from a folder's weights, whatever stands before the prefix."""
    from safetensors import safe_open

    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as weights:
            for name in _named(weights.keys(), prefix):
                found[name.rpartition(".")[2]] = weights.get_tensor(name)
    return found


def _named(names: list[str], prefix: str) -> Iterator[str]:
    for name in names:
        before, found, after = name.rpartition(prefix)
        if found and (not before or before.endswith(".")) and "." not in after:
            yield name
