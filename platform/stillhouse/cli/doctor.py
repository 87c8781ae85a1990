"""`stillhouse doctor METHOD`: check an experiment before hours are spent on it."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from dataclasses import asdict

from stillhouse.cli.arguments import add_experiment, add_file, add_local, add_method, add_where, new_command
from stillhouse.cli.parsed_values import asked, root_of
from stillhouse.cli.run import write_results
from stillhouse.core.console import show
from stillhouse.preflight.finding import LEVELS, from_the_worst, has_errors
from stillhouse.search.keywords import Place
from stillhouse.sweeps.session import session_of


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "doctor",
        "check weights, vectors, prompts, lengths, temperature, disk and memory before a run",
        "stillhouse doctor ibkd\n"
        "  stillhouse doctor ckd --teacher intfloat/e5-base-v2 --set temperature=0.01\n"
        "  stillhouse doctor --file search_spaces/papers/ibkd_table4.yaml --scale small",
    )
    add_method(command)
    add_local(command)  # As it always does: the arguments of `train` serve as they are.
    add_file(command)
    add_experiment(command, method=True)
    add_where(command, trains=True)
    command.set_defaults(local=True)
    return command


def run(options: Namespace) -> int:
    """Run the command; the exit code is 1 if a finding is an error."""
    from stillhouse.cli.method_values import fixed_of, trainings_of
    from stillhouse.preflight.examination import examine
    from stillhouse.sweeps.search_findings import findings_beside

    trainings = trainings_of(options)
    reports, every = [], []
    place = {**asked(options, Place), "verbose": options.verbose}
    with session_of(place, local=True) as (workspace, device):
        for training in trainings:
            if training.name:
                show(f"variant {training.name}")
            training.say_notes()
            findings = examine(
                training.method,
                training.hp,
                training.experiment,
                workspace,
                device=device,
                workers=options.workers or 1,
            )
            if not training.name:  # Of variants there is no search.
                fixed, root = fixed_of(options, training.method), root_of(options)
                beside = findings_beside(training, root, options.file, options.scale, fixed, options.preset)
                findings = from_the_worst([*findings, *beside])
            for finding in findings:
                show(str(finding))
            named = {"variant": training.name} if training.name else {}
            shown = [{**named, **asdict(finding)} for finding in findings]
            reports += [{k: v for k, v in each.items() if v is not None} for each in shown]
            every += findings
    counts = {level: sum(finding.level == level for finding in every) for level in LEVELS}
    show(", ".join(f"{count} {level}{'' if count == 1 else 's'}" for level, count in counts.items()))
    write_results(options, reports)
    return int(has_errors(every))
