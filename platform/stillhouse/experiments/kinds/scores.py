"""A reranker's scores of queries and passages: read from files, or given by a published cross-encoder."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stillhouse.core.errors import require
from stillhouse.core.type_casts import check_types
from stillhouse.experiments.columns import Columns
from stillhouse.experiments.data_kind import DataKind, check_count
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.values.setting import ScoreData

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment


@dataclass(frozen=True)
class Scores(Columns, DataKind[ScoreData]):
    """Scores that a student learns to rank by.

    Attributes:
        path: Files with queries, passages, hard negatives and their scores, as sentence-transformers,
            FlagEmbedding or Tevatron write them: JSON lines, CSV, TSV or Parquet, or ``hf:``. They are
            trained on instead of the experiment's pairs.
        count: Number of rows of ``path``.
        negatives: Number of hard negatives per row of ``path`` (K), the first ones; rows with fewer are left
            out. 0 takes as many as the row with the fewest has.
        cross_encoder: Name or path of a published cross-encoder with one label, which scores the experiment's
            pairs and the hard negatives that are mined for them. Without it and without ``path``, the method
            trains one on them.
    """

    key = "scores"
    title = "scores of a reranker"
    remedy = "Give --set scores.path=FILE, or --set scores.cross_encoder=NAME."
    provides = (Pairs,)
    read_by = "stillhouse.experiments.labelled_pairs:ScoreReader"
    path: str = ""
    count: int | None = None
    negatives: int = 0
    cross_encoder: str = ""

    def __post_init__(self) -> None:
        """Check the ranges, and that scores come from one place."""
        check_types(self, "scores")
        check_count("scores.count", self.count)
        self.check_columns("scores")
        require(self.negatives >= 0, "scores.negatives >= 0", negatives=self.negatives)
        require(
            not (self.path and self.cross_encoder),
            "scores must be read from files or given by a cross-encoder",
            path=self.path,
            cross_encoder=self.cross_encoder,
            remedy="Leave one of them out.",
        )

    def agree(self, experiment: "Experiment") -> None:
        """Files of scores have their own queries and passages; a cross-encoder scores others."""
        pairs: Pairs | None = experiment.get(Pairs)
        labelled = pairs.path if pairs is not None else ""
        require(
            not (self.path and labelled),
            "scores.path must come without labelled text, since its files have queries and passages",
            path=self.path,
            labelled=labelled,
            remedy="Leave --labelled out, or score it with scores.cross_encoder.",
        )
        require(
            not self.cross_encoder or bool(labelled or experiment.uses_pydocs),
            "scores.cross_encoder must come with pairs, which it scores",
            cross_encoder=self.cross_encoder,
            remedy="Give --labelled.",
        )
