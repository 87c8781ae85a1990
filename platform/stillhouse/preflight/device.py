"""Device and precision that a run will use."""

import torch

from stillhouse.core.machine import describe_machine
from stillhouse.preflight.finding import NOTE, WARNING, Finding
from stillhouse.preflight.planned import Planned
from stillhouse.teachers.embedding import resolve_compute

CHECK = "device"


def device_used(planned: Planned, *, workers: int = 1) -> list[Finding]:
    """Say where teacher and students will run, and what of this machine will lie idle."""
    device, compute, machine = planned.device, planned.compute, describe_machine(1)
    where = f"{machine['cores']} cores of {machine['cpu']}" if device == "cpu" else device
    where = torch.cuda.get_device_name(device) if device.startswith("cuda") else where
    processes = "1 training process" if workers == 1 else f"{workers} training processes"
    found = f"teacher and students run on {device} ({where}) in {compute}, with {processes}."
    findings = [Finding(CHECK, NOTE, found)]
    gpus = torch.cuda.device_count()
    if gpus and device == "cpu":
        idle = f"{gpus} GPUs are there, and none is used." if gpus > 1 else "a GPU is there, and is not used."
        findings.append(Finding(CHECK, WARNING, idle, "Leave --device out, or give --device cuda."))
    elif gpus > workers:
        idle = f"{gpus} GPUs are there, of which training uses {workers}."
        findings.append(Finding(CHECK, NOTE, idle, f"Give --workers {gpus} to train on all of them."))
    if planned.experiment.compute == "float32" and resolve_compute(device) == "bfloat16":
        slow = f"{device} multiplies bfloat16 faster, but the experiment asks for float32."
        findings.append(Finding(CHECK, NOTE, slow, "Leave --compute out to use bfloat16."))
    return findings
