"""A model's folder, read once into one frozen value, which everything that opens the folder takes.

A folder is one of sentence-transformers, with ``modules.json``, or a plain Hugging Face encoder. What changes
a vector, or how vectors are compared, is honoured wherever the model runs, or refused here by its name.
"""

import functools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stillhouse.core.errors import BadInput, blocked
from stillhouse.core.json_text import parse_json
from stillhouse.core.roles import DOCUMENT_NAMES, QUERY, ROLES, SETTINGS, Prompts

STATIC, ROUTER = "StaticEmbedding", "Router"
_EXPORTS = {"recurrent.json": "a compact export", "towers.json": "an export of two towers"}
"""Exports that stock sentence-transformers cannot read as one model, by the file that tells them."""
_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_ENDS = "module_input_name module_output_name"
_KEYS = {
    "Pooling": " ".join(
        ["word_embedding_dimension embedding_dimension include_prompt pooling_mode", *_POOLINGS]
    ),
    "Dense": f"in_features out_features bias activation_function use_residual {_ENDS}",
    "Normalize": _ENDS,
    "LayerNorm": "dimension",
    "Dropout": "dropout",
}
"""Keys of the ``config.json`` of each module that has one of its own."""
_MODULES = ("Transformer", STATIC, "WordEmbeddings", "LSTM", "CNN", *_KEYS)
"""Modules that run in a store, or in an evaluation, as in stock sentence-transformers."""
_STATED = "__version__ model_type prompts default_prompt_name similarity_fn_name truncate_dim"
_SETTINGS_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Names of the file with the settings of a Transformer module; the first that there is counts."""
_SETTINGS = "max_seq_length do_lower_case unpad_inputs module_output_name modality_config transformer_task"
_TEXT = {"method": "forward", "method_output_name": "last_hidden_state"}
_HARMLESS = {
    "model": "add_pooling_layer attn_implementation dtype torch_dtype file_name trust_remote_code",
    "tokenizer": "trust_remote_code",
    "config": "trust_remote_code",
}
"""Arguments of a Transformer module, by what they are handed to, that change no vector in float32."""
_DENSE = "Give a model that encodes single texts as dense vectors."
_RELATIVE = ("rope", "rotary", "relative", "alibi")
"""What the settings of an architecture begin with whose vectors do not depend on where padding stands."""


@dataclass(frozen=True)
class Module:
    """A module of a sentence-transformers folder.

    Attributes:
        type: Its class with the module of Python that it is in.
        path: Its folder.
        config: Its ``config.json``; empty where it has none.
    """

    type: str
    path: Path
    config: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Its class, such as ``Pooling``."""
        return self.type.rpartition(".")[2]


