"""An experiment: everything beside the hyper-parameters, from one flat set of options to a `Setting`."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.experiments.student_kinds import check_kind
from stillhouse.plan.mining_rule import MINING_RULE, check_mining

SELECTS = {
    "search": "docsearch_cosine_mrr@10",
    "agreement": "agreement_spearman_cosine",
    "stsb": "sts_stsb_spearman_cosine",
}
"""What may pick a checkpoint, and the dev figure that it is."""

FRACTION_OF = ("all", "sentences", "labels")


@dataclass(frozen=True)
class Experiment:
    """What all trials share, as a user writes it: in a search-space file, or as flags.

    Attributes:
        teacher: Name or path of the large model.
        corpus: ``pydocs``, a file, a folder, a glob, a URL, or ``hf:name[:config][:split]``.
        column: The column of the texts, where the corpus has columns; empty takes the usual one.
        split_sentences: Split the texts of the corpus into sentences; WikiExtractor files always are.
        min_words: Shorter texts of the corpus are set aside.
        max_words: Longer texts of the corpus are set aside.
        deduplicate: Keep the first of equal texts.
        encoding: Of the corpus, where it is text.
        sentences: Unlabelled sentences to distil on; 0 takes all.
        augment_wordnet: Add copies of the sentences with words replaced by synonyms: a folder with the YAML
            files of Open English WordNet.
        augment_translators: Add copies of the sentences that were translated and translated back: two models,
            there and back, by name or path, with a comma between.
        augment_each: Copies of each sentence, of each of the two kinds.
        augment_probability: That a word with synonyms is replaced.
        labelled: Labelled text to fine-tune on: JSON lines, CSV, TSV, Parquet or ``hf:``, with the columns
            query and passage, and negatives or NLI labels; empty takes pydocs' own where that is the corpus.
        pairs: Labelled pairs to fine-tune on; 0 takes none, or all of ``labelled``.
        negatives: K, hard negatives a pair: those that come with it, else mined.
        mine_range_min: Skip so many of the nearest passages that the other rules of mining leave.
        mine_range_max: Look at so many of the nearest passages; 0 looks at all.
        mine_relative_margin: A mined negative's cosine is below the positive's by more than this share of it;
            negative lifts the rule.
        mine_absolute_margin: A mined negative's cosine is below the positive's by more than this; negative
            lifts the rule.
        mine_max_score: A mined negative's cosine is at most this.
        mine_min_score: A mined negative's cosine is at least this.
        mine_sampling: ``top`` takes the nearest of what the rules leave, ``random`` any.
        mine_seed: Of the random choice.
        mine_index: ``exact``, or an index of FAISS (see ``evaluate --index``) that finds ``range_max``.
        dev_queries: Queries (or claims, at most) of the dev split.
        dev_passages: Passages of the dev split.
        dev_pool: Random passages of a pool that dev queries search, beside the relevant ones and those near
            to a query by the teacher and by TF-IDF; 0 searches all dev passages.
        test_queries: Queries (or claims, at most) of the locked test split.
        test_passages: Passages of the locked test split.
        held_out: Sentences held out for the agreement with the teacher, for dev and for test each.
        student: Name or path of the checkpoint the student starts from; empty takes the teacher's own.
        student_kind: ``transformer`` (some of its layers), ``static`` (a table of token vectors and their
            mean), or ``recurrent`` (its first layers, tied and repeated to its depth).
        static_dim: Of a static student's table, by PCA of the checkpoint's; 0 keeps its dimension.
        static_start: A static student's table: ``words``, the checkpoint's word vectors, or ``contextless``,
            what it makes of each token alone.
        recurrent_unit: Layers that recur in a recurrent student.
        bottleneck: Dimension of a recurrent student's factorised word vectors; 0 leaves them whole.
        layers: ``first``, ``last``, ``every-other``, or a list of indices.
        keep: Layers to keep by such a rule; 0 keeps half.
        dropout: Of the student in training; negative takes its configuration's.
        max_length: Tokens a text.
        distil_budget: Examples of the distillation stage.
        finetune_budget: Examples of the fine-tuning stage.
        evaluations: Dev evaluations a stage.
        parallel: Sentences with their translations in the place of the corpus, ``LANGUAGE=CORPUS`` separated
            by commas: two tab-separated columns, a folder with ``*.en`` beside ``*.LANGUAGE``, or ``hf:``.
        parallel_pairs: Pairs of each language; 0 takes all.
        words: Word vectors for a student that reads them: a file such as GloVe's, or ``count`` for random
            ones of the words of the texts; empty takes these where there is a task.
        task: Labels to fine-tune on: ``sst2``, ``qqp``, ``mnli``, ``mrpc`` or ``rte``.
        task_root: Folder with the files of the task.
        claims: Folder of FEVER: claims in the place of the corpus, each with candidate documents.
        candidates: C, the documents a claim that are nearest by TF-IDF; of ``--suite fever`` too.
        cross_encoder: Name or path of a published cross-encoder that may teach; one label.
        wordnet: Folder with the YAML files of Open English WordNet, by which the rows of the task are varied
            for ``augment=ts``.
        augment_copies: Tries to vary a row of the task.
        augment_rows: Rows of the task, varied ones included, after which no more are made; 0 is no limit.
        fraction: Share of the training rows; a smaller one is part of a larger. Budgets stay as they are.
        fraction_of: What it is a share of: ``sentences`` (or translations, or claims), ``labels`` (pairs, or
            a task's rows), or ``all``.
        patience: Evaluations without a better dev figure before a stage ends; 0 never ends it.
        compute: ``auto``, ``float32`` or ``bfloat16``: precision of teacher and training.
        data_root: Folder with the published STS sets; empty leaves STS out.
        select: What picks checkpoints and trials on the dev split: ``search``, ``agreement`` or ``stsb``;
            empty takes search where the corpus has queries, else agreement.
        seed: Of training and of the search; which texts are chosen does not depend on it.
    """

    teacher: str = "all-MiniLM-L6-v2"
    corpus: str = "pydocs"
    column: str = ""
    split_sentences: bool = False
    min_words: int = 1
    max_words: int = 4000
    deduplicate: bool = True
    encoding: str = "utf-8"
    sentences: int = 20480
    augment_wordnet: str = ""
    augment_translators: str = ""
    augment_each: int = 1
    augment_probability: float = 0.3
    labelled: str = ""
    pairs: int = 2048
    negatives: int = 1
    mine_range_min: int = 0
    mine_range_max: int = 0
    mine_relative_margin: float = 0.05
    mine_absolute_margin: float = -1.0
    mine_max_score: float = 1.0
    mine_min_score: float = -1.0
    mine_sampling: str = "top"
    mine_seed: int = 0
    mine_index: str = "exact"
    dev_queries: int = 250
    dev_passages: int = 800
    dev_pool: int = 0
    test_queries: int = 600
    test_passages: int = 2000
    held_out: int = 1000
    student: str = ""
    student_kind: str = "transformer"
    static_dim: int = 0
    static_start: str = "words"
    recurrent_unit: int = 0
    bottleneck: int = 0
    layers: str | tuple[int, ...] = "every-other"
    keep: int = 0
    dropout: float = 0.0
    max_length: int = 64
    distil_budget: int = 8192
    finetune_budget: int = 768
    evaluations: int = 2
    parallel: str = ""
    parallel_pairs: int = 0
    words: str = ""
    task: str = ""
    task_root: str = ""
    claims: str = ""
    candidates: int = 10
    cross_encoder: str = ""
    wordnet: str = ""
    augment_copies: int = 20
    augment_rows: int = 800_000
    fraction: float = 1.0
    fraction_of: str = "all"
    patience: int = 0
    compute: str = "auto"
    data_root: str = ""
    select: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if isinstance(self.layers, list):
            object.__setattr__(self, "layers", tuple(self.layers))
        for name in (
            "sentences",
            "pairs",
            "negatives",
            "keep",
            "finetune_budget",
            "patience",
            "parallel_pairs",
            "augment_rows",
        ):
            value = getattr(self, name)
            require(value >= 0, f"{name} >= 0", **{name: value})
        for name in (
            *("dev_queries", "dev_passages", "held_out", "distil_budget", "evaluations", "max_length"),
            "augment_copies",
        ):
            value = getattr(self, name)
            require(value > 0, f"{name} > 0", **{name: value})
        require(
            bool(self.task) == bool(self.task_root),
            "a task is given with the folder of its files",
            task=self.task,
            task_root=self.task_root,
            remedy="Give --task and --task-root.",
        )
        require(
            not (self.parallel and (self.task or self.words)),
            "parallel text comes without a task or word vectors",
            parallel=self.parallel,
            task=self.task,
            words=self.words,
        )
        require(
            not (self.claims and (self.parallel or self.task or self.select)),
            "claims come without parallel text or a task, and select by their DCG",
            claims=self.claims,
            parallel=self.parallel,
            task=self.task,
            select=self.select,
        )
        require(self.candidates >= 2, "candidates >= 2", candidates=self.candidates)
        require(
            bool(self.task) or not self.wordnet,
            "rows are varied of a task",
            wordnet=self.wordnet,
            task=self.task,
            remedy="Give --task and --task-root.",
        )
        require(0 < self.fraction <= 1, "0 < fraction <= 1", fraction=self.fraction)
        require(
            self.fraction_of in FRACTION_OF, f"fraction_of in {FRACTION_OF}", fraction_of=self.fraction_of
        )
        require(
            self.compute in ("auto", "float32", "bfloat16"),
            "compute in (auto, float32, bfloat16)",
            compute=self.compute,
        )
        self._check_select()
        check_kind(self)
        self._check_augmentation()
        self._check_pool()
        check_mining(negatives=self.negatives, **self.mining_rule())
        if self.mine_index != "exact":
            from stillhouse.evaluation.search.indexes import parse_index

            parse_index(self.mine_index)

    def _check_select(self) -> None:
        require(self.select in ("", *SELECTS), f"select in {tuple(SELECTS)}", select=self.select)
        require(
            not (self.select in ("search", "agreement") and self.parallel),
            "parallel text selects by its translation accuracy, or by stsb",
            select=self.select,
            parallel=self.parallel,
            remedy="Leave --select out.",
        )
        require(
            self.select != "search" or self.corpus == "pydocs",
            "--select search goes with a corpus that has queries",
            corpus=self.corpus,
            remedy="Select by agreement, or by stsb with --data-root.",
        )

    def _check_pool(self) -> None:
        require(
            self.dev_pool == 0 or (self.corpus == "pydocs" and not self.parallel),
            "--dev-pool samples the dev passages of pydocs",
            dev_pool=self.dev_pool,
            corpus=self.parallel or self.corpus,
        )
        require(
            0 <= self.dev_pool < self.dev_passages,
            "0 <= dev_pool < dev_passages",
            dev_pool=self.dev_pool,
            dev_passages=self.dev_passages,
        )

    def share_of(self, rows: str) -> float:
        """The share of the ``sentences`` or of the ``labels``."""
        return self.fraction if self.fraction_of in (rows, "all") else 1.0

    def _check_augmentation(self) -> None:
        require(self.augment_each >= 1, "augment_each >= 1", augment_each=self.augment_each)
        chance = self.augment_probability
        require(0 < chance <= 1, "0 < augment_probability <= 1", augment_probability=chance)
        require(
            not (self.parallel and (self.augment_wordnet or self.augment_translators)),
            "parallel text is not augmented",
            parallel=self.parallel,
            remedy="Leave --augment-wordnet and --augment-translators out.",
        )

    def mining_rule(self) -> dict[str, Any]:
        """The fields of `Mined` that say which passages may be negatives."""
        return {name: getattr(self, f"mine_{name}") for name in MINING_RULE}


def experiment(values: dict[str, Any]) -> Experiment:
    """An experiment from names and values.

    Raises:
        BadInput: An unknown name (the near ones are listed), or a value of another type.
    """
    fields = {field.name: field for field in dataclasses.fields(Experiment)}
    for name, value in values.items():
        if name not in fields:
            raise BadInput(f"`{name}` is no option of an experiment. {nearest(name, list(fields))}")
        wanted = type(fields[name].default)
        fits = isinstance(value, wanted) or name == "layers" or (wanted is float and isinstance(value, int))
        require(fits, f"{name} is a {wanted.__name__}", **{name: value})
    return Experiment(**values)
