import pytest
from rows import each_row

from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.cleaning import clean, cut, dedup_key, passages, split_sentences, word_count
from stillhouse.corpora.reading.languages import check_language, recognised


@each_row(
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


@each_row(
    ("language", "text", "pieces"),
    [
        ("en", "Dr. Smith measured 3.5 m of rain, e.g. in May. Is that so? Yes!", 3),
        ("zh", "今天天气很好。我们去公园散步吧！你想一起来吗？当然可以。", 4),
        ("ja", "今日は天気がいいです。公園に行きましょう。一緒に来ますか？もちろんです。", 4),
        ("hi", "आज मौसम अच्छा है। हम पार्क जाएंगे। क्या आप आएंगे? हाँ।", 4),
        ("ar", "الطقس جميل اليوم. هل تريد أن تأتي؟ نعم بالطبع.", 3),
        ("el", "Πού πας; Στο σπίτι. Καλά.", 3),
        ("de", "Der 3. Mai war ein Dienstag. Sie ging heim.", 2),
        ("es", "El Sr. García vive en Madrid. ¿Viene hoy? Sí.", 3),
        ("fr", "M. Dupont habite à Paris. Vient-il ce soir ? Oui.", 3),
        ("it", "Il sig. Rossi vive a Roma. Viene oggi? Sì.", 3),
        ("pt", "O Sr. Silva mora em Lisboa. Ele vem hoje? Sim.", 3),
        ("nl", "Dhr. Jansen woont in Utrecht. Komt hij vandaag? Ja.", 3),
        ("ru", "А. С. Пушкин родился в Москве. Он поэт? Да.", 3),
        ("pl", "Mieszka przy ul. Długiej 5. Czy przyjdzie? Tak.", 3),
        ("tr", "Dr. Yılmaz Ankara'da yaşıyor. Bugün geliyor mu? Evet.", 3),
        ("ko", "오늘은 날씨가 좋습니다. 공원에 갈까요? 네, 좋아요.", 3),
        ("fa", "امروز هوا خوب است. آیا می‌آیی؟ بله.", 3),
        ("ur", "آج موسم اچھا ہے۔ کیا آپ آئیں گے؟ ہاں۔", 3),
        ("hy", "Այսօր եղանակը լավ է։ Կգա՞ս։ Այո։", 3),
        ("my", "ဒီနေ့ ရာသီဥတုကောင်းတယ်။ ပန်းခြံသွားကြမယ်။", 2),
        ("am", "ዛሬ አየሩ ጥሩ ነው። ትመጣለህ? አዎ።", 3),
        ("cs", "Narodil se 3. května v Praze. Přijde dnes? Ano.", 3),
        ("fi", "Tapaamme 3. toukokuuta. Tuletko? Kyllä.", 3),
        ("th", "วันนี้อากาศดี เราไปสวนกันเถอะ", 1),
    ],
)
def test_sentences_of_many_languages(language: str, text: str, pieces: int) -> None:
    found = split_sentences(text, language)
    assert len(found) == pieces
    assert "".join(found) == text if " " not in text else " ".join(found) == text
    if not text.isascii() and language not in ("de", "es", "fr", "it", "pt", "nl", "pl", "tr", "cs", "fi"):
        assert split_sentences(text) == found, "a script of its own needs no stated language"


@each_row(
    ("language", "text"),
    [
        ("en", "The cat sat on the mat, and it was not amused by that."),
        ("de", "Die Katze saß auf der Matte, und das war nicht zu sehen."),
        ("fr", "Le chat est sur le tapis et il ne veut pas que la pluie tombe."),
        ("es", "El gato está en la casa y no quiere que la lluvia lo moje."),
        ("it", "Il gatto è sul tappeto, che non è della casa di una amica."),
        ("nl", "De kat zit op de mat en het is niet van een ander."),
        ("pl", "Kot jest na macie i nie chce się ruszyć do domu."),
        ("tr", "Kedi bu evde ve çok mutlu, ne de olsa bir kedi."),
        ("sv", "Katten är på mattan och det är inte för att den vill."),
        ("uk", "Кіт сидить на килимі, і він щасливий."),
        ("ru", "Кот сидит на ковре, и он счастлив."),
        ("ja", "今日は天気がいいです。"),
        ("zh", "今天天气很好。"),
        ("ko", "오늘은 날씨가 좋습니다."),
        ("fa", "آیا امروز می‌آیی؟"),
        ("ar", "الطقس جميل اليوم."),
        ("th", "วันนี้อากาศดี"),
        ("", "def f(x): return x + 1"),
        ("", ""),
    ],
)
def test_languages_are_recognised(language: str, text: str) -> None:
    assert recognised([text]) == language


def test_an_unknown_language_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"sentences\.language must be a known language.*given='xx'.*en, de"):
        check_language("xx", "sentences.language")


CHINESE = "今天天气很好。我们去公园散步吧！你想一起来吗？当然可以。" * 20
THAI = "วันนี้อากาศดีเราไปสวนกันเถอะ" * 20


@each_row("text", [CHINESE, THAI, "Words of all sizes, extraordinarily long. " * 9])
@each_row("most", [1, 7, 30, 10_000])
def test_nothing_is_lost_in_passages_that_fit(text: str, most: int) -> None:
    text = clean(text)
    found = passages(text, lambda part: len(part) <= most)
    assert all(0 < len(part) <= most for part in found)
    assert "".join(found).replace(" ", "") == text.replace(" ", "")
    assert cut(text, lambda part: len(part) <= most) == text[: len(cut(text, lambda part: len(part) <= most))]


def test_passages_of_chinese_end_with_their_sentences() -> None:
    found = passages(CHINESE, lambda part: len(part) <= 30)
    assert len(found) == 20 and set(found) == {CHINESE[:28]}


def test_words_of_text_without_blanks_have_two_characters() -> None:
    assert [word_count(text) for text in ("a b c", "größer als", "今天天气很好。", "a 今天 b")] == [
        3,
        2,
        4,
        3,
    ]