@dataclass(frozen=True)
class ModelFolder:
    """A model's folder, as its files state it.

    Attributes:
        path: The folder.
        modules: What ``modules.json`` lists, in order; empty for a plain Hugging Face encoder.
        config: ``config.json`` of the transformer.
        settings: The settings of the Transformer module (``sentence_bert_config.json``).
        tokenizer: ``tokenizer_config.json``.
        stated: ``config_sentence_transformers.json``.
    """

    path: Path
    modules: tuple[Module, ...]
    config: Mapping[str, Any]
    settings: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    stated: Mapping[str, Any]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Classes of the modules."""
        return tuple(module.kind for module in self.modules)

    @property
    def first(self) -> str:
        """Class of the first module; a plain folder counts as a transformer."""
        return self.modules[0].kind if self.modules else "Transformer"

    @property
    def static(self) -> bool:
        """True if the first module is a table of token vectors."""
        return self.first == STATIC

    @property
    def transformer(self) -> Path:
        """Folder of the first module, which holds the tokenizer."""
        return self.modules[0].path if self.modules else self.path

    @property
    def lower(self) -> bool:
        """True if sentence-transformers lower-cases texts before this folder's tokenizer."""
        return bool(self.settings.get("do_lower_case", False)) and not self.static

    @property
    def truncation_side(self) -> str:
        """Side on which longer texts are cut."""
        return self._side("truncation")

    @property
    def length(self) -> int:
        """Tokens per text that the folder states; 0 where it states none."""
        if self.static:
            return int(self._backend["truncation"].get("max_length", 0))
        own = self.tokenizer.get("model_max_length") or self.tokenizer.get("max_len")
        stated = self.settings.get("max_seq_length") or own or 0
        return int(stated) if stated < sys.maxsize else 0

    @property
    def truncate_dim(self) -> int:
        """Number of dimensions that are kept of every vector; 0 keeps all."""
        return int(self.stated.get("truncate_dim") or 0)

    @property
    def similarity(self) -> str:
        """Name of the comparison of vectors: ``cosine``, ``dot``, ``euclidean`` or ``manhattan``."""
        return str(self.stated.get("similarity_fn_name") or "cosine")

    @property
    def named_prompts(self) -> dict[str, str]:
        """Prompts by the names that the folder gives them."""
        return {name: prompt or "" for name, prompt in (self.stated.get("prompts") or {}).items()}

    @property
    def prompts(self) -> Prompts:
        """Prompts by role.

        Plain texts get the default prompt, as from stock ``encode``; documents get the first of
        `core.roles.DOCUMENT_NAMES`.

        Raises:
            BadInput: The default prompt is none of the folder's.
        """
        named, default = self.named_prompts, self.stated.get("default_prompt_name")
        if default and default not in (*named, *ROLES):
            raise BadInput(
                f"The default prompt of a model must be one of its prompts, but {self.path / SETTINGS} names "
                f"{default!r}, and has {sorted(named)}. Repair the file."
            )
        document = next((named[name] for name in DOCUMENT_NAMES if name in named), "")
        return Prompts(named.get(QUERY, ""), document, named.get(default or "", ""))

    @property
    def poolings(self) -> tuple[str, ...]:
        """Poolings that the modules state; empty without a Pooling module."""
        config = next((module.config for module in self.modules if module.kind == "Pooling"), None)
        if config is None:
            return ()
        modes = [name for key, name in _POOLINGS.items() if config.get(key)]
        stated = config.get("pooling_mode") or modes or "mean"
        names = [stated] if isinstance(stated, str) else list(stated)
        return tuple("last" if name == "lasttoken" else name for name in names)

    @property
    def pools_prompt(self) -> bool:
        """True if the pooling reads the tokens of the prompt (``include_prompt``), as most do."""
        config = next((module.config for module in self.modules if module.kind == "Pooling"), {})
        return bool(config.get("include_prompt", True))

    def require_weights(self) -> None:
        """Refuse a folder whose weights are not those of one model.

        Raises:
            BadInput: It is an adapter, a Router, another form of export, or has quantised weights.
        """
        for file, form in _EXPORTS.items():
            if (self.path / file).is_file():
                raise BadInput(
                    f"{self.path} must be one model as stock sentence-transformers reads it, but is {form} "
                    f"({file}). Export the student in that form, or name the folder of one tower."
                )
        adapter = self.transformer / "adapter_config.json"
        if adapter.is_file():
            base = _object(adapter).get("base_model_name_or_path", "its base model")
            raise BadInput(
                f"{self.path} must be a model, but is an adapter (adapter_config.json) of {base}. Merge it "
                "into its base (`merge_and_unload` of peft), save that, and name the new folder."
            )
        if ROUTER in self.kinds:
            routes = list(_object(self.path / "router_config.json").get("structure", {}))
            raise BadInput(
                f"{self.path} must be one model, but is a Router of several, with the routes "
                f"{', '.join(routes)}. Choose one: save its modules as a model "
                "(SentenceTransformer(modules=[*model[0].sub_modules[ROUTE]]).save(FOLDER)), and give FOLDER."
            )
        if "quantization_config" in self.config:
            raise self._refused(
                "quantization_config", "config.json", "Save its weights as float32 or bfloat16."
            )

    def require_supported(self) -> None:
        """Refuse what changes a vector and is not honoured everywhere, or is not known, by its name.

        Raises:
            BadInput: A module, a key of a file, or a value of it.
        """
        self.require_weights()
        for file, key, remedy in self._unsupported():
            raise self._refused(key, file, remedy)

    def _unsupported(self) -> Iterator[tuple[str, str, str]]:
        """The files and settings that are not supported, each with a remedy."""
        kind = self.stated.get("model_type", "SentenceTransformer")
        if kind != "SentenceTransformer":
            yield SETTINGS, f"model_type: {kind}", _DENSE
        yield from ((SETTINGS, key, "") for key in _unknown(self.stated, _STATED))
        for module in self.modules:
            if module.kind not in _MODULES:
                yield "modules.json", f"the module {module.kind}", ""
            keys = _unknown(module.config, _KEYS.get(module.kind, ""))
            yield from ((f"{module.path.name}/config.json", key, "") for key in keys)
        if not self.static:
            yield from self._unsupported_settings()

    def _unsupported_settings(self) -> Iterator[tuple[str, str, str]]:
        file, settings = _SETTINGS_FILES[0], self.settings
        for key in _unknown(settings, _SETTINGS):
            part = key.removesuffix("_args").removesuffix("_kwargs").replace("processor", "tokenizer")
            if part == key or part not in _HARMLESS:
                yield from [(file, key, "")] if settings[key] else []
            else:
                yield from ((file, f"{key}.{name}", "") for name in _unknown(settings[key], _HARMLESS[part]))
        if settings.get("transformer_task", "feature-extraction") != "feature-extraction":
            yield file, f"transformer_task: {settings['transformer_task']}", _DENSE
        told = settings.get("modality_config", {"text": _TEXT})
        if told.get("text") != _TEXT or "message" in told:
            yield file, "modality_config", "Only plain text, without a chat template, is read."
        chats = "chat_template" in self.tokenizer or (self.transformer / "chat_template.jinja").is_file()
        if chats and not self.modules:
            remedy = "Stock sentence-transformers puts every text into it: save the model with its modules."
            yield "tokenizer_config.json", "chat_template", remedy
        if self._side("padding") == "left" and not self._relative():
            remedy = "Its vectors depend on the other texts of a batch: set it to right, as it was trained."
            yield "tokenizer_config.json", "padding_side: left", remedy

    def _relative(self) -> bool:
        """Whether the architecture's positions are relative, so that padding on the left changes nothing."""
        text = self.config.get("text_config") or self.config
        return any(key.startswith(_RELATIVE) for key in text)

    def _refused(self, key: str, file: str, remedy: str) -> BadInput:
        return BadInput(
            f"{self.path} must have settings that a store, an evaluation and an export honour alike, but "
            f"{file} has {key}, which is not supported. {remedy or 'Give a model without it.'}"
        )

    def _side(self, what: str) -> str:
        """A side as transformers finds it: in the tokenizer's settings, else in the tokenizer itself."""
        stated = None if self.static else self.tokenizer.get(f"{what}_side")
        return str(stated or self._backend[what].get("direction", "right")).lower()

    @functools.cached_property
    def _backend(self) -> dict[str, dict[str, Any]]:
        """Truncation and padding that ``tokenizer.json`` itself states, which may be large."""
        stated = _object(self.transformer / "tokenizer.json")
        return {part: stated.get(part) or {} for part in ("truncation", "padding")}


