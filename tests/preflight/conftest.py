"""An experiment that nothing is wrong with."""

import dataclasses
from pathlib import Path

import pytest

from stillhouse.experiments.experiment import Experiment
from stillhouse.teachers.choice import TeacherChoice


@pytest.fixture(scope="session")
def healthy(experiment: Experiment, trained_model: Path) -> Experiment:
    """An experiment with a trained teacher, from which the student takes its layers."""
    return dataclasses.replace(experiment, teacher=TeacherChoice(str(trained_model)))
