"""More training text, as in IBKD (section 4.3): copies with synonyms, and back-translated copies.

A copy that adds nothing new, and one that repeats a text of dev or test, is left out. The table is built
once; an interrupted back-translation resumes where it stopped.
"""

from dataclasses import dataclass

from stillhouse.core.errors import require
from stillhouse.core.type_casts import check_types


@dataclass(frozen=True)
class Augmentation:
    """Copies of the sentences that are added to them.

    Attributes:
        wordnet: Folder with the YAML files of Open English WordNet, for copies with synonyms; empty for none.
        translators: Two models, there and back, by name or path with a comma between, for copies that are
            translated and translated back; empty for none.
        copies: Copies per sentence, of each of the two kinds.
        probability: Probability that a word with synonyms is replaced.
    """

    wordnet: str = ""
    translators: str = ""
    copies: int = 1
    probability: float = 0.3

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_types(self, "sentences.augmentation")
        require(self.copies >= 1, "augmentation.copies >= 1", copies=self.copies)
        require(0 < self.probability <= 1, "0 < augmentation.probability <= 1", probability=self.probability)

    def __bool__(self) -> bool:
        """Return whether there are any copies."""
        return bool(self.wordnet or self.translators)
