"""Hard negatives of labelled pairs, named before they are mined."""

from collections.abc import Callable

from stillhouse.core.roles import DOCUMENT, QUERY
from stillhouse.evaluation.search.indexes import check_index, parse_index
from stillhouse.values.data import Examples, Mined, TableStore, TextTable
from stillhouse.values.mining import Mining


def with_negatives(
    pairs: Examples, mining: Mining, count: int, store: Callable[[TextTable, str], TableStore]
) -> Examples:
    """Add hard negatives to pairs, which are still to be mined where they do not come with the pairs.

    Args:
        pairs: The pairs.
        mining: The rule of mining.
        count: Number of negatives per pair.
        store: Names the teacher's vectors of a table of texts of a role.

    Raises:
        BadInput: FAISS as it is installed lacks the index of the rule.
    """
    if count == 0 or "negatives" in pairs.columns:
        return pairs
    if mining.index != "exact":
        check_index(parse_index(mining.index))
    queries, passages = store(pairs.columns["query"], QUERY), store(pairs.columns["passage"], DOCUMENT)
    return Examples(
        columns={**pairs.columns, "negatives": pairs.columns["passage"]},
        origin=Mined(pairs, queries, passages, count, mining),
        label="mined",
        values=pairs.values,
    )
