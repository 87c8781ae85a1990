"""The deliberate mistakes, by what they break: of wiring, which no tool makes."""

from mutant import Mutant, mistakes  # type: ignore[import-not-found]

MUTANTS: list[Mutant] = [
    # What is held out stays out.
    *mistakes(
        "methods/rerank_kd.py",
        "sweeps/test_rerank_kd.py",
        (
            "trained_on = sample(pairs, 1 - hp.teacher_held_out)",
            "trained_on = sample(pairs, hp.teacher_held_out)",
            "the held-out share is trained on",
        ),
    ),
    *mistakes(
        "corpora/splits.py",
        "corpora/test_splits.py",
        (
            "(dev if bucket < edge else test if bucket < 2 * edge else train).take(text)",
            "(dev if bucket < edge else train).take(text)",
            "no text is held out for the test",
        ),
    ),
    *mistakes(
        "corpora/mixing.py",
        "corpora/test_mixing.py",
        ("check = barrier.checking(self.left_out)", "check = str", "queries are trained on"),
    ),
    *mistakes(
        "corpora/barrier.py",
        "experiments/test_barrier.py",
        (
            "for sentence in _sentences(text, language) if",
            "for sentence in () if",
            "only whole texts are compared",
        ),
    ),
    *mistakes(
        "corpora/tables.py",
        "corpora/test_restrict.py",
        ("name: value[kept] for name", "name: value for name", "rows with the values of others"),
    ),
    *mistakes(
        "corpora/candidates.py",
        "corpora/test_candidates.py",
        ("if not force_gold or not missing:", "if not missing:", "the misses of dev are hidden"),
    ),
    *mistakes(
        "experiments/claim_rows.py",
        "experiments/test_claim_data.py",
        ("force_gold=name in (TRAIN, ALL)", "force_gold=True", "the misses of dev and test are hidden"),
    ),
    *mistakes(
        "experiments/parallel_text.py",
        "sweeps/test_crosslingual.py",
        (
            "translation_measures(context.experiment.selection, data.dev, data.test)",
            "translation_measures(context.experiment.selection, data.test, data.dev)",
            "dev and test swapped",
        ),
    ),
    *mistakes(
        "evaluation/candidate_ranking.py",
        "sweeps/test_rerank_kd.py",
        (
            'np.setdiff1d(np.arange(len(rows["query"])), kept)',
            "kept",
            "a reranker measured on what it learnt",
        ),
    ),
    *mistakes(
        "evaluation/trained_claims.py",
        "experiments/test_claim_data.py",
        ("        if shared:\n", "        if shared == len(texts):\n", "some claims may be trained on"),
    ),
    *mistakes(
        "evaluation/suites.py",
        "evaluation/test_suites.py",
        ('evaluator.split != "dev":', 'evaluator.split == "dev":', "dev and test swapped"),
    ),
    *mistakes(
        "evaluation/senteval.py",
        "evaluation/test_senteval.py",
        (
            "predict_logistic(x_ND[outside], classifier) == labels_N[outside]",
            "predict_logistic(x_ND[inside], classifier) == labels_N[inside]",
            "measured on the training folds",
        ),
    ),
    *mistakes(
        "evaluation/classification.py",
        "evaluation/test_classification.py",
        ('return "test" if split == "test" else "dev"', 'return "dev"', "a test set may select"),
    ),
    *mistakes(
        "corpora/published/judged.py",
        "evaluation/test_judged_search.py",
        (" and entry.id not in judged.qrels[entry.id]:", ":", "a judged pair is dropped"),
        ('if wanted == "dev" else ()', 'if wanted == "dev" else ("train",)', "the train split is measured"),
    ),
    *mistakes(
        "training/negative_selection.py",
        "training/test_hard_negatives.py",
        (
            "cosine_QN[row[inside], column[inside] - start] = -torch.inf",
            "pass",
            "passages of the query are negatives",
        ),
    ),
    # Rows that are left out, and rows of others.
    *mistakes(
        "training/table.py",
        "training/test_training_table.py",
        ('places, side="right")', 'places, side="left")', "the row after a gap is the gap"),
        ("np.union1d(self._lacking, lacking)", "lacking", "rows that were left out come back"),
    ),
    *mistakes(
        "training/table.py",
        "training/test_batching.py",
        (
            "ids.places_of(store.starts) if isinstance",
            "store.starts if isinstance",
            "rows without a vector count as examples",
        ),
    ),
    *mistakes(
        "teachers/store.py",
        "teachers/test_store.py teachers/test_embedding.py",
        (
            "self._position(shard, here) if gaps else here",
            "here",
            "rows after a quarantined one are shifted",
        ),
    ),
    *mistakes(
        "training/table.py",
        "training/test_training_table.py",
        (
            "absent).reshape(len(kept), -1).any(axis=1)",
            "absent).reshape(len(kept), -1).all(axis=1)",
            "a row with a missing vector is kept",
        ),
        ("value[indices]) for name, value", "value[: len(indices)]) for name, value", "labels of other rows"),
    ),
    *mistakes(
        "teachers/store.py",
        "experiments/test_several_teachers.py::test_a_row_needs_a_vector_of_every_teacher",
        (
            "functools.reduce(np.intersect1d,",
            "functools.reduce(np.union1d,",
            "a row that one of the teachers lacks is trained on",
        ),
    ),
    *mistakes(
        "training/grouped.py",
        "training/test_grouped.py",
        (
            "[group.embedding_BD for group in groups])[back_B]",
            "[group.embedding_BD for group in groups])[order_B]",
            "vectors of other texts",
        ),
    ),
    # What is resumed, trusted or fetched.
    *mistakes(
        "training/fit.py",
        "training/test_fit.py",
        (
            'self.optimizer.load_state_dict(state["optimizer"])',
            'state["optimizer"]',
            "a resumed run has a fresh optimiser",
        ),
    ),
    *mistakes(
        "training/fit.py",
        "training/test_average.py training/test_fit.py",
        (
            '            self.average.restore(state["average"])\n',
            "            pass\n",
            "a new average on resume",
        ),
    ),
    *mistakes(
        "core/integrity.py",
        "core/test_artifacts.py core/test_integrity.py",
        (
            "    if not path.exists():\n        return False\n    try:",
            "    if not path.exists():\n        return folder.exists()\n    try:",
            "an unfinished folder is trusted",
        ),
        ("        if sha256_of(path) != expected:", "        if False:", "damaged files are read"),
    ),
    *mistakes(
        "training/checkpoint.py",
        "training/test_damage.py",
        (
            "            entry = archive.testzip()",
            "            entry = None",
            "training continues from a checkpoint whose bytes have changed",
        ),
    ),
    *mistakes(
        "core/remotes.py",
        "core/test_remotes.py",
        (
            "        self.put_all(found, files, key)\n        self.complete(files, key)",
            "        self.complete(files, key)\n        self.put_all(found, files, key)",
            "the manifest is published before the files",
        ),
        (
            "for name in sorted(left, key=lambda name: name == MANIFEST):",
            "for name in sorted(left):",
            "the manifest of a fetched artifact appears before its files",
        ),
    ),
    *mistakes(
        "search/study_backup.py",
        "search/test_study_backup.py",
        (
            'else "is missing" * backup.exists()',
            'else ""',
            "a lost study is begun anew",
        ),
    ),
    *mistakes(
        "search/searcher.py",
        "search/test_study_backup.py",
        (
            "        back_up_study(self._path)\n        del self._live[trial_id]",
            "        del self._live[trial_id]",
            "a finished trial is not backed up",
        ),
    ),
    # The student that is chosen.
    *mistakes(
        "sweeps/refit.py",
        "sweeps/test_refit.py",
        ("best_records(records)[:top]", "list(records)[:top]", "the first trials instead of the best"),
        (
            "best = max((trial, *refits), key",
            "best = max(refits or (trial,), key",
            "a refit that is worse than its trial is delivered",
        ),
    ),
    *mistakes(
        "search/searcher.py",
        "search/test_searcher.py",
        (
            '"maximize" if mode == "max" else "minimize"',
            '"minimize" if mode == "max" else "maximize"',
            "the worst is sought",
        ),
        (
            "self._seeded = [dict(point) for point in space.seeded]",
            "self._seeded: list[dict[str, Any]] = []",
            "the published point is not tried",
        ),
    ),
    *mistakes(
        "training/fit.py",
        "training/test_fit.py",
        (
            "chosen = self.progress.best[0][1] if self.progress.best else self.progress.step",
            "chosen = self.progress.step",
            "the last weights instead of the best",
        ),
    ),
    *mistakes(
        "training/progress.py",
        "training/test_fit.py",
        (
            "key=lambda kept: (-kept[0], kept[1])",
            "key=lambda kept: (kept[0], kept[1])",
            "the worst checkpoint is kept",
        ),
        ("figure > self.best[0][0]", "figure < self.best[0][0]", "patience with what gets worse"),
    ),
    *mistakes(
        "search/trial.py",
        "search/test_trial.py",
        (
            'metrics = manifest["metrics"]',
            'metrics = manifest["evaluations"][-1]["metrics"]',
            "the last figures, not those of the kept checkpoint",
        ),
    ),
    *mistakes(
        "search/records.py",
        "search/test_records.py",
        (
            "return sorted(finished, key=_rank, reverse=True)",
            "return sorted(finished, key=_rank)",
            "the worst trial is the champion",
        ),
        ("*(-value for value in second)", "*second", "the slowest of equals is the champion"),
    ),
    *mistakes(
        "training/module.py",
        "methods/test_golden_stages.py::test_the_four_stages",
        (
            "    if first_weights is not None:\n        load_weights(student, first_weights)",
            "    if first_weights is None:\n        pass",
            "a stage starts from the published weights",
        ),
    ),
    *mistakes(
        "sweeps/deliver.py",
        "sweeps/test_verdict.py",
        (
            "register_as if register_anyway or not verdict.worse_than else None",
            "register_as",
            "a student that is worse is registered",
        ),
    ),
    # The locked test.
    *mistakes(
        "sweeps/test_log.py",
        "sweeps/test_test_log.py",
        (
            "    with locked(lock_of_file(path)):\n        log",
            "    if True:\n        log",
            "two commands open the test for the first time",
        ),
    ),
    *mistakes(
        "values/stage.py",
        "cli/test_documents_by.py",
        (
            'if name != "documents"}',
            'if name != "nothing"}',
            "an opening of a test set is not counted where a teacher embeds its documents",
        ),
    ),
    # Secrets.
    *mistakes(
        "teachers/client.py",
        "teachers/test_endpoint.py",
        ("if error.code not in _REFUSED:", "if error.code:", "an answer repeats parts of a refused key"),
        ("build_opener(_NoRedirects)", "build_opener()", "another host is sent the key"),
        ("redacted(text.replace(key, HIDDEN) if key else text)", "text", "an answer repeats the key"),
    ),
    *mistakes(
        "corpora/reading/sources.py",
        "corpora/test_ingest.py",
        ("    name = redacted(name)\n", "", "a password becomes a folder's name"),
    ),
    *mistakes(
        "core/console.py",
        "core/test_redaction.py",
        (
            "        super().write(redacted(text))",
            "        super().write(text)",
            "what libraries print is logged as it is",
        ),
    ),
    *mistakes(
        "core/redaction.py",
        "core/test_redaction.py",
        (
            '        text = _IN_PATH.sub(rf"\\g<1>{HIDDEN}", text)\n',
            "",
            "a password behind the first slash is shown",
        ),
    ),
    *mistakes(
        "search/study_in_database.py",
        "search/test_study_in_database.py",
        ("list(takewhile(", "list(filter(", "a trial is added under another number"),
    ),
    # Gradients of several ranks.
    *mistakes(
        "objectives/parallel_sentences.py",
        "methods/test_two_ranks.py methods/test_golden_stages.py",
        (
            "(gather(widen(student[c].embedding_BD)) for c in",
            "(widen(student[c].embedding_BD).repeat(1, 1) for c in",
            "the contrast of the rank's own pairs",
        ),
    ),
    *mistakes(
        "objectives/alignment.py",
        "methods/test_two_ranks.py",
        (
            "gathered_BD = gather(widen(student_BD))",
            "gathered_BD = gather(widen(student_BD).detach())",
            "gathered without gradient",
        ),
    ),
    *mistakes(
        "objectives/classified.py",
        "methods/test_two_ranks.py",
        (
            "total = gather(local).sum().clamp(min=1)",
            "total = (local * world_size()).sum().clamp(min=1)",
            "labelled rows of the other ranks",
        ),
    ),
    *mistakes(
        "objectives/contrasts.py",
        "methods/test_two_ranks.py methods/test_golden.py",
        (
            'teacher_BE = gather(widen(teacher["text"].embedding_BD))\n',
            'teacher_BE = widen(teacher["text"].embedding_BD)\n',
            "the teacher is not gathered",
        ),
    ),
    *mistakes(
        "training/prefetch.py",
        "training/test_walk.py::test_two_processes_at_half_the_batch_equal_one",
        ("[:, rank()]", "[:, 0]", "all ranks read the same rows"),
    ),
    *mistakes(
        "core/distributed.py",
        "core/test_distributed.py",
        ("        dist.all_reduce(summed)\n", "", "the gradient of the own rank alone"),
        ("chunk(world_size())[rank()]", "chunk(world_size())[0]", "the gradient of rank 0's rows"),
    ),
    # The memory bank.
    *mistakes(
        "losses/contrastive.py",
        "losses/test_contrastive.py",
        (
            "return hidden_M | among(bank_rows_M, rows_B) if",
            "return hidden_M if",
            "an anchor's own text in the bank is a negative",
        ),
    ),
    *mistakes(
        "losses/memory_bank.py",
        "losses/test_memory.py",
        (
            "self.rows_M.masked_fill_(among(self.rows_M, rows_B), EMPTY)",
            "among(self.rows_M, rows_B)",
            "a text that is pushed again is held twice",
        ),
        (
            "(self.next_slot + batch) % self.size",
            "(self.next_slot + batch - 1) % self.size",
            "off by one slot",
        ),
    ),
    *mistakes(
        "objectives/contrasts.py",
        "methods/test_two_ranks.py methods/test_golden.py",
        (
            "if bank is not None and bank.training:",
            "if bank is not None and not bank.training:",
            "the bank stays empty",
        ),
    ),
    *mistakes(
        "training/soup.py",
        "training/test_soup.py",
        ("if name in trained", "if name", "a memory bank is averaged"),
    ),
    # The order of the rows.
    *mistakes(
        "training/sampler.py",
        "training/test_sampler.py",
        (
            "within = np.random.default_rng((self.seed, epoch, window))",
            "within = np.random.default_rng((self.seed, window))",
            "every epoch has one order",
        ),
        (
            "np.random.default_rng((self.seed, epoch)).permutation(whole)",
            "np.random.default_rng(epoch).permutation(whole)",
            "the seed is not used",
        ),
        (
            "shards = np.random.default_rng((self.seed, epoch)).permutation(len(self._runs_S2))",
            "shards = np.random.default_rng((self.seed, 0)).permutation(len(self._runs_S2))",
            "every epoch reads the shards in one order",
        ),
    ),
    *mistakes(
        "training/batching.py",
        "training/test_batching.py",
        (
            ".permutation(len(made))",
            ".permutation(len(made)).argsort().argsort() * 0 + np.arange(len(made))",
            "short batches come first",
        ),
    ),
    # Ties.
    *mistakes(
        "evaluation/candidate_metrics.py",
        "evaluation/test_candidate_figures.py",
        ("np.lexsort((relevant_QC, -np", "np.lexsort((~relevant_QC, -np", "ties count for the model"),
    ),
    *mistakes(
        "evaluation/search/top_k.py",
        "evaluation/test_exact_search.py",
        (
            "(_order(scores).long() << 32) | (MAX_ID - ids)",
            "(_order(scores).long() << 32) | ids",
            "ties break by the higher id",
        ),
    ),
    # Names of artifacts.
    *mistakes(
        "values/data.py",
        "teachers/test_runtimes.py::test_a_store_of_pytorch_has_the_key_that_it_had",
        (
            'runtime: str = field(default=TORCH, metadata={"identity": "unless_default"})',
            'runtime: str = field(default=TORCH, metadata={"identity": False})',
            "the runtime is not part of the key",
        ),
    ),
    *mistakes(
        "values/data.py",
        "teachers/test_store.py methods/test_contract.py values/test_plan.py",
        (
            '    prompt: str = ""\n    compute',
            '    prompt: str = field(default="", metadata={"identity": False})\n    compute',
            "the prompt is not in a store's name",
        ),
    ),
    *mistakes(
        "core/identity.py",
        "core/test_identity.py",
        (
            'return {"call": _name(value.target), "version": _version(value.target),',
            'return {"call": _name(value.target), "version": 1,',
            "a raised version changes no name",
        ),
        (
            "return {**_defaults(call), **call.kwargs}",
            "return dict(call.kwargs)",
            "a changed default changes no name",
        ),
    ),
    # Roles and prompts.
    *mistakes(
        "experiments/labelled_pairs.py",
        "experiments/test_roles.py",
        ('store(pairs.columns["query"], QUERY)', 'store(pairs.columns["query"], DOCUMENT)', "roles swapped"),
    ),
    *mistakes(
        "training/table.py",
        "experiments/test_roles.py",
        ("examples.role(column), examples.roles(column))", '"")', "a student trains without its prompts"),
    ),
    *mistakes(
        "teachers/shards.py",
        "teachers/test_embedding.py",
        (
            "[work.store.prompt + text for text in texts] if work.store.prompt else texts",
            "texts",
            "the prompt is left out",
        ),
    ),
    *mistakes(
        "students/export/asymmetric.py",
        "students/test_asymmetric_export.py",
        (
            "Prompts(queries.prompts.query, prompts.document, prompts.plain)",
            "Prompts(queries.prompts.document, prompts.document, prompts.plain)",
            "queries are exported with the student's prompt of documents",
        ),
    ),
]