def read_folder(path: Path) -> ModelFolder:
    """Read what a model's folder says; no weights are read.

    Raises:
        BadInput: A file is not what its name says.
    """
    stamps = tuple(_stamp(file) for pattern in ("*.json", "*/*.json") for file in sorted(path.glob(pattern)))
    return _read(path, stamps)


@functools.lru_cache(maxsize=64)
def _read(path: Path, stamps: tuple[Any, ...]) -> ModelFolder:
    """`read_folder`, once per state of the files."""
    modules = tuple(_module(path, listed) for listed in _listed(path / "modules.json"))
    transformer = modules[0].path if modules else path
    settings = (transformer / name for name in _SETTINGS_FILES)
    return ModelFolder(
        path,
        modules,
        config=_object(transformer / "config.json"),
        settings=next((_object(file) for file in settings if file.is_file()), {}),
        tokenizer=_object(transformer / "tokenizer_config.json"),
        stated=_object(path / SETTINGS),
    )


def _unknown(found: Mapping[str, Any] | None, known: str) -> list[str]:
    return sorted(set(found or ()) - set(known.split()))


def _stamp(file: Path) -> tuple[Any, ...]:
    status = file.stat() if file.exists() else None
    return (file, status.st_ino, status.st_size, status.st_mtime_ns) if status else (file,)


def _module(folder: Path, listed: Mapping[str, Any]) -> Module:
    module = Module(listed["type"], folder / listed["path"], {})
    return replace(module, config=_object(module.path / "config.json")) if module.kind in _KEYS else module


def _listed(file: Path) -> list[dict[str, Any]]:
    what = "a list of modules in JSON, each with a type and a path"
    modules: list[dict[str, Any]] = _parsed(file, what) if file.is_file() else []
    try:
        whole = all(isinstance(module["type"], str) and isinstance(module["path"], str) for module in modules)
    except (TypeError, KeyError):
        whole = False
    if not whole:
        raise BadInput(f"{file} must be {what}, but is not. Download or export the model again.")
    return modules


def _object(file: Path) -> dict[str, Any]:
    """The object of a JSON file; empty where there is no such file."""
    content = _parsed(file, "a JSON object") if file.is_file() else {}
    if not isinstance(content, dict):
        raise BadInput(f"{file} must be a JSON object, but is {type(content).__name__}.")
    return content


def _parsed(file: Path, what: str) -> Any:
    try:
        return parse_json(file.read_bytes())
    except ValueError as error:
        raise BadInput(
            f"{file} must be {what}, but reading it gave: {error}. Download or export the model again."
        ) from None
    except OSError as error:
        raise blocked(file, error) from None
