"""A student and its teacher as one folder that stock sentence-transformers loads: queries, and documents.

The folder is a `Router` of sentence-transformers (5.0 and later) with two routes: ``query`` has the modules
of the student, ``document`` those of the teacher. ``encode_query`` and ``encode_document`` take the route of
their role, with the prompt of that role; ``encode`` without a role takes the teacher's. Each route keeps its
own maximum length. A Router holds its modules by folder, so the teacher's weights are part of the export.

    FOLDER/modules.json, router_config.json, query_0_…, document_0_…
    FOLDER/query-onnx/    the student alone as an ONNX export, where it has that form

A machine that only embeds queries needs nothing but ``query-onnx/``.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from stillhouse.core.artifacts import read_json, write_json
from stillhouse.core.roles import DOCUMENT, QUERY, Prompts
from stillhouse.core.types import RoleEncoder
from stillhouse.students.backbone import quiet
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.folder_modules import ONNX, SETTINGS, without_pooler
from stillhouse.students.export.formats import why_not, write_format
from stillhouse.students.export.sentence_transformers import replacing_folder, same_vectors, write_modules

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

ROUTER = "router_config.json"
"""The file in which a Router names its routes."""
QUERY_ONNX = "query-onnx"
"""The folder with the queries' side as an ONNX export."""
_MINIMUM = 0.9999


def is_router(folder: Path) -> bool:
    """Return whether a folder is one of sentence-transformers with a Router at its start."""
    return (folder / ROUTER).is_file() and (folder / "modules.json").is_file()


def open_router(folder: Path, device: str = "cpu") -> "SentenceTransformer":
    """Load a folder with a Router: float32, evaluation mode, from the local folder only."""
    from sentence_transformers import SentenceTransformer

    with quiet():
        loaded = SentenceTransformer(
            str(folder),
            device=device,
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"use_safetensors": True, "dtype": "float32"},
        )
    return loaded.eval()


def export_asymmetric(
    queries: StudentEncoder,
    documents: "SentenceTransformer",
    prompts: Prompts,
    folder: Path,
    texts: Sequence[str],
) -> float:
    """Write the folder, and compare both sides of it, as stock sentence-transformers loads it, in float32.

    The student reads queries with its own prompt. The teacher, as `teachers.loading` loads it, reads
    documents with ``prompts``. They are compared on ``texts``, at least one.

    The folder appears complete: it is written next to its destination and renamed; an earlier export is
    replaced.

    Returns:
        The smallest cosine of both sides, the ONNX graph included.

    Raises:
        BadInput: Stock modules cannot express the student, the folder holds something other than such an
            export, or a side gives different vectors.
    """
    with replacing_folder(folder, earlier=is_router) as temporary:
        router = _router(queries, documents, temporary / ".student")
        _save(router, Prompts(queries.prompts.query, prompts.document, prompts.plain), temporary)
        parity = check_sides(queries, documents, temporary, texts)
        if not why_not(queries.student, ONNX):
            parity = min(parity, write_format(ONNX, queries, temporary / QUERY_ONNX, texts))
    return parity


def check_sides(
    queries: RoleEncoder, documents: "SentenceTransformer", folder: Path, texts: Sequence[str]
) -> float:
    """Compare both routes of a folder with the student's queries and the teacher's documents.

    Returns:
        The smallest cosine.

    Raises:
        BadInput: A cosine is below 0.9999, a length differs by more than 1 %, or the dimensions differ.
    """
    texts, stock = list(texts), open_router(folder)
    given: Any = documents
    sides = (
        (stock.encode_query(texts), queries.encode_query(texts)),
        (stock.encode_document(texts), given.encode_document(texts)),
    )
    return min(same_vectors(theirs, ours, texts, _MINIMUM) for theirs, ours in sides)


def _router(queries: StudentEncoder, documents: "SentenceTransformer", scratch: Path) -> Any:
    """Both models as one Router, the student from a stock folder that is removed again."""
    from sentence_transformers.base.modules import Router

    student: Any = queries.student
    scratch.mkdir()
    write_modules(student.stock_modules(), scratch, Path(student.tokenizer.path), queries.max_length)
    stock: Any = open_router(scratch)
    shutil.rmtree(scratch)
    return Router.for_query_document(
        query_modules=list(stock.children()),
        document_modules=_stock_modules(documents),
        default_route=DOCUMENT,
    )


def _save(router: Any, prompts: Prompts, folder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    named, default = prompts.exported()
    model: Any = SentenceTransformer(
        modules=[router],
        device="cpu",
        prompts={QUERY: "", DOCUMENT: "", **named},
        default_prompt_name=default,
        similarity_fn_name="cosine",
    )
    with quiet():
        model.save(str(folder), create_model_card=False)
    for route, modules in router.sub_modules.items():
        for index, module in enumerate(modules):
            backbone = getattr(module, "auto_model", None)
            if backbone is not None and getattr(backbone, "pooler", None) is None:
                settings = folder / f"{route}_{index}_{type(module).__name__}" / SETTINGS
                write_json(settings, read_json(settings) | without_pooler(backbone))


def _stock_modules(model: "SentenceTransformer") -> list[nn.Module]:
    """The modules of a teacher as stock ones: dimensions are left out by a matrix."""
    from sentence_transformers.sentence_transformer.modules import Dense

    modules: list[nn.Module] = []
    for module in model.children():
        kept: Any = getattr(module, "dimension", None)
        if kept is not None and type(module).__module__.startswith("stillhouse"):
            before: Any = modules[-1]
            width = before.get_embedding_dimension()
            cut: Any = Dense(width, kept, bias=False, activation_function=nn.Identity())
            cut.linear.weight = nn.Parameter(torch.eye(kept, width))
            module = cut
        modules.append(module)
    return modules
