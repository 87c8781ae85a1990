"""The papers' tables and figures, row by row: what each row trains with, and the place that says so.

Written from the texts, not from the files. Names are paths of fields; `values` are hyper-parameters. A row is
laid over what the rows of its paper share; SMALL is what a paper's smoke test has instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Fields = Mapping[str, Any]
DATA = "/data"


@dataclass(frozen=True)
class Table:
    """What an experiment file must say.

    Attributes:
        shared: What every row has.
        rows: What a row has instead.
        small: What every row of the small scale has instead.
        small_rows: The rows of the small scale, and what they have instead; None for all rows without more.
        best: Lines below the rows.
        search: The search space.
    """

    shared: Fields
    rows: Mapping[str, Fields] = field(default_factory=dict)
    small: Fields = field(default_factory=dict)
    small_rows: Mapping[str, Fields] | None = None
    best: tuple[tuple[str, tuple[str, ...], str, str], ...] = ()
    search: Fields = field(default_factory=dict)


def only(rows: Mapping[str, Fields], *names: str) -> dict[str, Fields]:
    """Rows of the small scale, without further changes."""
    return {row: {} for row in rows if any(name in row for name in names)}


# IBKD, ACL Findings 2023.

SMALL_TEACHER: Fields = {"teacher.name": "all-MiniLM-L6-v2", "teacher.pooling": ""}
SMALL_STUDENT: Fields = {"student.checkpoint": "", "student.layers": "every-other", "student.keep": 3}
SMALL_QUERIES: Fields = {
    "collection.dev_queries": 100,
    "collection.dev_passages": 300,
    "collection.test_queries": 100,
    "collection.test_passages": 300,
}
SMALL_TEXT: Fields = {
    **SMALL_TEACHER,
    **SMALL_STUDENT,
    **SMALL_QUERIES,
    "sentences.corpus": "pydocs",
    "sentences.count": 2048,
    "sentences.held_out": 200,
    "pairs.path": "",
    "pairs.count": 1024,
    "budget.epochs": 1,
    "budget.finetune_epochs": 0.5,
    "budget.evaluations": 1,
    "selection.by": "",
    "selection.data_root": "",
    "max_length": 48,
}
STS: Fields = {
    "method": "ibkd",
    "teacher.name": "princeton-nlp/sup-simcse-roberta-large",  # section 4.1, footnote 4
    "teacher.pooling": "pooler",  # SimCSE's own
    "student.checkpoint": "nreimers/TinyBERT_L-4_H-312_v2",  # section 4.1, footnote 2
    "student.layers": "first",
    "student.keep": 4,  # all of them
    "student.dropout": -1,  # the checkpoint's
    "sentences.corpus": f"{DATA}/nli/sentences.txt",  # section 4.3
    "sentences.count": 0,  # A.1: all 1,196,755
    "pairs.path": f"{DATA}/nli/train.jsonl",  # section 4.3: entailments and contradictions
    "pairs.count": 0,
    "budget.epochs": 10,  # Table 1
    "budget.finetune_epochs": 3,  # Table 1
    "budget.evaluations": 20,  # not printed
    "selection.by": "stsb",  # A.2
    "selection.data_root": DATA,
    "max_length": 128,  # the code
}
SMALL_STS: Fields = {
    **SMALL_TEXT,
    "pairs.negatives": 1,
    "collection.path": "",
    "collection.dev": "dev",
    "collection.test": "test",
    "collection.metric": "",
    "collection.dev_pool": 0,
}
DR: Fields = {
    **STS,
    "teacher.name": "Luyu/co-condenser-marco-retriever",  # section 4.1, footnote 5
    "teacher.pooling": "cls",
    "sentences.corpus": f"{DATA}/msmarco",  # section 4.3: all passages and training queries
    "pairs.path": f"{DATA}/msmarco",
    "pairs.negatives": 8,  # section 4.3
    "pairs.mining.range_max": 200,  # not printed
    "collection.path": f"{DATA}/msmarco",  # section 4.2
    "collection.dev": "dev.small",
    "collection.test": "dev.small",
    "collection.metric": "mrr@10",  # section 4.2
    "collection.dev_pool": 100_000,
    "budget.epochs": 3,  # Table 1
    "budget.evaluations": 6,
    "selection.by": "",
    "selection.data_root": "",
}
SMALL_DR: Fields = {**SMALL_STS, "pairs.negatives": 2, "pairs.mining.range_max": 100}
MINILM: Fields = {"student.checkpoint": "nreimers/MiniLM-L6-H384-uncased", "student.keep": 6}  # footnote 3
BEFORE: Fields = {"budget.finetune": 0}  # section 4.2: without the suffix "ft", the first stage alone
ADAM: Fields = {"values.optimizer": "adam", "values.weight_decay": 0.0}  # section 4.3
OWN_K: Fields = {"values.finetune_share_negatives": False}  # eq. 10
NO_HSIC: Fields = {"values.beta1": 0, "values.beta2": 0}  # Table 4: CKD is β = 0

MSE_STS: Fields = {
    "method": "mse",
    "values.learning_rate": 1e-4,
    "values.batch_size": 256,
    **BEFORE,
}  # Table 1
HPD_FT_STS: Fields = {
    "method": "hpd",
    **ADAM,
    **OWN_K,
    "values.finetune_learning_rate": 3e-5,  # Table 1
    "values.finetune_batch_size": 256,  # Table 1
}
HPD: Fields = {"method": "hpd", **ADAM, **BEFORE}
MSE_DR: Fields = {**MSE_STS, "values.batch_size": 128}  # Table 1, DR
HPD_DR: Fields = {**HPD, "values.batch_size": 128}
HPD_FT_DR: Fields = {
    "method": "hpd",
    **ADAM,
    **OWN_K,
    "values.batch_size": 128,  # Table 1, DR
    "values.finetune_learning_rate": 1e-5,  # Table 1, DR
}
RETRIEVAL: Fields = {"preset": "dense_retrieval"}
W_128: Fields = {"values.projection": 128}  # eq. 11

STS_ROWS: dict[str, Fields] = {
    "simcse": {"method": "simcse"},
    "mse": MSE_STS,
    "hpd": HPD,
    "hpd_ft": HPD_FT_STS,
    "crd": {"method": "crd", **BEFORE},
    "ibkd": BEFORE,
    "ibkd_ft": {},
    "ibkd_128": W_128,
}
DR_ROWS: dict[str, Fields] = {
    "sup": {"method": "simcse", "values.learning_rate": 1e-5, "values.batch_size": 128},
    "mse": MSE_DR,
    "crd": {"method": "crd", "values.batch_size": 128, **BEFORE},
    "hpd": HPD_DR,
    "hpd_ft": HPD_FT_DR,
    "ibkd": {**RETRIEVAL, **BEFORE},
    "ibkd_ft": RETRIEVAL,
    "ibkd_128": {**RETRIEVAL, **W_128},
}


def of_both(rows: Mapping[str, Fields]) -> dict[str, Fields]:
    """The rows of both students."""
    tinybert = {f"tinybert_{row}": fields for row, fields in rows.items()}
    return tinybert | {f"minilm_{row}": {**MINILM, **fields} for row, fields in rows.items()}


def some(rows: Mapping[str, Fields], *names: str) -> dict[str, Fields]:
    """Some of the rows, in the order of the table."""
    return {name: rows[name] for name in names}


IBKD = {
    "ibkd_table2": Table(STS, of_both(STS_ROWS), SMALL_STS, only(of_both(STS_ROWS), "tinybert")),
    "ibkd_table3": Table(DR, of_both(DR_ROWS), SMALL_DR, only(of_both(DR_ROWS), "tinybert")),
    "ibkd_table4": Table(
        STS,
        {
            "rbf": {},  # section 4.3: the kernel of all other tables
            "ckd": NO_HSIC,
            "imq": {"values.kernel": "imq"},
            "linear": {"values.kernel": "linear"},
        },
        SMALL_STS,
        search={"space.kernel": ["rbf", "imq", "linear"], "first.kernel": "rbf"},
    ),
    "ibkd_table5": Table(STS, {}, SMALL_STS),  # the space is that of the method, held by test_presets_ibkd
    "ibkd_table6": Table(
        {**STS, "teacher.name": "princeton-nlp/sup-simcse-bert-large-uncased"},  # A.3
        some(STS_ROWS, "hpd", "hpd_ft", "ibkd", "ibkd_ft"),
        SMALL_STS,
    ),
    "ibkd_table7": Table(
        {**DR, "teacher.name": "Shitao/RetroMAE_MSMARCO_distill"},  # A.3
        {**some(DR_ROWS, "hpd", "hpd_ft", "ibkd"), "ibkd_ft": DR_ROWS["ibkd_128"]},
        SMALL_DR,
    ),
    "ibkd_figure3": Table(
        STS,
        {f"distil_beta1_{beta}": {"values.beta1": beta, **BEFORE} for beta in (0.0, 0.1, 0.5, 1.0, 2.0)}
        | {f"finetune_beta2_{beta}": {"values.beta2": beta} for beta in (0.0, 0.1, 0.5, 1.0, 2.0)},
        SMALL_STS,
    ),
    "ibkd_figure4": Table(STS, {"ckd": NO_HSIC, "ibkd": {}}, SMALL_STS),
    "ibkd_figure5": Table(STS, some(STS_ROWS, "simcse", "mse", "hpd", "crd", "ibkd", "ibkd_ft"), SMALL_STS),
}

# DistilCSE.

CSE: Fields = {
    "method": "ckd",
    "teacher.name": "princeton-nlp/sup-simcse-roberta-large",  # section 4.1
    "teacher.pooling": "pooler",
    "student.checkpoint": "nreimers/TinyBERT_L-4_H-312_v2",  # Table 1: 14 M
    "student.layers": "first",
    "student.keep": 4,
    "student.dropout": -1,
    "sentences.corpus": f"{DATA}/news/sentences.txt",  # section 4.1: News-5m
    "sentences.count": 0,
    "pairs.path": f"{DATA}/nli/train.jsonl",  # section 4.1: NLI
    "pairs.count": 0,
    "pairs.negatives": 1,  # section 4.1: a contradiction
    "budget.epochs": 20,  # section 4.2
    "budget.finetune_epochs": 5,  # section 4.2
    "budget.every": 125,  # section 4.2
    "budget.patience": 234,  # section 4.2: 3 epochs of 5,000,000 / 512 steps
    "budget.finetune_patience": 0,
    "selection.by": "stsb",  # section 4.2
    "selection.data_root": DATA,
    "max_length": 32,  # SimCSE's code
}
SMALL_CSE: Fields = {**SMALL_TEXT, "budget.every": 0, "budget.patience": 0}
SIZES: dict[str, Fields] = {  # Table 1, section 4.2
    "110m": {
        "student.checkpoint": "google-bert/bert-base-uncased",
        "student.keep": 12,
        "preset": "paper_110m",
    },
    "52m": {
        "student.checkpoint": "nreimers/TinyBERT_L-6_H-768_v2",
        "student.keep": 6,
        "preset": "paper_52m",
    },
    "14m": {},
}
HEAD: Fields = {"values.text": "unlabelled", "values.head_epochs": 5}  # ours: as long as stage 2
KD: dict[str, Fields] = {
    "kd": {"method": "mse"},
    "pkd": {"method": "pkd"},
    "metakd": {"method": "metakd"},
    "ckd": {"method": "ckd"},
}
CSE_2 = {
    f"{size}_stage{stage}_{row}": {
        **fields,
        **method,
        **(HEAD if row == "metakd" else {}),
        **({"budget.finetune": 0} if stage == 1 else {}),
    }
    for size, fields in SIZES.items()
    for stage in (1, 2)
    for row, method in KD.items()
}
FIGURE_2 = {f"{size}_{row}": {**fields, **KD[row]} for size, fields in SIZES.items() for row in ("kd", "ckd")}
CSE_3: dict[str, Fields] = {
    "110m_pretrained": SIZES["110m"],
    "110m_simcse": {**SIZES["110m"], "student.checkpoint": "princeton-nlp/sup-simcse-bert-base-uncased"},
    "52m_pretrained": SIZES["52m"],
    "52m_simcse": {**SIZES["52m"], "student.checkpoint": f"{DATA}/models/simcse-tiny-l6"},
    "14m_pretrained": {},
    "14m_simcse": {"student.checkpoint": f"{DATA}/models/simcse-tiny-l4"},
}
CSE_4 = {
    f"{size}_{row}": {
        **fields,
        **KD[row],
        **({"budget.patience": 13} if row == "metakd" else {}),  # 3 epochs of 275,601 / 512 steps
    }
    for size, fields in SIZES.items()
    for row in ("kd", "pkd", "metakd")
}
EXAMPLES: Fields = {"budget.epochs": None, "budget.distil": 1024, "budget.patience": 0}
DISTILCSE = {
    "distilcse_table2": Table(
        CSE,
        CSE_2,
        SMALL_CSE,
        only(CSE_2, "14m")
        | {name: {"values.head_epochs": 0.5} for name in ("14m_stage1_metakd", "14m_stage2_metakd")},
    ),
    "distilcse_table3": Table(
        CSE,
        CSE_3,
        SMALL_CSE,
        {"14m_pretrained": {}, "14m_simcse": {"student.checkpoint": "", "student.layers": "first"}},
    ),
    "distilcse_table4": Table(
        {
            **CSE,
            "method": "mse",
            "sentences.corpus": f"{DATA}/nli/sentences.txt",  # appendix A: on NLI
            "budget.finetune": 0,
            "budget.patience": 39,  # 3 epochs of 3 · 275,601 / 512 steps
        },
        CSE_4,
        SMALL_CSE,
        {"14m_kd": {}, "14m_pkd": {}, "14m_metakd": {"budget.patience": 0}},
    ),
    "distilcse_table5": Table(
        CSE,
        {
            **SIZES,
            "52m_simcse": {"method": "simcse", **SIZES["52m"], "preset": "paper"},
            "14m_simcse": {"method": "simcse"},
        },
        SMALL_CSE,
        {"14m": {}, "14m_simcse": {}},
    ),
    "distilcse_figure2": Table(CSE, FIGURE_2, SMALL_CSE, only(FIGURE_2, "14m")),
    "distilcse_figure3": Table(
        {**CSE, **SIZES["110m"]},
        {
            f"{millions}m": {"sentences.count": millions * 1_000_000, "budget.patience": patience}
            for millions, patience in ((1, 47), (2, 94), (5, 234), (10, 469), (20, 938))  # 3 epochs
        },
        {**SMALL_CSE, "values.batch_size": 128},
        {
            f"{millions}m": {"sentences.count": count, **EXAMPLES}
            for millions, count in ((1, 256), (2, 512), (5, 1024), (10, 1536), (20, 2048))
        },
    ),
}

# Ding et al., NAACL Findings 2022.

LANGUAGES = ("ar", "de", "tr", "es", "fr", "it", "nl")  # Table 2


def corpora(name: str) -> str:
    """Translations of a corpus into the languages of STS2017 and its extension."""
    return ", ".join(f"{code}={DATA}/parallel/{name}.en-{code}.tsv" for code in LANGUAGES)


DING: Fields = {
    "method": "crosslingual",
    "teacher.name": "sentence-transformers/paraphrase-distilroberta-base-v1",  # section 4.3
    "student.checkpoint": "FacebookAI/xlm-roberta-base",  # section 4.2
    "student.dropout": -1,
    "parallel.corpora": corpora("all"),  # section 4.1: stages 1 to 3
    "parallel.contrast": corpora("ted2020"),  # section 4.1: stage 4
    "parallel.held_out": 1000,
    "budget.epochs": 20,  # section 4.2
    "budget.evaluations": 20,
    "values.contrast_epochs": 60,  # section 4.2
    "max_length": 128,  # section 4.2
}
SMALL_DING: Fields = {
    "teacher.name": "all-MiniLM-L6-v2",
    "student.checkpoint": "",
    "parallel.corpora": f"de={DATA}/parallel/anki/deu.txt,fr={DATA}/parallel/anki/fra.txt",
    "parallel.contrast": f"de={DATA}/parallel/anki/deu.txt",
    "parallel.count": 1500,
    "parallel.held_out": 200,
    "budget.epochs": 0.2,
    "budget.evaluations": 1,
    "max_length": 24,
    "values.contrast_epochs": 0.5,
    "values.unit": 2,
    "values.bottleneck": 32,
}
MULTILINGUAL_MINILM: Fields = {
    "teacher.name": "sentence-transformers/paraphrase-MiniLM-L12-v2",
    "student.checkpoint": "microsoft/Multilingual-MiniLM-L12-H384",  # section 4.2, footnote 2
}
NLI_TEACHER: Fields = {"teacher.name": "sentence-transformers/bert-base-nli-stsb-mean-tokens"}
MBERT: Fields = {"student.checkpoint": "google-bert/bert-base-multilingual-cased"}
WHOLE: Fields = {"values.recipe": "single", "values.unit": 12, "values.bottleneck": 0}


def shape(unit: int, bottleneck: int) -> dict[str, Any]:
    """|RU| and B of a student."""
    return {"values.unit": unit, "values.bottleneck": bottleneck}


def shapes(*of: tuple[str, int, int]) -> dict[str, Fields]:
    """The students of XLM-R and of MiniLM with each |RU| and B."""
    return {
        f"{model}_{name}": {**fields, **shape(unit, bottleneck)}
        for model, fields in (("xlmr", {}), ("minilm", MULTILINGUAL_MINILM))
        for name, unit, bottleneck in of
    }


CROSSLINGUAL = {
    "crosslingual_tables1_2": Table(
        DING,
        {
            "kd_mbert_nli": {**NLI_TEACHER, **MBERT, **WHOLE},
            "kd_xlmr_nli": {**NLI_TEACHER, **WHOLE},
            "kd_mbert": {**MBERT, **WHOLE},
            "kd_xlmr": WHOLE,
            "kd_minilm": {**MULTILINGUAL_MINILM, **WHOLE},
            **shapes(("b128_ru3", 3, 128), ("b128_ru12", 12, 128), ("ru3", 3, 0)),
        },
        SMALL_DING,
        {"xlmr_b128_ru3": shape(2, 32), "xlmr_b128_ru12": shape(6, 32), "xlmr_ru3": shape(2, 0)},
    ),
    "crosslingual_tables3_4": Table(
        DING,
        {
            "ours": {},
            "without_mcl": {"values.contrast": "none"},
            "without_recurrence": {"values.repeats": 1},
            "without_both": {"values.contrast": "none", "values.repeats": 1},
        },
        SMALL_DING,
    ),
    "crosslingual_table5": Table(
        {**DING, "budget.evaluations": 60},  # Figure 3: after each epoch
        {
            "teacher": {},  # eq. 5
            "bool": {"values.contrast": "same"},  # eq. 8
            "ce": {"values.contrast": "ce"},  # eq. 9
            "none": {"values.contrast": "none"},
        },
        SMALL_DING,
    ),
    "crosslingual_table6": Table(
        DING,
        {
            "single_random": {"values.recipe": "single"},
            "single_predistilled": {"values.recipe": "predistilled"},
            "multi": {},
        },
        SMALL_DING,
    ),
    "crosslingual_tables7_8": Table(
        DING,
        shapes(
            ("b128_ru3", 3, 128),
            ("b256_ru3", 3, 256),
            ("ru3", 3, 0),
            ("b128_ru6", 6, 128),
            ("b128_ru12", 12, 128),
        ),
        SMALL_DING,
        {
            "xlmr_b128_ru3": shape(2, 32),
            "xlmr_b256_ru3": shape(2, 64),
            "xlmr_ru3": shape(2, 0),
            "xlmr_b128_ru6": shape(3, 32),
            "xlmr_b128_ru12": shape(6, 32),
        },
    ),
    "crosslingual_figure1": Table(
        {**DING, "values.recipe": "single", "values.bottleneck": 0, "values.repeats": 1},
        {f"layers_{depth}": {"values.unit": depth} for depth in (1, 3, 6, 9, 12)},
        {**SMALL_DING, "values.bottleneck": 0},
        {
            f"layers_{depth}": {"values.unit": unit}
            for depth, unit in ((1, 1), (3, 2), (6, 3), (9, 4), (12, 6))
        },
    ),
}

# SRA, ACL 2020.

GLUE = {"sst2": "SST-2", "qqp": "QQP", "mnli": "MNLI", "mrpc": "MRPC"}  # section 4.1


def task(name: str) -> dict[str, Any]:
    """A task of GLUE."""
    return {"task.name": name, "task.root": f"{DATA}/glue/{GLUE[name]}"}


SRA: Fields = {
    "method": "sra",
    "teacher.name": "google-bert/bert-base-uncased",  # section 4.3: BERT-base
    "teacher.pooling": "cls",  # section 3.1
    "sentences.corpus": f"{DATA}/wikipedia/sentences.txt",  # section 4.1
    "sentences.count": 4_000_000,  # Table 4
    **task("sst2"),
    "words.vectors": f"{DATA}/vectors/glove.840B.300d.txt",  # section 4.3
    "budget.epochs": 10,  # not printed
    "budget.finetune_epochs": 10,  # not printed
    "budget.evaluations": 10,
    "max_length": 64,
}
SMALL_SRA: Fields = {
    **SMALL_TEACHER,
    "sentences.corpus": f"{DATA}/corpus/enwikinews/*.jsonl",
    "sentences.column": "text",
    "sentences.split": True,
    "sentences.count": 4000,
    "sentences.held_out": 300,
    "task.name": "qqp",
    "task.root": f"{DATA}/glue/QQP_olora",
    "words.vectors": f"{DATA}/vectors/glove-50d-5k.json",
    "budget.epochs": 2,
    "budget.finetune_epochs": 1,
    "budget.evaluations": 1,
    "max_length": 32,
    "values.hidden": 64,
}
PLAIN: Fields = {"method": "bilstm_kd", "values.kd_weight": 0}
OF_BERT: Fields = {"method": "bilstm_kd"}
TS: Fields = {"values.augment": "ts", "task.wordnet": f"{DATA}/wordnet"}
SRA_ROWS: dict[str, Fields] = {  # Table 1, rows 3 and 10 to 14
    "bilstm": PLAIN,
    "kd": OF_BERT,
    "sra": {},
    "sra_kd": {"method": "sra_kd"},
    "kd_ts": {**OF_BERT, **TS},
    "sra_kd_ts": {"method": "sra_kd", **TS},
}
TRANSFER: dict[str, Fields] = {  # section 4.3: SST-2 and MRPC stop at 800,000, the default
    "sst2": {},
    "qqp": {"task.rows": 0},
    "mnli": {"task.rows": 0},
    "mrpc": {"task.copies": 400},
}
RATES = {"2e-4": 2e-4, "3e-4": 3e-4, "5e-4": 5e-4, "1e-3": 1e-3}  # section 4.3


def rate_of(row: str, rate: float) -> dict[str, Any]:
    """The rate of the last stage."""
    name = "learning_rate" if row in ("bilstm", "kd", "kd_ts") else "finetune_learning_rate"
    return {f"values.{name}": rate}


SRA_1 = {
    f"{name}_{row}_{label}": {
        **task(name),
        **fields,
        **(TRANSFER[name] if row.endswith("_ts") else {}),
        **rate_of(row, rate),
    }
    for name in GLUE
    for row, fields in SRA_ROWS.items()
    for label, rate in RATES.items()
}
SRA_4: dict[str, Fields] = {
    "sst2_0m": PLAIN,
    **{f"sst2_{millions}m": {"sentences.count": millions * 1_000_000} for millions in (1, 2, 4)},
    "mnli_0m": {**PLAIN, **task("mnli")},
    **{
        f"mnli_{millions}m": {"sentences.count": millions * 1_000_000, **task("mnli")}
        for millions in (1, 2, 4)
    },
}
SHARES = {"20": 0.2, "30": 0.3, "50": 0.5, "100": None}
OLORA: Fields = {"task.root": f"{DATA}/glue/QQP_olora"}
SRA_TABLES = {
    "sra_table1": Table(
        SRA,
        SRA_1,
        SMALL_SRA,
        {f"qqp_{row}_5e-4": {**OLORA, **({"task.copies": 2} if "ts" in row else {})} for row in SRA_ROWS},
        best=tuple(
            (f"{name}_{row}", tuple(f"{name}_{row}_{rate}" for rate in RATES), f"{name}_accuracy", "")
            for name in GLUE
            for row in SRA_ROWS
        ),
    ),
    "sra_table2": Table({**SRA, **task("qqp")}, {"kd": OF_BERT, "sra": {}}, SMALL_SRA),
    "sra_table3": Table(
        {**SRA, "budget.fraction_of": "labels"},
        {
            f"{row}_{share}": {**fields, **({} if fraction is None else {"budget.fraction": fraction})}
            for row, fields in (("bilstm", PLAIN), ("kd", OF_BERT), ("sra", {}))
            for share, fraction in SHARES.items()
        },
        SMALL_SRA,
    ),
    "sra_table4": Table(
        {**SRA, "selection.heldout_loss": True},  # its last column
        SRA_4,
        {**SMALL_SRA, "budget.epochs": 8},
        {
            "sst2_0m": {},
            **{
                f"sst2_{millions}m": {"sentences.count": 500 * millions, "values.distil_batch_size": 128}
                for millions in (1, 2, 4)
            },
        },
    ),
    "sra_table5": Table(
        {**SRA, **task("qqp")},
        {"kd": {**OF_BERT, "values.fits": "cosines"}, "sra": {"budget.finetune": 0}},
        SMALL_SRA,
    ),
    "sra_figure2": Table(
        {**SRA, **task("qqp"), "budget.evaluations": 20},
        {
            "bilstm_100": PLAIN,
            "sra_30": {"budget.fraction": 0.3, "budget.fraction_of": "labels"},
            "sra_100": {},
        },
        {**SMALL_SRA, "budget.evaluations": 4},
    ),
}

# Shakeri et al.

FEVER: Fields = {
    "method": "retrieval_kd",
    "values.encoder": "lstm",  # section 3.2: SimpleLSTM
    "claims.path": f"{DATA}/fever",  # section 2.1
    "claims.candidates": 10,  # section 2.1
    "claims.ngrams": 2,  # DrQA's
    "claims.split_by": "claim",  # section 2.1
    "claims.dev": 20_000,  # section 2.1
    "claims.test": 10_000,  # section 2.1
    "words.vectors": f"{DATA}/vectors/glove.840B.300d.txt",  # not printed
    "budget.epochs": 10,  # not printed
    "budget.evaluations": 10,
    "max_length": 128,
}
SMALL_FEVER: Fields = {
    "teacher.name": "all-MiniLM-L6-v2",
    "claims.ngrams": 1,
    "claims.dev": 200,
    "claims.test": 100,
    "words.vectors": f"{DATA}/vectors/glove-50d-5k.json",
    "budget.epochs": 0.25,
    "budget.evaluations": 1,
    "max_length": 32,
    "values.teacher_units": 16,
    "values.units": 16,
}
CNN: Fields = {"values.encoder": "cnn"}
ALONE: Fields = {"values.alpha": 0}


def soft(loss: str, *of: tuple[float, int]) -> dict[str, Fields]:
    """Rows of a soft loss with the printed α and T."""
    return {
        f"{loss}_{alpha}_{temperature}": {
            "values.soft_loss": loss,
            "values.alpha": alpha,
            "values.temperature": temperature,
        }
        for alpha, temperature in of
    }


TABLE_3 = {
    "no_teacher": ALONE,
    **soft("mse", (1.0, 4), (0.2, 3), (0.65, 4)),
    **soft("ce", (0.2, 3), (0.5, 6), (0.4, 5)),
}
TABLE_4 = {
    "no_teacher": ALONE,
    **soft("mse", (0.8, 6), (1.0, 1), (0.8, 2)),
    **soft("ce", (0.5, 3), (0.65, 1), (0.3, 2)),
}
TABLE_6 = {"no_teacher": ALONE, **soft("ce", (1.0, 3)), **soft("mse", (0.65, 5))}
TABLE_7 = {"no_teacher": ALONE, **soft("ce", (1.0, 2)), **soft("mse", (0.3, 6))}


def averages(
    rows: Mapping[str, Fields], letter: str = ""
) -> tuple[tuple[str, tuple[str, ...], str, str], ...]:
    """The lines of Table 5: the best row's lead, and the means of each loss."""
    losses = [f"{letter}{row}" for row in rows if row != "no_teacher"]
    return (
        (f"{letter}best_diff", tuple(losses), "fever_dcg", f"{letter}no_teacher"),
        *(
            (f"{letter}{loss}_avg", tuple(row for row in losses if f"{loss}_" in row), "", "")
            for loss in ("mse", "ce")
        ),
    )


