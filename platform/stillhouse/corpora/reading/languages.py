"""Languages of texts: their names, and how they are recognised by their script and their commonest words."""

import re
from collections.abc import Iterable
from itertools import islice

from stillhouse.core.errors import require

_BY_SCRIPT = {
    "ja": "\u3041-\u30ff\uff66-\uff9f", "ko": "\u1100-\u11ff\uac00-\ud7af",
    "zh": "\u3400-\u4dbf\u4e00-\u9fff",
    "ru": "\u0400-\u052f", "el": "\u0370-\u03ff", "ar": "\u0600-\u06ff", "he": "\u0590-\u05ff",
    "hi": "\u0900-\u097f", "bn": "\u0980-\u09ff", "pa": "\u0a00-\u0a7f", "gu": "\u0a80-\u0aff",
    "ta": "\u0b80-\u0bff", "te": "\u0c00-\u0c7f", "kn": "\u0c80-\u0cff", "ml": "\u0d00-\u0d7f",
    "th": "\u0e00-\u0e7f", "lo": "\u0e80-\u0eff", "my": "\u1000-\u109f", "km": "\u1780-\u17ff",
    "ka": "\u10a0-\u10ff", "hy": "\u0530-\u058f", "am": "\u1200-\u137f", "": "A-Za-z\u00c0-\u024f",
}  # fmt: skip
"""Characters of a script by its commonest language; empty for those that many languages share."""
_BY_LETTER = {
    "ru": {"uk": "[іїєґ]", "be": "ў", "sr": "[ђћљњј]"},
    "ar": {"ur": "[ٹڈڑںے]", "fa": "[پچژگیک]"},
    "hi": {"mr": "ळ|आहे"},
}
"""Letters that another language of the script has, and the commonest one has not."""
_BY_WORD = {
    "en": "the of and to is in that for it with as was are this you be on not from do how what",
    "de": "der die das und ist nicht ein eine zu mit von für auf sich dem im den sie",
    "fr": "le les des et est une dans que pour du qui pas sur au nous il ce avec",
    "es": "el los las de que y en una es por con para del se su lo al como",
    "it": "il di che è una per non sono del della con gli nel dei anche le si ha",
    "pt": "o os as de que e do da em uma não para com dos é no na um",
    "nl": "de het een en van is dat niet op te zijn voor met die aan wordt ook er",
    "sv": "och att det som en på är för med inte av den ett om har till var jag",
    "da": "og det at er en på af til ikke som for med den der har et jeg de",
    "no": "og det er på som ikke av til jeg en for å den har et med om vi",
    "fi": "ja on ei se että hän oli ovat myös kun mutta joka ole olen tämä mitä",
    "pl": "w i na z że się nie do jest to jak od po przez są oraz za ale",
    "cs": "a se v na je že to s z do jsem ale pro jako si jsou byl podle",
    "ro": "și de la în cu este nu pe un o care din că să mai ce sunt",
    "hu": "a az és hogy nem egy is van ez meg de volt csak mint azt el",
    "tr": "ve bir bu için da de ile çok ne olarak daha gibi var o en ki",
    "vi": "và của là có không một cho được các người này trong với những",
    "id": "yang dan di itu dengan untuk tidak dari ini pada adalah akan ke",
}
NAMES = {
    "en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "pt": "Portuguese",
    "nl": "Dutch", "sv": "Swedish", "da": "Danish", "no": "Norwegian", "fi": "Finnish", "pl": "Polish",
    "cs": "Czech", "sk": "Slovak", "ro": "Romanian", "hu": "Hungarian", "tr": "Turkish", "vi": "Vietnamese",
    "id": "Indonesian", "ru": "Russian", "uk": "Ukrainian", "be": "Belarusian", "bg": "Bulgarian",
    "sr": "Serbian", "el": "Greek", "ar": "Arabic", "fa": "Persian", "ur": "Urdu", "he": "Hebrew",
    "hi": "Hindi", "mr": "Marathi", "bn": "Bengali", "pa": "Punjabi", "gu": "Gujarati", "ta": "Tamil",
    "te": "Telugu", "kn": "Kannada", "ml": "Malayalam", "ka": "Georgian", "hy": "Armenian", "am": "Amharic",
    "ja": "Japanese", "zh": "Chinese", "ko": "Korean", "th": "Thai", "lo": "Lao", "km": "Khmer",
    "my": "Burmese",
}  # fmt: skip
"""Names of the languages whose sentences can be split, by ISO 639-1 code."""
WITHOUT_BLANKS = frozenset(("ja", "zh", "th", "lo", "km", "my"))
"""Languages without blanks between words."""
UNSPACED = re.compile(f"[{''.join(_BY_SCRIPT[code] for code in sorted(WITHOUT_BLANKS))}]+")
"""A run of characters of such a language."""
_SCRIPTS = {code: re.compile(f"[{letters}]") for code, letters in _BY_SCRIPT.items()}
_STOP_WORDS = {code: frozenset(words.split()) for code, words in _BY_WORD.items()}
_WORD = re.compile(r"[^\W\d_]+")
_TEXTS, _CHARACTERS = 200, 500
"""Texts that are looked at, and characters of each."""
_LEAST = 0.06
"""Share of the words that are a language's commonest ones, at least."""


def check_language(language: str, field: str) -> None:
    """Refuse a language whose sentences cannot be split; empty is none.

    Raises:
        BadInput: There is no such language.
    """
    remedy = f"Known are {', '.join(NAMES)}. Leave it out to have the language recognised."
    require(not language or language in NAMES, f"{field} must be a known language", given=language,
            remedy=remedy)  # fmt: skip


def script_language(text: str) -> str:
    """The commonest language of the script that most letters of a text have; empty for Latin letters."""
    if text.isascii():
        return ""
    counts = {code: len(letters.findall(text)) for code, letters in _SCRIPTS.items()}
    counts["ja"] += counts["zh"] if counts["ja"] * 20 > counts["zh"] else 0
    return max(counts, key=lambda code: counts[code])


def recognised(texts: Iterable[str]) -> str:
    """The ISO 639-1 code of the first texts' language, by script and commonest words; empty if not known."""
    text = " ".join(each[:_CHARACTERS] for each in islice(texts, _TEXTS)).lower()
    code = script_language(text)
    if code:
        others = _BY_LETTER.get(code, {})
        return next((other for other, letters in others.items() if re.search(letters, text)), code)
    words = _WORD.findall(text)
    counts = {code: sum(word in common for word in words) for code, common in _STOP_WORDS.items()}
    first, second = sorted(counts, key=lambda code: -counts[code])[:2]
    several = len(_STOP_WORDS[first].intersection(words)) > 1
    clear = several and counts[first] > max(counts[second], _LEAST * len(words))
    return first if clear else ""
