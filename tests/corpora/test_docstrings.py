import pytest
from rows import each_row

from stillhouse.corpora.pydocs.docstrings import docstrings, paragraphs
from stillhouse.corpora.pydocs.prose import outline, plain, readable, sentences

NUMPYDOC = """
    Compute the mean along an axis.

    The average is taken over the flattened array
    by default.

    Parameters
    ----------
    a : array_like
        Array containing numbers whose mean is desired.

        A second paragraph of the description.

    Returns
    -------
    m : ndarray
        The mean.

    Notes
    -----
    The mean is the sum of the elements divided by their number::

        total / count

    In single precision it can be inaccurate.

    .. versionadded:: 1.2
       Nothing of this either.

    .. note:: Higher precision alleviates this
       issue.

    Examples
    --------
    Text between examples.

    >>> mean([1, 2])
    1.5
    """

GOOGLE = """Loads a table.

    Runs once for every file.

    Args:
        path: Where the table is.
          It must exist.
        rows (int): How many.

    Returns:
        A table.

    Example:

    ```python
    load("x")
    ```

    Note:
        The table is closed afterwards.

    It is never cached.
    """

SPHINX = """Open a connection.

Connections are pooled.

:param name: The name of the
    connection.
:returns: A connection.

* Bulleted points are
  kept whole.
* Each by itself.

    an indented block of code()

=====  =====
A      B
=====  =====
"""


def test_numpydoc() -> None:
    lead, rest = paragraphs(NUMPYDOC)
    assert lead == "Compute the mean along an axis."
    assert rest == [
        "The average is taken over the flattened array by default.",
        "The mean is the sum of the elements divided by their number::",
        "In single precision it can be inaccurate.",
        "Higher precision alleviates this issue.",
    ]


def test_google_style() -> None:
    lead, rest = paragraphs(GOOGLE)
    assert lead == "Loads a table."
    assert rest == ["Runs once for every file.", "The table is closed afterwards.", "It is never cached."]


def test_sphinx_style() -> None:
    lead, rest = paragraphs(SPHINX)
    assert lead == "Open a connection."
    assert rest == ["Connections are pooled.", "Bulleted points are kept whole.", "Each by itself."]


def test_entries_of_a_table_without_a_heading() -> None:
    entries = "size (int, optional): Its size.\n    More of it.\naxis : int\n    Which one."
    text = f"Build a layer.\n\n{entries}\nIt ends."
    assert paragraphs(text) == ("Build a layer.", ["It ends."])


@each_row("docstring", ["", "\n\n", ">>> f(1)\n2", "Parameters\n----------\nx : int\n    No."])
def test_docstrings_without_running_text(docstring: str) -> None:
    assert paragraphs(docstring) == ("", [])


def test_a_docstring_that_opens_with_code_has_no_lead() -> None:
    assert paragraphs(">>> f(1)\n2\n\nThis follows.") == ("", ["This follows."])


def test_docstrings_of_a_module_in_order() -> None:
    source = b'''
"""Module."""
import os
os.remove("never run")
class A:
    """Class."""
    async def f(self):
        """Method."""
if True:
    def g():
        """Under a condition."""
add_docstr(torch.abs, r"""Added.""" + "x")
def h():
    x = """no docstring"""
'''
    assert docstrings(source) == ["Module.", "Class.", "Method.", "Under a condition.", "Added."]


@each_row("source", [b"def (", b"x = '\xe9'", b"x = 1\0", b"(" * 5000])
def test_unparsable_source_raises_one_of_four_errors(source: bytes) -> None:
    with pytest.raises((SyntaxError, ValueError, RecursionError, MemoryError)):
        docstrings(source)


@each_row(
    ("marked", "unmarked"),
    [
        ("Use :func:`~numpy.linalg.norm` for *this*.", "Use norm for this."),
        ("Use :class:`the array <numpy.ndarray>` or ``dict()``.", "Use the array or dict."),
        ("See `the paper <https://example.org/a>`_ [1]_ and [2]_.", "See the paper and."),
        ("A [link](https://example.org/a_(b)) in **Markdown**.", "A link in Markdown."),
        ("The [`Trainer`] and [`~models.Bert`] of it.", "The Trainer and models.Bert of it."),
        ("An instance of `.Line2D` is <b>bold</b>.", "An instance of Line2D is bold."),
        ("Two  spaces -- and dashes .", "Two spaces – and dashes."),
        ("Keep snake_case and 2 * 3 * 4 as they are.", "Keep snake_case and 2 * 3 * 4 as they are."),
    ],
)
def test_inline_markup(marked: str, unmarked: str) -> None:
    assert plain(marked) == unmarked


@each_row(
    "sentence",
    [
        "Compute the mean along an axis.",
        "If no axis is given, the flattened array (the default) is used!",
        "Return a new DataFrame with the first n_rows rows.",
        "Is the connection closed after the request?",
    ],
)
def test_readable(sentence: str) -> None:
    assert readable(sentence)


@each_row(
    "sentence",
    [
        "Too short here.",
        "starts with a small letter and goes on.",
        "It does not end with a full stop",
        "The value of x = 3 is given here.",
        "Call the function f(x) with the array.",
        "The shape is [batch, length] as the model expects.",
        "It is documented at https://example.org for all readers.",
        "The matrix ⟨⟩ is symmetric and positive.",
        "TODO remove this before the next release of it.",
        "Licensed under the terms that stand in the file.",
        "An opening (bracket that is never closed in it.",
        "Il est nécessaire lire tous ces documents avant toute chose.",
        "This is the second algorithm that stands in the book of.",
        "THE READER IS SHOUTED AT in capitals here.",
        "And so " + "on and " * 60 + "on.",
    ],
)
def test_unreadable(sentence: str) -> None:
    assert not readable(sentence)


def test_a_formula_marks_only_its_own_sentence() -> None:
    found = sentences("The norm of :math:`x` is one. The rest is plain text here.")
    assert [readable(sentence) for sentence in found] == [False, True]


def test_sentences_end_before_common_openings() -> None:
    text = "Samples lie on each Series. The rest is at x. If not, it fails."
    assert sentences(text) == [
        "Samples lie on each Series.",
        "The rest is at x.",
        "If not, it fails.",
    ]


def test_an_outline_is_shared_by_near_duplicates() -> None:
    one = outline("Instantiating the defaults gives a configuration similar to BertModel version 2.")
    assert one == outline("instantiating the defaults gives a configuration similar to T5Model version 3!")
    assert one != outline("Instantiating the defaults gives a tokenizer similar to BertModel version 2.")
