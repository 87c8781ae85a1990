"""The choice of a teacher."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TeacherChoice:
    """The large model that is distilled.

    Attributes:
        name: Name or path of the teacher.
    """

    name: str = "all-MiniLM-L6-v2"
