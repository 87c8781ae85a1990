"""May the student's queries search documents that its teacher embeds?"""

from stillhouse.preflight.finding import NOTE, Finding
from stillhouse.preflight.planned import Planned
from stillhouse.students.head import dimension_of
from stillhouse.training.teacher_space import SEVERAL, why_outside


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
