"""Selection of checkpoints and trials."""

from dataclasses import dataclass

from stillhouse.core.type_casts import check_types


@dataclass(frozen=True)
class Selection:
    """The measure that selects checkpoints and trials on the dev split.

    Attributes:
        by: ``search``, ``asymmetric``, ``agreement`` or ``stsb``; empty takes ``search`` where the data has
            queries, and otherwise what its kind is measured by. With ``asymmetric``, the student's queries
            also search passages that the teacher has embedded, and that figure selects.
        data_root: Folder with published STS sets, to measure and to select by; empty leaves STS out.
        heldout_loss: Whether stages that follow the teacher on sentences also report their loss on the
            sentences that are held out for dev.
    """

    by: str = ""
    data_root: str = ""
    heldout_loss: bool = False

    def __post_init__(self) -> None:
        """Check the types."""
        check_types(self, "selection")
