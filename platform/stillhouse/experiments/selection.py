"""Selection of checkpoints and trials."""

from dataclasses import dataclass

from stillhouse.core.type_casts import check_types
from stillhouse.evaluation.search.index_options import parse_index

WITHOUT_FAISS = ("auto", "exact")


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
        index: Search of the dev queries: ``exact`` (a product in torch), ``flat`` (the same in FAISS),
            the faster of the two (``auto``), ``flat-gpu:device=0``, or an index of FAISS that misses
            passages, ``hnsw`` or ``ivfpq``, with parameters as of ``--index``.
    """

    by: str = ""
    data_root: str = ""
    heldout_loss: bool = False
    index: str = "auto"

    def __post_init__(self) -> None:
        """Check the types."""
        check_types(self, "selection")
        if self.index not in WITHOUT_FAISS:
            parse_index(self.index, others=WITHOUT_FAISS)

    @property
    def approximate(self) -> str:
        """The index if it misses passages, and so changes figures; else empty."""
        return self.index if self.index.startswith(("hnsw", "ivfpq")) else ""
