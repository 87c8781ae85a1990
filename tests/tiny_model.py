"""A random BERT that is cheap to run, as a sentence-transformers folder, for tests and the fault suite."""

import string
from pathlib import Path

LAYERS, HIDDEN = 4, 32

WORDS = """
the a an of to in is are was be and or not for with on by from as at it its this that these those if then
else when which where what how one two three first last next same other each every all any some no new
old small large return returns value values name names type types number numbers array arrays list lists
text texts word words sentence sentences model models vector vectors matrix row rows column columns data
set sets file files path index function method class object string integer float bool true false none
default given input output size shape length width height axis order sort search find query queries
passage passages document documents answer teacher student train trained test layer layers loss rate step
steps batch mean sum max min random seed cat dog sat mat house river water sun moon red green blue fast
slow computes compute create creates read write load save
""".split()


def _vocabulary() -> list[str]:
    characters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = [*characters, *(f"##{c}" for c in string.ascii_lowercase + string.digits)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return list(dict.fromkeys([*special, *pieces, *WORDS]))


def write_tiny_model(folder: Path) -> Path:
    """Write a sentence-transformers folder with a random BERT: 4 layers, hidden 32, mean pooling."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    vocabulary = _vocabulary()
    word_ids = {word: row for row, word in enumerate(vocabulary)}
    tokenizer = BertTokenizer(vocab=word_ids, model_max_length=128, do_lower_case=True)
    tokenizer.save_pretrained(folder / "bert")
    configuration = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        initializer_range=0.2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertModel(configuration).save_pretrained(folder / "bert")
    transformer = Transformer(str(folder / "bert"), max_seq_length=128)
    modules = [transformer, Pooling(HIDDEN, pooling_mode="mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"), create_model_card=False)
    return folder / "model"
