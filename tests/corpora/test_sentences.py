import pytest

from stillhouse.corpora.reading.sentences import clean, dedup_key, split_sentences


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("  a \t b\r\n c  ", "a b c"),
        ("cafe\u0301", "café"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("bell\x07 and\x00 null", "bell and null"),
        ("no\u00a0break", "no break"),
        ("क्\u200dष", "क्\u200dष"),
        ("", ""),
    ],
)
def test_clean(raw: str, cleaned: str) -> None:
    assert clean(raw) == cleaned
    assert clean(cleaned) == cleaned


def test_sentences_keep_abbreviations_and_numbers_whole() -> None:
    text = "See Fig. 2 of Smith et al. (2001), i.e. the\nvalue 3.14. It uses sklearn.svm here! Done?"
    assert split_sentences(text) == [
        "See Fig. 2 of Smith et al. (2001), i.e. the value 3.14.",
        "It uses sklearn.svm here!",
        "Done?",
    ]
    assert split_sentences(" \n ") == []


def test_sentences_end_at_common_words() -> None:
    text = "It opens before the call. Merge one for every row. Then Prof. Smith saw approx. Gaussian noise."
    assert split_sentences(text) == [
        "It opens before the call.",
        "Merge one for every row.",
        "Then Prof. Smith saw approx. Gaussian noise.",
    ]


def test_texts_equal_up_to_case_spacing_and_final_punctuation() -> None:
    assert dedup_key("The  Mean.") == dedup_key("the mean") == dedup_key(" THE MEAN! ")
    assert len({dedup_key(text) for text in ("a < b", "a > b", "a b", "b a", "a, b")}) == 5
