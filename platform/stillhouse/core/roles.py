"""Roles of texts, and the prompts that a model is given before the texts of each role.

Many models embed a query, a document and a plain text differently. A folder of sentence-transformers names
its prompts in ``config_sentence_transformers.json``; `core.model_folder` reads them.
"""

from dataclasses import dataclass

QUERY, DOCUMENT, PLAIN = "query", "document", ""
ROLES = (QUERY, DOCUMENT)
ASYMMETRIC = "asymmetric"
"""Search whose documents are embedded by the teacher and whose queries by the student."""
SETTINGS = "config_sentence_transformers.json"
"""The file of a folder that names its prompts."""
DOCUMENT_NAMES = ("document", "passage", "corpus")
"""Names under which published models keep the prompt of documents; the first that there is counts."""
DEFAULT = "plain"
"""Name under which the prompt of plain texts is exported."""


@dataclass(frozen=True)
class Prompts:
    """The text that a model is given before every text, by role; empty for none.

    Attributes:
        query: Text before every query and claim.
        document: Text before every passage and document.
        plain: Text before every text without a role.
    """

    query: str = ""
    document: str = ""
    plain: str = ""

    def of(self, role: str) -> str:
        """The prompt of a role."""
        return {QUERY: self.query, DOCUMENT: self.document, PLAIN: self.plain}[role]

    def __bool__(self) -> bool:
        """Return whether any role has a prompt."""
        return bool(self.query or self.document or self.plain)

    def __str__(self) -> str:
        """``query 'query: ', document 'passage: '``; ``none`` without any."""
        named = {"query": self.query, "document": self.document, "plain text": self.plain}
        return ", ".join(f"{name} {prompt!r}" for name, prompt in named.items() if prompt) or "none"

    def exported(self) -> tuple[dict[str, str], str | None]:
        """``prompts`` and ``default_prompt_name`` of a folder of sentence-transformers."""
        if not self:
            return {}, None
        named = {QUERY: self.query, DOCUMENT: self.document}
        return (named | {DEFAULT: self.plain}, DEFAULT) if self.plain else (named, None)


NO_PROMPTS = Prompts()
"""No prompt for any role."""


@dataclass(frozen=True)
class Reading:
    """A model's way of reading texts.

    Attributes:
        max_length: Tokens per text, prompt and special tokens included; longer texts are cut.
        prompts: What the model is given before every text, by role.
    """

    max_length: int
    prompts: Prompts = NO_PROMPTS