def grid(loss: str, alpha: float, temperature: int) -> Fields:
    """The losses, α and T of Tables 3, 4, 6 and 7; the best row comes first."""
    return {
        "space.soft_loss": ["mse", "ce"],
        "space.alpha": [0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0],
        "space.temperature": [1, 2, 3, 4, 5, 6],
        "first.soft_loss": loss,
        "first.alpha": alpha,
        "first.temperature": temperature,
    }


RETRIEVAL_KD = {
    "retrieval_kd_table1": Table({**FEVER, **ALONE}, {}, SMALL_FEVER),
    "retrieval_kd_table2": Table(
        FEVER,
        {
            "dcn": {},  # section 3.1
            "transformer": {
                "teacher.name": "google-bert/bert-base-uncased",
                "student.layers": "first",
                "student.keep": 12,
                "student.dropout": -1,
                "values.teacher_model": "transformer",
            },
        },
        SMALL_FEVER,
        {"dcn": {}, "transformer": {"teacher.name": "all-MiniLM-L6-v2", "student.keep": 2}},
    ),
    "retrieval_kd_table3": Table(
        FEVER, TABLE_3, SMALL_FEVER, best=averages(TABLE_3), search=grid("mse", 0.2, 3)
    ),
    "retrieval_kd_table4": Table(
        {**FEVER, **CNN}, TABLE_4, SMALL_FEVER, best=averages(TABLE_4), search=grid("ce", 0.5, 3)
    ),
    "retrieval_kd_table5": Table(
        FEVER,
        {f"a_{row}": fields for row, fields in TABLE_3.items()}
        | {f"b_{row}": {**CNN, **fields} for row, fields in TABLE_4.items()},
        SMALL_FEVER,
        best=(*averages(TABLE_3, "a_"), *averages(TABLE_4, "b_")),
    ),
    "retrieval_kd_table6": Table(
        {**FEVER, "budget.fraction": 0.1}, TABLE_6, {**SMALL_FEVER, "values.batch_size": 8}
    ),
    "retrieval_kd_table7": Table(
        {**FEVER, "budget.fraction": 0.03}, TABLE_7, {**SMALL_FEVER, "values.batch_size": 8}
    ),
    "retrieval_kd_table8": Table(FEVER, {"lstm": {}}, SMALL_FEVER),  # the teacher is its first stage
}

TABLES: dict[str, Table] = {**IBKD, **DISTILCSE, **CROSSLINGUAL, **SRA_TABLES, **RETRIEVAL_KD}

PASSES: dict[str, dict[str, float]] = {
    "ibkd_table": {"simcse": 3, "finetune": 3, "": 10},  # Table 1, STS
    "ibkd_figure": {"simcse": 3, "finetune": 3, "": 10},
    "ibkd_table3": {"": 3},  # Table 1, DR
    "ibkd_table7": {"": 3},
    "distilcse": {"simcse": 5, "finetune": 5, "metakd": 5, "": 20},  # section 4.2
    "distilcse_table4": {"": 20},
    "crosslingual": {"contrast": 60, "": 20},  # section 4.2
    "sra": {"": 10},  # ours
    "retrieval_kd": {"": 10},  # ours
}
"""Passes of a stage over its own rows, by stage and by the beginning of a file's name; the longest counts."""
