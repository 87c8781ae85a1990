"""`stillhouse export STUDENT FOLDER`: write a trained student in a form that others load."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from pathlib import Path

from stillhouse.cli.arguments import add_common, new_command
from stillhouse.cli.parsed_values import remote_of, root_of
from stillhouse.cli.run import quietly, write_results
from stillhouse.core.artifacts import check_no_url
from stillhouse.core.console import show
from stillhouse.core.errors import require
from stillhouse.sweeps.session import opened_workspace


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "export",
        "write a trained student as a folder that sentence-transformers loads, or in another form",
        "stillhouse export ibkd my-student\n"
        "  stillhouse export ibkd my-graph --format onnx-int8\n"
        "  stillhouse export mse my-search --format asymmetric\n"
        "  stillhouse export leaf-seed-1 my-mean --soup leaf-seed-2,leaf-seed-3\n"
        "  stillhouse export rerank_kd scores.jsonl --format scores\n"
        "  stillhouse export runs/stages/finetune-0123456789abcdef --format list\n"
        "  stillhouse export runs/stages/finetune-0123456789abcdef my-student",
    )
    command.add_argument("stage", help="a sweep, for its best student, or a finished stage: name or folder")
    command.add_argument("folder", type=Path, nargs="?", help="where to write")
    command.add_argument(
        "--format",
        default="sentence-transformers",
        metavar="FORM",
        help="sentence-transformers (default), onnx or onnx-int8 (extra onnx), compact (tied layers once; "
        "only this package reads it), asymmetric (queries by the student, documents by its teacher), "
        "scores or scores-flag (the reranker's scores that it learnt from, as JSON lines of "
        "sentence-transformers or FlagEmbedding), or list: which of them this student has",
    )
    command.add_argument(
        "--soup",
        default="",
        metavar="STAGE,STAGE",
        help="further stages or sweeps, whose students are of the same kind and began with the same weights, "
        "such as other seeds: the mean of the weights is exported",
    )
    add_common(command, remote=True)
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.corpora.score_files import SCORE_FORMS
    from stillhouse.sweeps.score_export import export_scores, why_no_scores
    from stillhouse.sweeps.stage_export import check_form, exported, formats_of
    from stillhouse.training.models import stage_of

    check_form(options.format, (*SCORE_FORMS, "list"))
    if options.folder is not None:
        check_no_url(
            options.folder, "an export must be written to a folder or a file, not to a URL", "folder"
        )
    workspace = opened_workspace(root_of(options), remote_of(options))
    stage = stage_of(options.stage, workspace)
    soup = [stage_of(name, workspace) for name in options.soup.split(",") if name]
    as_model = options.format not in ("list", *SCORE_FORMS)
    require(as_model or not soup, "a soup is exported as a model", format=options.format)
    if options.format == "list":
        with quietly(options):
            formats = formats_of(stage) | dict.fromkeys(SCORE_FORMS, why_no_scores(stage))
        for form, reason in formats.items():
            show(f"  {form:<22} {f'no: {reason}' if reason else 'yes'}")
        write_results(options, {"formats": formats})
        return 0
    require(options.folder is not None, "an export is given a folder", remedy="Say where to write.")
    if options.format in SCORE_FORMS:
        rows = export_scores(stage, options.folder, options.format)
        show(f"exported: {options.folder} ({options.format}, {rows:,} rows)")
        found = {"format": options.format, "file": str(options.folder), "stage": str(stage), "rows": rows}
        write_results(options, found)
        return 0
    with quietly(options):
        made = exported(stage, options.folder, form=options.format, soup=soup)
    show(f"exported: {made}")
    results = {"format": made.form, "folder": str(made.folder), "stage": str(stage), "parity": made.cosine}
    parts = {"soup": [str(each) for each in soup]} if soup else {}
    dev = {"dev": made.dev._asdict()} if made.dev else {}
    write_results(options, {**results, **parts, **dev, "megabytes": made.megabytes})
    return 0
