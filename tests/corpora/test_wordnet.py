"""WordNet's YAML files in miniature: synsets, quoted and folded members, tags and synonyms."""

import gzip
from pathlib import Path

import pytest

from stillhouse.core.errors import BadInput
from stillhouse.corpora.wordnet import Synset, WordNet, read_wordnet

NOUNS = """\
00000001-n:
  definition:
  - a number, or what members: may mean
  hypernym:
  - 00000009-n
  members:
  - 'no'
  - '''hood'
  - nay
  partOfSpeech: n
00000002-n:
  members:
  - dog
  - domestic
    dog
  - Canis familiaris
  partOfSpeech: n
00000003-n:
  members:
  - box
  - loge
  partOfSpeech: n
"""
VERBS = """\
00000004-v:
  members:
  - love
  partOfSpeech: v
00000005-v:
  members:
  - dog
  - chase
  partOfSpeech: v
00000006-v:
  example:
  - They chase
  members:
  - chase
  - run after
  partOfSpeech: v
"""


@pytest.fixture
def wordnet(tmp_path: Path) -> WordNet:
    (tmp_path / "noun.act.yaml").write_text(NOUNS)
    (tmp_path / "verb.motion.yaml.gz").write_bytes(gzip.compress(VERBS.encode()))
    (tmp_path / "entries-a.yaml").write_text("not a synset file\n")
    return read_wordnet(tmp_path)


def test_members_are_read_as_yaml(wordnet: WordNet) -> None:
    assert wordnet.synonyms("nay") == ("'hood", "no")
    assert wordnet.synonyms("Canis Familiaris") == ("dog", "domestic dog")
    assert wordnet.synonyms("DOG") == ("Canis familiaris", "chase", "domestic dog")
    assert wordnet.synonyms("unheard") == () == wordnet.synonyms("no"), "a word of a closed class has none"


def test_tag_is_the_part_of_speech_with_most_senses_plus_the_inflection(wordnet: WordNet) -> None:
    tags = {
        **{"Dog": "n", "chase": "v", "love": "v", "boxes": "n-s", "loved": "v-ed", "loving": "v-ing"},
        **{"dogs": "n-s", "chases": "v-s", "the": None, "no": None, "qwerty": None, ",": None},
    }
    assert dict(zip(tags, wordnet.tag(list(tags)), strict=True)) == tags


def test_a_satellite_adjective_is_an_adjective() -> None:
    assert WordNet([Synset("s", ("swift",)), Synset("a", ("quick",))]).tag(["swift", "quick"]) == ["a", "a"]


def test_bad_folders_and_synsets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="YAML"):
        read_wordnet(tmp_path)
    (tmp_path / "noun.act.yaml").write_text("00000001-n:\n  members:\n  - a\n")
    with pytest.raises(BadInput, match="00000001-n"):
        read_wordnet(tmp_path)
