"""All checks of an experiment, and those that cost next to nothing and stand at the start of every run."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.machine import available_memory, describe_machine
from stillhouse.corpora.reading.understood import recorded
from stillhouse.experiments.experiment import Experiment
from stillhouse.methods import Method
from stillhouse.preflight.contrast import labelled_saturation, saturation
from stillhouse.preflight.disk_and_memory import disk_space, memory, student_size, teacher_bytes
from stillhouse.preflight.finding import ERROR, NOTE, WARNING, Finding, from_the_worst
from stillhouse.preflight.lengths import cut_texts
from stillhouse.preflight.limits import dev_resolution, full_bank
from stillhouse.preflight.missing_prompts import missing_prompts
from stillhouse.preflight.planned import Planned, read, sketched
from stillhouse.preflight.trained_weights import student_weights, teacher_weights
from stillhouse.preflight.vectors import TeacherRun, cosine_scale, endpoint_cosines, stored_vectors
from stillhouse.students.head import dimension_of
from stillhouse.teachers.embedding import resolve_compute
from stillhouse.training.teacher_space import SEVERAL, why_outside
from stillhouse.values.data import Teacher

SECONDS = 30.0
"""Time after which no further text is embedded."""


def examine(
    method: Method,
    hp: Any,
    experiment: Experiment,
    workspace: Workspace,
    *,
    device: str = "cpu",
    workers: int = 1,
    seconds: float = SECONDS,
) -> list[Finding]:
    """Run every check, and return the findings, the worst first.

    Texts that can be read in seconds are read, and kept; nothing else is written.

    Raises:
        BadInput: The teacher, the data or the plan cannot be used at all.
    """
    start = time.perf_counter()
    teacher = experiment.teacher.finder.resolve()
    with recorded() as understood:
        planned = read(method, hp, experiment, workspace, teacher, device)
    findings = [Finding("data", NOTE, "\n".join(each.lines()), data=each.noted()) for each in understood]
    findings += checked("weights", lambda: [*teacher_weights(planned), *student_weights(planned)])
    findings += checked("prompts", lambda: missing_prompts(planned))
    findings += checked("space", lambda: same_space(planned))
    findings += device_used(planned, workers=workers)
    findings += checked("size", lambda: student_size(planned))
    findings += checked("disk", lambda: disk_space(planned))
    findings += checked("memory", lambda: memory(planned))
    findings += checked("dev", lambda: dev_resolution(planned))
    findings += checked("lengths", lambda: cut_texts(planned))
    findings += full_bank([planned.stage], planned.rows)
    if teacher_bytes(planned) > available_memory() and device == "cpu":
        left_out = "the teacher does not fit into memory: its vectors and the temperature were not checked."
        return from_the_worst([*findings, Finding("vectors", NOTE, left_out)])
    run = TeacherRun(planned)
    threads = torch.get_num_threads()
    findings += checked("temperature", lambda: _of_sample(planned, run, start + seconds / 2))
    findings += checked("cosines", lambda: endpoint_cosines(planned, run))
    findings += checked("temperature", lambda: labelled_saturation(planned))
    findings += checked("vectors", lambda: stored_vectors(planned, run, start + seconds))
    torch.set_num_threads(threads)
    return from_the_worst(findings)


def at_start(
    method: Method,
    hp: Any,
    experiment: Experiment,
    workspace: Workspace,
    teacher: Teacher,
    *,
    device: str = "cpu",
    trials: int = 1,
) -> list[Finding]:
    """Run the checks that take a fraction of a second and read no text.

    In a search the hyper-parameters are those of one of its points, and each trial trains a student.
    """
    planned = sketched(method, hp, experiment, workspace, teacher, device)
    findings: list[Finding] = []
    # What cannot be read is refused by the run, at its own time.
    with contextlib.suppress(BadInput):
        findings += teacher_weights(planned)
        findings += student_weights(planned)
        findings += missing_prompts(planned)
        findings += disk_space(planned, trials=trials)
    return findings


def _of_sample(planned: Planned, run: TeacherRun, until: float) -> list[Finding]:
    """Check the teacher's vectors of the sample: their cosines, and the first softmax of the losses."""
    store = planned.encoder_store
    if store is None or not planned.texts:
        return []
    vectors_NE = run.embed(store, planned.texts, until)
    return [*cosine_scale(vectors_NE), *saturation(planned, vectors_NE)]


def checked(check: str, run: Callable[[], list[Finding]]) -> list[Finding]:
    """Run a check; whatever hinders it is a finding of its own."""
    try:
        return run()
    except BadInput as error:
        return [Finding(check, ERROR, str(error))]


def same_space(planned: Planned) -> list[Finding]:
    """Say whether the student will live in its teacher's space."""
    if len(planned.teacher.members) > 1:
        reason, where = SEVERAL, "the space of its teachers"
    else:
        dimension = dimension_of(planned.teacher)
        reason = why_outside(planned.stage, dimension)
        where = f"its teacher's {dimension}-d space"
    answer = f"no, {reason}" if reason else "yes, so its queries can search the teacher's documents"
    return [Finding("space", NOTE, f"this student lives in {where}: {answer}.")]


def device_used(planned: Planned, *, workers: int = 1) -> list[Finding]:
    """Say where teacher and students will run, and what of this machine will lie idle."""
    device, compute, machine = planned.device, planned.compute, describe_machine(1)
    where = f"{machine['cores']} cores of {machine['cpu']}" if device == "cpu" else device
    where = torch.cuda.get_device_name(device) if device.startswith("cuda") else where
    processes = "1 training process" if workers == 1 else f"{workers} training processes"
    found = f"teacher and students run on {device} ({where}) in {compute}, with {processes}."
    findings = [Finding("device", NOTE, found)]
    gpus = torch.cuda.device_count()
    if gpus and device == "cpu":
        idle = f"{gpus} GPUs are there, and none is used." if gpus > 1 else "a GPU is there, and is not used."
        findings.append(Finding("device", WARNING, idle, "Leave --device out, or give --device cuda."))
    elif gpus > workers:
        idle = f"{gpus} GPUs are there, of which training uses {workers}."
        findings.append(Finding("device", NOTE, idle, f"Give --workers {gpus} to train on all of them."))
    if planned.experiment.compute == "float32" and resolve_compute(device) == "bfloat16":
        slow = f"{device} multiplies bfloat16 faster, but the experiment asks for float32."
        findings.append(Finding("device", NOTE, slow, "Leave --compute out to use bfloat16."))
    return findings
