"""The deliberate mistakes, by room: such as someone could make, in places where nothing else would tell."""

from mutant import Mutant, mistakes  # type: ignore[import-not-found]

CONTRASTIVE = "losses/test_contrastive.py"
GOLDEN = "methods/test_golden.py"
STAGES = "methods/test_golden_stages.py"
RANKS = "methods/test_two_ranks.py"
ROLES = "experiments/test_roles.py"
MIXING = "corpora/test_mixing.py"
BATCHING = "training/test_batching.py"
LENGTHS = "methods/test_lengths.py"
SOURCES = "experiments/test_sources.py"
TEACHERS = "experiments/test_several_teachers.py"
CONTRACT = "methods/test_contract.py"
PRESETS = "methods/test_presets_ibkd.py methods/test_presets_distilcse.py methods/test_presets_baselines.py"

LOSSES = [
    *mistakes(
        "losses/contrastive.py",
        CONTRASTIVE,
        (
            "return unit(widen(teacher_BE)) if self.normalize else widen(teacher_BE)",
            "return widen(teacher_BE)",
            "keys, and so the bank, are not normalised",
        ),
        (
            "return unit(self.projection(student_BD))",
            "return torch.as_tensor(self.projection(student_BD))",
            "anchors of the cosine are not normalised",
        ),
        (
            "return hidden_M | among(bank_rows_M, rows_B) if",
            "return hidden_M if",
            "an anchor's own text in the bank is a negative",
        ),
        (
            "hidden_BC = hidden_BC.index_put((positives_B, positives_B), hidden_BC.new_tensor(False))",
            "hidden_BC = hidden_BC.clone()",
            "a positive is hidden by the mask of duplicates",
        ),
        (
            "bank_B) - shown_BC.diagonal()).mean()",
            "bank_B) - shown_BC.diagonal()).sum()",
            "a sum over the batch",
        ),
        (
            "        if self.share_negatives:\n            return query_BD @",
            "        if not self.share_negatives:\n            return query_BD @",
            "hard negatives of the others, where only the own ones count",
        ),
        (
            "answers_BB = same_query_BB @ (positive_rows_B",
            "answers_BB = torch.eye(batch) @ (positive_rows_B",
            "another passage of the same query is a negative",
        ),
        (
            "self.temperature(anchors_BE), bank_ME, hidden_M",
            "anchors_BE, bank_ME, hidden_M",
            "no τ for the bank",
        ),
    ),
    *mistakes(
        "losses/numerics.py",
        CONTRASTIVE,
        ("similarity / self.temperature if", "similarity * self.temperature if", "multiplies by τ"),
        (
            "torch.tensor(-math.log(temperature))",
            "torch.tensor(math.log(temperature))",
            "the scale starts at τ",
        ),
        ("nn.init.orthogonal_(layer.weight)", "nn.init.normal_(layer.weight)", "W starts at another size"),
    ),
    *mistakes(
        "losses/memory.py",
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
        "losses/streaming.py",
        "losses/test_streaming.py",
        (
            "total_B * shrunk_B + weights.sum(dim=1)",
            "total_B + weights.sum(dim=1)",
            "tiles of different scale",
        ),
        ("(grad * next(saved) if", "(next(saved) if", "the weight of the loss does not reach the gradient"),
    ),
    *mistakes(
        "losses/hsic.py",
        "losses/test_hsic.py",
        (
            "torch.exp(-gamma * squared_BB)",
            "torch.exp(-gamma * squared_BB.clamp(min=1e-12).sqrt())",
            "no square",
        ),
        ('if self.estimator == "biased_l2"', 'if self.estimator != "biased_l2"', "the estimators swapped"),
        (" + kernel_BB.mean()\n", "\n", "the kernel is not centred on both sides"),
        (
            "return (1 + gamma * squared_BB).rsqrt()",
            "return (1 + gamma * squared_BB).reciprocal()",
            "no root in imq",
        ),
        ("inputs_BH.detach() if", "inputs_BH if", "detach_inputs does nothing"),
    ),
    *mistakes(
        "losses/crd.py",
        "losses/test_crd.py",
        (".div(self.items)", ".mul(self.items)", "N · items in the critic"),
        (
            "F.logsigmoid(chance_B[:, None] - logits_BB)",
            "F.logsigmoid(logits_BB - chance_B[:, None])",
            "sign",
        ),
        ("anchors_BC @ keys_TC.T).sum()", "anchors_BC @ keys_TC.T).mean()", "a mean over the bank"),
    ),
    *mistakes(
        "losses/multilingual.py",
        "losses/test_multilingual.py",
        (
            "logits_BB: Tensor = self.temperature(unit(widen(source_BD)) @ unit(widen(target_BD)).T)",
            "logits_BB: Tensor = self.temperature(unit(widen(target_BD)) @ unit(widen(source_BD)).T)",
            "source and target swapped in eq. 9",
        ),
        (
            "student_BB = unit(widen(source_BD)) @ unit(widen(target_BD)).T",
            "student_BB = unit(widen(source_BD)) @ unit(widen(source_BD)).T",
            "the contrast never sees the target",
        ),
        (
            "directions_BE = unit(widen(teacher_BE))",
            "directions_BE = widen(teacher_BE)",
            "products for cosines",
        ),
    ),
    *mistakes(
        "losses/pkd.py",
        "losses/test_pkd.py",
        ("layer * step if match", "(layer - 1) * step + 1 if match", "skip is off by one layer"),
        ("first + layer) for layer", "first + layer - 1) for layer", "last is off by one layer"),
        ("unit(project(widen(student)))", "project(unit(widen(student)))", "the length after the projection"),
        (
            "unit(project(widen(student))) - unit(widen(teacher))",
            "unit(project(widen(student))) - widen(teacher)",
            "raw teacher",
        ),
        (".square().sum(dim=1).mean()", ".square().mean()", "a mean over the dimensions"),
    ),
    *mistakes(
        "losses/pca.py",
        "losses/test_pca.py",
        (".T[::-1][:dim]", ".T[:dim]", "the directions of least variance"),
        ("(widen(vectors_NE) - self.mean_E) @", "widen(vectors_NE) @", "the mean is not subtracted"),
        (
            "part_NE = part_NE - shift_E\n",
            "part_NE = part_NE - 2 * shift_E\n",
            "moments around another point",
        ),
    ),
    *mistakes(
        "losses/regression.py",
        "losses/test_regression.py",
        (
            'if self.dimensions == "sum" else loss',
            'if self.dimensions == "mean" else loss',
            "mean and sum swapped",
        ),
        ("learnt = student_dim != teacher_dim if", "learnt = True if", "M where the dimensions agree"),
    ),
    *mistakes(
        "losses/cosine.py",
        "losses/test_cosine.py",
        ("(0.5 * (1 - _cosines(", "(0.5 * (1 + _cosines(", "sign of SRA's eq. 1"),
        (
            "_cosines(student_BD, student_other_BD) - target_B",
            "_cosines(student_BD, student_other_BD)",
            "no target",
        ),
    ),
    *mistakes(
        "losses/relational.py",
        "losses/test_relational.py",
        (
            "gap_BB.square().sum() / (len(gap_BB) * (len(gap_BB) - 1))",
            "gap_BB.square().sum() / len(gap_BB) ** 2",
            "the diagonal is counted",
        ),
        (
            "            gap_BB = gap_BB - torch.diag(gap_BB.diagonal())\n",
            "",
            "a zero vector has a gap to itself",
        ),
        (
            "_cosine_matrix(student_BD) - _cosine_matrix(teacher_BE)",
            "_cosine_matrix(student_BD).abs() - _cosine_matrix(teacher_BE).abs()",
            "signs of the cosines",
        ),
        ("_cosine_matrix(student_BD) * different_BB", "_cosine_matrix(student_BD)", "a text with itself"),
        (
            "pairs = different_BB.sum()",
            "pairs = torch.tensor(different_BB.numel())",
            "pairs of the same text",
        ),
        ("torch.relu(second_moment - 1 / student_BD.shape[1])", "second_moment", "the threshold 1/D"),
        ("mean.square() + torch.relu", "mean + torch.relu", "M₁ without its square"),
        (
            "    unit_BD = unit(widen(vectors_BD))\n",
            "    unit_BD = widen(vectors_BD)\n",
            "products for cosines",
        ),
    ),
    *mistakes(
        "losses/heads.py",
        "losses/test_heads.py",
        (
            "(first_BD - second_BD).abs(), first_BD * second_BD",
            "first_BD - second_BD, first_BD * second_BD",
            "no | |",
        ),
        ("(1 - self.alpha) * self._distance", "self.alpha * self._distance", "α for 1 − α"),
        ("labelled_B.sum().clamp(min=1)", "rows", "unlabelled rows count in the mean"),
    ),
    *mistakes(
        "losses/pair_head.py",
        "losses/test_pair_head.py",
        (
            '"bf,bcf->bc", self.layer(claim_BD), documents_BCF',
            '"bf,bcf->bc", claim_BD, documents_BCF',
            "no W",
        ),
        ("(claims_BCD - documents_BCF).abs()", "(claims_BCD + documents_BCF).abs()", "sign in |c − d|"),
    ),
    *mistakes(
        "losses/softlabel.py",
        "losses/test_softlabel.py",
        ("(1 - self.alpha) * self.hard(", "self.alpha * self.hard(", "α for 1 − α"),
        (
            "soft_BC = (widen(teacher_BC) / self.temperature)",
            "soft_BC = widen(teacher_BC)",
            "the teacher without T",
        ),
        (
            "target_BC / target_BC.sum(dim=1, keepdim=True)",
            "target_BC / target_BC.sum(dim=0, keepdim=True)",
            "axis",
        ),
        ("(soft_BC * log_BC).sum(dim=1).mean()", "(soft_BC * log_BC).mean()", "a mean over the candidates"),
        (
            "scores_BC[:, :1] - scores_BC[:, 1:]",
            "scores_BC[:, 1:] - scores_BC[:, :-1]",
            "neighbours' margins",
        ),
        ('reduction="batchmean", log_target=True', 'reduction="mean", log_target=True', "a mean over all"),
        ("(labels_BC > 0).to(wide_BC.dtype)", "(labels_BC == 0).to(wide_BC.dtype)", "labels upside down"),
    ),
]

OBJECTIVES = [
    *mistakes(
        "objectives/reranking.py",
        "objectives/test_reranking.py",
        (
            'if self.similarity == "cosine":',
            'if self.similarity == "dot":',
            "cosine and inner product swapped",
        ),
        (
            "torch.cat([passage_BD[:, None], negatives_BKD], dim=1)",
            "torch.cat([negatives_BKD, passage_BD[:, None]], dim=1)",
            "the scores of other candidates",
        ),
        ("return self.scale * torch.einsum", "return torch.einsum", "the student's scores without scale"),
        ('terms["soft"] = self.weight * self.soft(', 'terms["soft"] = self.soft(', "no weight"),
        ("labels_BC[:, 0] = 1", "labels_BC[:, -1] = 1", "a hard negative is relevant"),
        ("span <= 2 * self.scale:", "span <= 200 * self.scale:", "no remark on scores out of reach"),
        ("not self.scale / 10 <= span", "not self.scale / 1000 <= span", "none on scores that are too small"),
        ("_rounded(span / _SHARE)", "_rounded(span)", "a temperature that flattens the scores"),
    ),
    *mistakes(
        "objectives/contrasts.py",
        f"{RANKS} {GOLDEN}",
        (
            "bank.push(loss.keys(teacher_BE), rows_B)",
            "bank.push(teacher_BE, rows_B)",
            "the bank is not normalised",
        ),
        (
            "torch.cat(list(targets.values())).detach()",
            "torch.cat(list(targets.values()))",
            "MetaKD's g follows back",
        ),
        (
            'teacher_BE = gather(widen(teacher["text"].embedding_BD))\n',
            'teacher_BE = widen(teacher["text"].embedding_BD)\n',
            "the teacher is not gathered",
        ),
        ('"mse": self.beta * self.mse(', '"mse": self.mse(', "MetaKD without β"),
        (
            "if bank is not None and bank.training:",
            "if bank is not None and not bank.training:",
            "the bank stays empty",
        ),
    ),
    *mistakes(
        "objectives/information_bottleneck.py",
        f"objectives/test_objectives.py {RANKS}",
        ('"penultimate": -2', '"penultimate": -1', "X is the last layer"),
        (
            "torch.cat([gather(self._inputs(encoding)) for encoding in encodings])",
            "torch.cat([gather(self._inputs(encoding).detach()) for encoding in encodings])",
            "X is detached",
        ),
        ('{"hsic": self.beta * self.hsic(', '{"hsic": self.hsic(', "HSIC without β"),
        (
            'student_BD = gather(widen(student["text"].embedding_BD))',
            'student_BD = gather(widen(student["text"].embedding_BD).detach())',
            "S is detached",
        ),
    ),
    *mistakes(
        "objectives/parallel.py",
        f"{RANKS} {STAGES}",
        (
            "(gather(widen(student[c].embedding_BD)) for c in",
            "(widen(student[c].embedding_BD).repeat(1, 1) for c in",
            "the contrast of the rank's own pairs",
        ),
        (
            'teacher.get(column, teacher["source"])',
            'teacher["source"]',
            "the target follows the source's vector in eq. 3 and 4",
        ),
        ("    return source + target\n", "    return source\n", "only the source is fitted"),
    ),
    *mistakes(
        "objectives/alignment.py",
        "objectives/test_alignment.py",
        ("self.relational_weight * related", "related", "the matrix without its weight"),
        ("self.cosine_weight * 2 * self", "self.cosine_weight * self", "half of 1 − cos"),
        ("self.spread_weight * self.spread(", "self.spread(", "the regulariser without its weight"),
        (
            "        if self.cosine_weight:\n",
            "        if self.cosine_weight >= 0:\n",
            "a weight of 0 is work",
        ),
        (
            "if not self.relational_weight and not self.spread_weight:",
            "if not self.relational_weight:",
            "the regulariser needs the matrix",
        ),
        (
            "teacher_dim=teacher_dim, normalize=normalize)",
            "teacher_dim=teacher_dim)",
            "a teacher of any length",
        ),
        (
            'mse: Spec[MSE] = spec(MSE, projection=False, dimensions="sum")',
            "mse: Spec[MSE] = spec(MSE, projection=False)",
            "a mean over the dimensions",
        ),
        ("mse: Spec[MSE] = spec(MSE, projection=False, ", "mse: Spec[MSE] = spec(MSE, ", "a map in the loss"),
        (
            'self.spread(gathered_BD, gather(batch.rows["text"]))',
            "self.spread(gathered_BD)",
            "the same text is two texts",
        ),
        ('"spread_weight": "spread",', '"spread_weight": "relational",', "another term"),
    ),
    *mistakes(
        "objectives/alignment.py",
        RANKS,
        ("gathered_BD = gather(widen(student_BD))", "gathered_BD = widen(student_BD)", "nothing is gathered"),
        (
            "gathered_BD = gather(widen(student_BD))",
            "gathered_BD = gather(widen(student_BD).detach())",
            "gathered without gradient",
        ),
    ),
    *mistakes(
        "objectives/matching.py",
        GOLDEN,
        (
            "for layer, _ in self.pairs]",
            "for _, layer in self.pairs]",
            "the student's states of the teacher's layers",
        ),
        ('mse: Spec[MSE] = spec(MSE, dimensions="sum")', "mse: Spec[MSE] = spec(MSE)", "β against a mean"),
        ('"layers": self.beta * self.patient(*states)', '"layers": self.patient(*states)', "PKD without β"),
    ),
    *mistakes(
        "objectives/matching.py",
        "objectives/test_classified.py",
        (
            'for model in (student, teacher) for column in ("text", "other")',
            'for column in ("text", "other") for model in (student, teacher)',
            "cosines of student with teacher",
        ),
    ),
    *mistakes(
        "objectives/ranking.py",
        STAGES,
        (
            "flat_MD.view(len(claim_BD), -1, flat_MD.shape[-1])",
            "flat_MD.view(-1, len(claim_BD), flat_MD.shape[-1]).transpose(0, 1)",
            "documents of other claims",
        ),
    ),
    *mistakes(
        "objectives/classified.py",
        RANKS,
        (
            "total = gather(local).sum().clamp(min=1)",
            "total = (local * world_size()).sum().clamp(min=1)",
            "labelled rows of the other ranks",
        ),
    ),
]

METHODS = [
    *mistakes(
        "methods/rerank_kd.py",
        "sweeps/test_rerank_kd.py",
        (
            "trained_on = sample(pairs, 1 - hp.teacher_held_out)",
            "trained_on = sample(pairs, hp.teacher_held_out)",
            "the held-out share is trained on",
        ),
        ("if scores.given or not hp.follows:", "if scores.given:", "a reranker that nothing reads"),
        (
            "teacher: Model | Stage = scores.cross_encoder or _reranker",
            "teacher: Model | Stage = _reranker",
            "the published reranker is not asked",
        ),
        ("NO_PROMPTS, seed=hp.teacher_seed)", "NO_PROMPTS)", "a reranker for every seed"),
        (
            "return sample(scored, share.fraction) if share else scored",
            "return scored",
            "the share is forgotten",
        ),
    ),
    *mistakes(
        "methods/ibkd.py",
        f"{GOLDEN}::test_ibkd",
        ("beta=hp.beta1,", "beta=hp.beta2,", "β₂ in the distillation"),
        ("beta=hp.beta2,", "beta=hp.beta1,", "β₁ in the fine-tuning"),
        ("temperature=hp.distil_temperature", "temperature=hp.finetune_temperature", "τ of the other stage"),
        ("input_layer=hp.finetune_input_layer", "input_layer=hp.distil_input_layer", "X of the other stage"),
        ("_hsic(hp, hp.gamma)", "_hsic(hp, hp.finetune_gamma or hp.gamma)", "γ of the other stage"),
    ),
    *mistakes(
        "methods/ckd.py",
        f"{GOLDEN}::test_ckd_with_a_bank",
        ("temperature=hp.temperature", "temperature=hp.finetune_temperature", "τ of the other stage"),
        ("size=hp.bank_size", "size=hp.bank_size + 1", "another bank"),
        (
            "student=student_of(setting, hp.layers",
            "student=student_of(setting, ()",
            "layers do not reach the student",
        ),
    ),
    *mistakes(
        "methods/pkd.py",
        f"{GOLDEN}::test_pkd",
        (
            "spec(TransformerStudent, base=setting.teacher",
            'spec(TransformerStudent, base=setting.student.kwargs["base"]',
            "the student's own base teaches",
        ),
        (
            '"normalize": both_normalized(setting, student)',
            '"normalize": False',
            "a unit student, a teacher of any length",
        ),
        ('"match": hp.match,', '"match": "skip",', "match does not reach the objective"),
    ),
    *mistakes(
        "methods/hpd.py",
        f"{GOLDEN}::test_hpd",
        ("centred=hp.centred", "centred=True", "centred does not reach the objective"),
        ('projection_activation="tanh"', 'projection_activation=""', "no tanh"),
        ("normalize=False)", "normalize=True)", "vectors are normalised"),
    ),
    *mistakes(
        "methods/mse.py",
        f"{GOLDEN}::test_mse",
        (
            "normalize=both_normalized(setting, student)",
            "normalize=False",
            "a unit student follows a teacher of any length",
        ),
    ),
    *mistakes(
        "methods/mse.py",
        f"{GOLDEN}::test_a_kept_m_is_the_last_layer_of_mse {CONTRACT}",
        (
            "student_of(setting, hp.layers, keep_projection=hp.keep_projection)",
            "student_of(setting, hp.layers)",
            "M is not kept",
        ),
        ("keep_projection=hp.keep_projection, bias=hp.bias", "keep_projection=hp.keep_projection", "no bias"),
    ),
    *mistakes(
        "recipes/stages.py",
        CONTRACT,
        (
            '"projection": False if keep_projection else projection',
            '"projection": projection',
            "a kept map is learnt in the loss too",
        ),
        (
            '"bias": bias and not keep_projection',
            '"bias": bias',
            "a bias for a map that the loss does not have",
        ),
        (
            'changes["projection"] = setting.teacher_dim',
            'changes["projection"] = setting.teacher_dim // 2',
            "a student beside its teacher's space",
        ),
    ),
    *mistakes(
        "methods/leaf.py",
        f"{GOLDEN}::test_leaf methods/test_presets_leaf.py",
        (
            "normalize=both_normalized(setting, student)",
            "normalize=False",
            "a unit student follows a teacher of any length",
        ),
        ("cosine_weight=hp.cosine_weight", "cosine_weight=hp.spread_weight", "weights swapped"),
        (", keep_projection=True)", ")", "W_out is not there"),
        ("student_of(setting, hp.layers,", "student_of(setting, (),", "layers do not reach the student"),
        ("        budget=hp.epochs * setting[Sentences].rows,\n", "", "epochs do nothing"),
        ("batch_size: int = 32", "batch_size: int = 128", "the batch"),
        ('optimizer: str = "adamw"', 'optimizer: str = "adam"', "the optimiser"),
    ),
    *mistakes(
        "methods/metakd.py",
        f"{GOLDEN}::test_metakd",
        (
            "normalize=gives_unit_length(student)",
            "normalize=False",
            "a unit student follows a vector of any length",
        ),
        ("share_negatives=True", "share_negatives=False", "only the own hard negatives"),
        (
            "task=task, mse=mse, beta=hp.beta",
            "task=task, mse=mse, beta=1.0",
            "β does not reach the objective",
        ),
    ),
    *mistakes(
        "methods/metakd.py",
        f"{GOLDEN}::test_metakd_on_unlabelled_text",
        ("task=None, mse=mse, beta=hp.beta", "task=None, mse=mse, beta=1.0", "β is lost on unlabelled text"),
        ("task=None, mse=mse", "task=None, mse=spec(MSE, normalize=True)", "unit vectors on unlabelled text"),
        ("        following=meta,\n", "", "the student starts anew on unlabelled text"),
        (
            'budget=(hp.head_budget if hp.text == "unlabelled" else 0) or setting.distil_budget',
            "budget=setting.distil_budget",
            "the head's own budget is not used",
        ),
    ),
    *mistakes(
        "training/module.py",
        f"{GOLDEN}::test_metakd_on_unlabelled_text",
        (
            "        load_weights(objective, first_objective)\n",
            "        pass\n",
            "an objective that goes on starts anew",
        ),
    ),
    *mistakes(
        "methods/__init__.py",
        "experiments/test_task_data.py",
        (
            "return Unread(vectors, dev,",
            "return Unread(vectors and dev, dev,",
            "sentences are embedded for nothing",
        ),
    ),
    *mistakes(
        "cluster/membership.py",
        "cluster/test_membership.py",
        ("before, self._known = self._known, now", "before = self._known", "a node is told again and again"),
    ),
    *mistakes(
        "training/follower.py",
        "training/test_follower.py",
        (
            "if now >= each.due]",
            "if now >= 0]",
            "a line though another was just printed",
        ),
        ("seen, ago = seen + part.examples_seen, 0.0", "pass", "finished stages do not count"),
        (
            "                each.due = now + self._wait(each)\n",
            "                pass\n",
            "a line at every look",
        ),
        ("or len(self._followed) > 1 or", "or", "two bars take turns"),
        ("self._followed.pop(title, None)", "self._followed.get(title)", "what has ended is still followed"),
    ),
    *mistakes(
        "sweeps/refit.py",
        "sweeps/test_refit.py",
        ("best_records(records)[:top]", "list(records)[:top]", "the first trials instead of the best"),
        ("        if record.number not in reasons\n", "", "a student that diverged is delivered"),
        (
            "best = max((trial, *refits), key",
            "best = max(refits or (trial,), key",
            "a refit that is worse than its trial is delivered",
        ),
    ),
    *mistakes(
        "experiments/preparation.py",
        "sweeps/test_refit.py::test_an_experiment_prepares_all_rows_for_a_refit",
        (
            "return self._completed(longer)",
            "return self._completed(cut(longer, self.experiment.budget))",
            "a share",
        ),
    ),
    *mistakes(
        "methods/crd.py",
        f"{GOLDEN}::test_crd",
        ("items=setting[Sentences].rows", "items=hp.bank_size", "N over the bank for N over the items"),
        ("temperature=hp.temperature", "temperature=hp.finetune_temperature", "τ of the other stage"),
    ),
    *mistakes(
        "methods/crosslingual.py",
        f"{STAGES}::test_the_four_stages",
        ("Store(table, assistant,", "Store(table, setting.teacher,", "the teacher in the assistant's place"),
        (
            "stores, start_from=before)",
            "stores, start_from=None)",
            "stage 3 starts from the published weights",
        ),
        (
            "Live(full_embedding, start_from=assistant)",
            "Live(full_embedding)",
            "stage 2 follows the untrained assistant",
        ),
        ("unit=1, repeats=0, dropout=0.0", "unit=1, repeats=1, dropout=0.0", "stage 2 follows a layer"),
        ("repeats=hp.repeats or None", "repeats=hp.repeats or 1", "no recurrence"),
    ),
    *mistakes(
        "methods/crosslingual.py",
        f"{STAGES}::test_the_other_contrasts",
        ("labels=hp.contrast)", 'labels="teacher")', "Bool is eq. 5 again"),
        ("temperature=hp.temperature)", "temperature=1.0)", "τ does not reach eq. 9"),
    ),
    *mistakes(
        "methods/retrieval_kd.py",
        f"{STAGES}::test_retrieval_kd",
        ("alpha=self.alpha,", "alpha=1 - self.alpha,", "α swapped"),
        ("spec(Joiner, kind=hp.joiner)", "spec(Joiner)", "the joiner is always bilinear"),
        ("units=hp.units, pooling=hp.pooling", "units=hp.units", "pooling does not reach the tower"),
    ),
    *mistakes(
        "methods/sra_kd.py",
        f"{STAGES}::test_sra_with_kd",
        ("kd_weight=hp.kd_weight", "kd_weight=0.5", "the weight does not reach the loss"),
        ("        before=before,\n", "        before=None,\n", "the fine-tuning starts from nothing"),
    ),
    *mistakes(
        "recipes/two_stages.py",
        GOLDEN,
        ("share_negatives=True,", "share_negatives=False,", "eq. 7 with the own negatives alone"),
        ("temperature=values.finetune_temperature", "temperature=0.05", "τ does not reach stage 2"),
        ("student=before.student,", "student=setting.student,", "stage 2 trains another student"),
    ),
    *mistakes(
        "recipes/labelled_tasks.py",
        f"{STAGES}::test_sra {STAGES}::test_sra_with_kd",
        ("alpha=1.0 - kd_weight", "alpha=kd_weight", "labels and logits swapped"),
        ("hidden=values.hidden,\n", "hidden=2 * values.hidden,\n", "twice the units"),
    ),
]

STUDENTS = [
    *mistakes(
        "students/reranker.py",
        "students/test_reranker.py",
        (
            "torch.cat([first_BT[:, None], others_BKT], dim=1)",
            "torch.cat([others_BKT, first_BT[:, None]], dim=1)",
            "negatives in front of the passage",
        ),
        (
            "joined(passage.attention_mask_BT, negatives.attention_mask_BT)",
            "joined(passage.attention_mask_BT, negatives.attention_mask_BT).fill_(1)",
            "padding is read",
        ),
    ),
    *mistakes(
        "students/pooling.py",
        "students/test_pooling.py",
        (
            "states_BTH.masked_fill(mask_BT1 == 0, 0.0).sum(dim=1)",
            "states_BTH.sum(dim=1)",
            "padding in the mean",
        ),
        ("return _wide(hidden_BTH[:, 0])", "return _wide(hidden_BTH[:, -1])", "the last token for [CLS]"),
        (
            'masked_fill(padding_BT1, float("-inf")).amax',
            "masked_fill(padding_BT1, 0.0).amax",
            "padding in the max",
        ),
    ),
    *mistakes(
        "students/output_head.py",
        "students/test_transformer.py students/test_encoder.py",
        (
            "return functional.normalize(vector_BD, dim=-1) if normalize",
            "return vector_BD if normalize",
            "raw vectors",
        ),
    ),
    *mistakes(
        "students/backbone.py",
        "students/test_transformer.py",
        (
            "for new, old in enumerate(kept)}",
            "for new, old in enumerate(range(len(kept)))}",
            "the first layers instead",
        ),
    ),
    *mistakes(
        "students/transformer.py",
        "students/test_transformer.py",
        (
            "tuple(index * total // keep for",
            "tuple((index + 1) * total // keep - 1 for",
            "every other, off by one",
        ),
        (
            "tuple(range(total - keep, total))",
            "tuple(range(total - keep - 1, total - 1))",
            "last, off by one",
        ),
    ),
    *mistakes(
        "students/recurrent.py",
        "students/test_recurrent.py",
        ("for _ in range(self.repeats):", "for _ in range(self.repeats - 1):", "applied once too few"),
        (
            "range(int(at), self.unit * self.repeats, self.unit)",
            "range(int(at) * self.repeats, (int(at) + 1) * self.repeats)",
            "unrolled as 0 0 1 1",
        ),
        ("return depth // unit", "return depth // unit + 1", "applied once too often"),
    ),
    *mistakes(
        "students/factorised.py",
        "students/test_recurrent.py",
        ("std=bottleneck**-0.5", "std=1.0", "word vectors of another length"),
        ("eigh(table.T @ table)[1].flip(1)", "eigh(table.T @ table)[1]", "the directions of least variance"),
    ),
    *mistakes(
        "students/lstm.py",
        "students/test_bilstm.py students/test_towers.py",
        (
            "mask_BT.sum(dim=1, keepdim=True) - 1 - places_T",
            "mask_BT.shape[1] - 1 - places_T",
            "padding is read first",
        ),
        (
            "states_BTU[rows_B, (lengths_B - 1).clamp(min=0)]",
            "states_BTU[rows_B, -1]",
            "the last state is padding",
        ),
    ),
    *mistakes(
        "students/towers.py",
        "students/test_towers.py",
        ("words_BTH.masked_fill(mask_BT.unsqueeze(-1) == 0, 0.0)", "words_BTH", "the filters see padding"),
    ),
    *mistakes(
        "students/coattention.py",
        "students/test_coattention.py",
        (
            'masked_fill(mask_MT[:, :, None] == 0, float("-inf")).softmax(dim=1)',
            "softmax(dim=1)",
            "the document's padding is attended to",
        ),
        (
            'masked_fill(claim_mask_MS[:, None, :] == 0, float("-inf")).softmax(dim=2)',
            "softmax(dim=2)",
            "the claim's padding is attended to",
        ),
    ),
    *mistakes(
        "students/cpu/attention.py",
        "students/test_attention.py",
        (" + _like(weights_BHTT, attention_mask)", "", "padding is attended to"),
        (
            "mask.clamp(min=torch.finfo(weights_BHTT.dtype).min).to",
            "mask.to",
            "a text without a visible token gives NaN in bfloat16",
        ),
    ),
    *mistakes(
        "students/static.py",
        "students/test_static_student.py",
        ("keepdim=True) - self._after", "keepdim=True)", "the special token at the end counts"),
    ),
    *mistakes(
        "students/head.py",
        "students/test_head.py",
        (
            "return _positions(model.path, stamp)",
            "return _positions(model.path, ())",
            "old positions are kept",
        ),
        ("weight if matrix is None else weight @ matrix", "weight", "the last of two dense layers alone"),
        (
            'tensors.get("bias") if moved is None else moved + tensors.get("bias", 0.0)',
            'tensors.get("bias")',
            "the first bias is lost",
        ),
        ('return activation == "Identity" and', "return", "a dense layer with tanh is taken for linear"),
        ("in_a_row and all(map(_is_linear, dense))", "in_a_row", "layers with tanh are multiplied"),
    ),
    *mistakes(
        "core/distributed.py",
        "training/test_walk.py",
        ("    os._exit(0)\n", "", "a rank that has finished dies with its interpreter"),
    ),
    *mistakes(
        "training/fit.py",
        "training/test_published_run.py",
        (
            "            self.published.last()\n",
            "            pass\n",
            "a checkpoint is removed as it is sent",
        ),
    ),
    *mistakes(
        "training/soup.py",
        "training/test_soup.py",
        ("if name in trained", "if name", "a memory bank is averaged"),
        (
            ".double() for state in states]).mean(dim=0)",
            ".double() for state in states]).sum(dim=0)",
            "a sum",
        ),
    ),
    *mistakes(
        "training/fit.py",
        "training/test_soup.py",
        ("kept=figure > self.progress.best[0][0]", "kept=True", "a worse soup is kept"),
        ("checkpoint_seconds, max(keep, stage.soup)", "checkpoint_seconds, keep", "one checkpoint, no soup"),
        (
            "for part, state in zip(parts, before, strict=True)",
            "for part, state in ()",
            "the soup stays in the module",
        ),
        (
            "chosen, (student, objective) = self.progress.step, mixed",
            "chosen = self.progress.step",
            "the soup is measured, and other weights are written",
        ),
    ),
    *mistakes(
        "tracking/journal.py",
        "tracking/test_tracking_journal.py",
        ("        remove_leftovers(folder)\n", "", "a killed writer's file stays for good"),
    ),
    *mistakes(
        "training/grouped.py",
        "training/test_grouped.py",
        (
            "[group.embedding_BD for group in groups])[back_B]",
            "[group.embedding_BD for group in groups])[order_B]",
            "vectors of other texts",
        ),
        (
            "and int(lengths_B.min()) > 0",
            "",
            "a text without tokens in a row",
        ),
        (
            "split(layer, torch.is_grad_enabled())[place]",
            "split(layer, True)[place]",
            "a loss on states that diagnostics have read has no gradient",
        ),
    ),
    *mistakes(
        "students/cpu/packing.py",
        "students/test_packing.py",
        ("real_N % longest", "real_N % len(real_N)", "positions that go on from text to text"),
        (
            "weights_GHLL = weights_GHLL + group.bias(weights_GHLL.dtype)",
            "weights_GHLL = weights_GHLL + 0",
            "padding is attended to",
        ),
        ("(query * scale) @ key", "query @ key", "scores without their scale"),
        ("index_select(0, self.real_N)", "index_select(0, self.real_N.flip(0))", "tokens in another order"),
    ),
    *mistakes(
        "students/transformer.py",
        "students/test_head.py",
        ("requires_grad_(not freeze_words)", "requires_grad_(freeze_words)", "frozen words are trained"),
        ("dense = own.dense", "dense = False", "a live teacher without its dense layer"),
        ("self.dim = projection or width", "self.dim = projection or self.hidden_size", "H instead of D"),
        ("*output_modules(self.dense, None, normalize=False),\n", "\n", "an export without the dense layer"),
    ),
    *mistakes(
        "students/transformer.py",
        "students/test_transformer.py",
        ("index * (total - 1) // (keep - 1)", "index * total // keep", "spread without the last layer"),
    ),
    *mistakes(
        "experiments/students/transformer.py",
        "students/test_head.py",
        ("freeze_words=self.freeze_words,", "", "a choice that reaches no student"),
    ),
    *mistakes(
        "students/backbone.py",
        "students/test_packing.py",
        ("(0 if unused is None else unused + 1)", "0", "positions of another architecture"),
    ),
]

DATA = [
    *mistakes(
        "experiments/kinds/scores.py",
        "sweeps/test_rerank_kd.py",
        (
            "context.provide(Pairs, PairData(examples, {}, rows))",
            "str(PairData(examples, {}, rows))",
            "files that nothing reads",
        ),
        (
            "return ScoreData(bool(self.path), published)",
            "return ScoreData(False, published)",
            "given scores are scored again",
        ),
        ("            not (self.path and labelled),", "            True,", "pairs that would be ignored"),
        ('list_files(self.path, "file of scores")', "str(self.path)", "a missing file is found out late"),
    ),
    *mistakes(
        "corpora/reading/corpus.py",
        "corpora/test_reading.py",
        (
            'path_matches(file.path[start:].split("/"), parts)',
            'fnmatch.fnmatch(file.path[start:], "/".join(parts))',
            "a star of a remote glob crosses folders",
        ),
        (
            "    address, options = split_options(source)\n",
            '    address, options = source, ""\n',
            "options of a file system are taken for a wildcard",
        ),
        ("sorted(set(matches))", "sorted(matches)", "a file that ** finds twice is read twice"),
    ),
    *mistakes(
        "corpora/reading/scored.py",
        "corpora/test_scored.py",
        ("[0.0, *(-_finite(margin", "[0.0, *(_finite(margin", "margins with the wrong sign"),
        ('if name.startswith("negative")), key=_number)', 'if name.startswith("negative")))', "10 before 2"),
        ("    if len(texts) != len(scores):", "    if len(texts) > 1000 * len(scores):", "missing scores"),
        ('(passage.get("title"), passage.get("text"))', '(passage.get("text"),)', "no titles"),
        (
            "[positive, *negatives], where) for positive",
            "[positives[0], *negatives], where) for positive",
            "one",
        ),
        ("return math.isfinite(score)", "return not math.isinf(score)", "NaN as a score"),
        (
            "np.array([row.scores[: 1 + width]",
            "np.array([row.scores[-1 - width :]",
            "scores of other passages",
        ),
    ),
    *mistakes(
        "teachers/endpoint.py",
        "teachers/test_endpoint.py",
        ("in sorted(rows, key=lambda row: int(row[0]))]", "in rows]", "vectors in the answer's order"),
        ("sorted(places) != list(range(number))", "len(places) != number", "an index may come twice"),
        ("max(own, asked or 0.0)", "own", "Retry-After is not heeded"),
        ("if error.code not in _REFUSED:", "if error.code:", "an answer repeats parts of a refused key"),
        ("build_opener(_NoRedirects)", "build_opener()", "another host is sent the key"),
        ("if not np.isfinite(vectors).all() and", "if False and", "one bad answer sets a row aside"),
        ("    if not np.isfinite(vector).all():", "    if False:", "NaN counts as a length other than 1"),
        ("redacted(text.replace(key, HIDDEN) if key else text)", "text", "an answer repeats the key"),
    ),
    *mistakes(
        "teachers/requesting.py",
        "teachers/test_endpoint.py",
        ("[work.store.prompt + text for", "[text for", "texts are sent without their prompt"),
    ),
    *mistakes(
        "teachers/vector_files.py",
        "teachers/test_vector_files.py",
        ("self.places[order] = np", "self.places[:] = np", "vectors of other texts"),
        ("first = first[~filled[places[first]]]", "first = first[:]", "the last of equal vectors counts"),
        (
            "np.where(own[:, None], self.vectors_NE[role][rows]",
            "np.where(own[:, None] & False, self.vectors_NE[role][rows]",
            "a text's vector of its own role is not read",
        ),
        ("& np.isfinite(values_NE).all(axis=1)", "& np.isfinite(values_NE).any(axis=1)", "NaN passes"),
    ),
    *mistakes(
        "values/mining.py",
        "examples/test_mining.py",
        (
            "positive_Q1 - self.relative_margin * positive_Q1.abs()",
            "positive_Q1 + self.relative_margin * positive_Q1.abs()",
            "sign of the margin",
        ),
        (
            "cosine_QN >= positive_Q1 - self.absolute_margin",
            "cosine_QN >= positive_Q1 * (1 - self.absolute_margin)",
            "a relative margin",
        ),
        (
            "yield cosine_QN < self.min_score",
            "yield cosine_QN > self.min_score",
            "the least score is the highest",
        ),
    ),
    *mistakes(
        "examples/negative_selection.py",
        "examples/test_mining.py",
        (
            "cosine_QN[row[inside], column[inside] - start] = -torch.inf",
            "pass",
            "passages of the query are negatives",
        ),
        ("best.skip(rule.mining.range_min)", "best.skip(rule.mining.range_min + 1)", "off by one rank"),
        ("self.merge(scores, place + start)", "self.merge(scores, place)", "ids within the tile"),
    ),
    *mistakes(
        "examples/mining.py",
        "examples/test_mining.py",
        ("SeedSequence([self.rule.mining.seed, start])", "SeedSequence([0, start])", "the seed is not used"),
        ("COLUMN: candidates[found[enough]]", "COLUMN: found[enough]", "places for rows"),
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
        "corpora/shares.py",
        "corpora/test_sampling.py experiments/test_fractions.py",
        (
            "np.random.default_rng(seed), []",
            "np.random.default_rng(int(1e6 * fraction)), []",
            "shares are not nested",
        ),
        ("max(1, round(fraction", "max(0, round(fraction", "a class may vanish"),
    ),
    *mistakes(
        "corpora/shares.py",
        MIXING,
        ("[Fraction(str(share))", "[Fraction(share)", "a tenth is no tenth"),
        ("key=lambda index: -rests[index]", "key=lambda index: rests[index]", "the smallest remainders"),
    ),
    *mistakes(
        "corpora/mixing.py",
        MIXING,
        ("not isinstance(text, str) or next(new)]", "next(new, True) or True]", "a text is in two sources"),
        ("for table in barred:", "for table in ():", "queries are trained on"),
        ("= not block\n", "= True\n", "4,096 texts of a source at most"),
        (
            "missing = apportion(short, going) if any(going) else []",
            "missing = []",
            "the rest of a small source is missing",
        ),
        (
            "going = [0.0 if ended else share for",
            "going = [0.0 if ended else 1.0 for",
            "the rest is divided evenly",
        ),
        ("order_N[held_out : 2 * held_out]", "order_N[:held_out]", "dev and test are the same texts"),
        ('"share": float(source.share)', '"share": 1.0', "another share is read from the cache"),
        ('"left_out": [table.sha256 for table in barred],', "", "other queries are read from the cache"),
    ),
    *mistakes(
        "corpora/reading/sentences.py",
        MIXING,
        ("+ len(part) <= words", "+ len(part) < words", "a passage that just fits is divided"),
    ),
    *mistakes(
        "corpora/tables.py",
        SOURCES,
        ("np.repeat(np.arange(len(runs)), runs)", "np.zeros(count, np.int64)", "a share moves the shares"),
    ),
    *mistakes(
        "corpora/tokens.py",
        SOURCES,
        (
            "token_table.prompts[run][1] + text for run",
            "token_table.prompts[0][1] + text for run",
            "every source has the first one's prompt",
        ),
    ),
    *mistakes(
        "corpora/tokens.py",
        "corpora/test_tokens.py",
        (
            "texts.shard_starts[index] + np.arange(len(shard))",
            "np.arange(len(shard))",
            "the runs of prompts begin anew in each shard",
        ),
        ("ends[1:] + total\n", "ends[1:]\n", "the rows of a later piece begin in the first one"),
    ),
    *mistakes(
        "training/token_job.py",
        "training/test_token_job.py",
        (
            "    ids, offsets = tokens_of_shard(texts, index,",
            "    ids, offsets = tokens_of_shard(texts, 0,",
            "each task tokenises the first shard",
        ),
        ("if ray_runs() else ()", "", "Ray Data is started by a command that works without Ray"),
        (
            "if not workspace.finished(table) and _shards(workspace, table.texts) >= shards:",
            "if not workspace.finished(table):",
            "small tables become jobs",
        ),
    ),
    *mistakes(
        "cluster/streaming.py",
        "training/test_token_job.py",
        (
            "context.execution_options.preserve_order = in_order",
            "context.execution_options.preserve_order = False",
            "rows get the tokens of others",
        ),
    ),
    *mistakes(
        "training/sampler.py",
        "training/test_sampler.py",
        (
            "begins = [position, self._end_of_window(position)]",
            "begins = [position]",
            "nothing is fetched ahead",
        ),
        (
            "while (after := self._end_of_window(begins[-1])) < position + count:",
            "while False:",
            "a batch over many windows knows two of them",
        ),
        (
            "shards = np.random.default_rng((self.seed, epoch)).permutation(len(self._runs_S2))",
            "shards = np.random.default_rng((self.seed, 0)).permutation(len(self._runs_S2))",
            "every epoch reads the shards in one order",
        ),
        (
            "np.random.default_rng((self.seed, epoch, window)).shuffle(rows)",
            "pass",
            "rows of a window come in order",
        ),
    ),
    *mistakes(
        "training/batching.py",
        "training/test_batching.py",
        (
            "return self.order.runs(self._window_of(step)[0] * self.span, self.span)",
            "return self.order.runs(self.examples_after(step), self.stage.batch_size)",
            "a window of lengths reads shards that nobody expects",
        ),
        ("isinstance(stage.examples.origin, AllRows)", "True", "chosen rows are read by windows of shards"),
    ),
    *mistakes(
        "training/table.py",
        "training/test_batching.py",
        (
            "ids.places_of(store.starts) if isinstance",
            "store.starts if isinstance",
            "rows without a vector count as examples",
        ),
        (
            "store.expect(self.rows[column][runs_N2])",
            "store.expect(runs_N2)",
            "examples are taken for rows",
        ),
    ),
    *mistakes(
        "teachers/streamed_shards.py",
        "teachers/test_streamed_shards.py",
        ("if path.exists():", "if True:", "whoever had the lock is believed to have fetched"),
        ("        _remove_unheld(folder)\n", "", "what killed processes held stays"),
        ("last=let_go", "last=fetched", "the last reader leaves the file"),
    ),
    *mistakes(
        "teachers/store.py",
        "teachers/test_streamed_shards.py",
        ("self._mapped.keep(wanted)", "pass", "shards that were let go are still read"),
        (
            "            self._hold(read)\n",
            "            self._hold({*self._expected, *read})\n",
            "shards pile up",
        ),
        (
            "np.clip(here_N2, start, end - 1) - start",
            "np.clip(here_N2, start, end - 1)",
            "a source's rows are counted from the first source on",
        ),
    ),
    *mistakes(
        "teachers/mapped_rows.py",
        "teachers/test_mapped_rows.py",
        (
            "self._held, self._first, self._end = {}, None, 0",
            "self._first, self._end = None, 0",
            "arrays are kept",
        ),
    ),
    *mistakes(
        "teachers/shards.py",
        "teachers/test_remote_store.py",
        ("if not has_room(work.workspace.root, shard.bytes):", "if False:", "a node keeps every shard"),
    ),
    *mistakes(
        "core/artifacts.py",
        "teachers/test_streamed_shards.py",
        (
            "is_whole(self.place(artifact), contents=False)",
            "is_whole(self.path(artifact), contents=False)",
            "stores are fetched to be looked for",
        ),
    ),
    *mistakes(
        "core/remotes.py",
        "teachers/test_streamed_shards.py",
        ("    if needed > free:", "    if False:", "a fetch begins without room"),
    ),
    *mistakes(
        "training/every_row.py",
        "training/test_training_table.py",
        ('places, side="right")', 'places, side="left")', "the row after a gap is the gap"),
        ("np.union1d(self._lacking, lacking)", "lacking", "rows that were left out come back"),
        ("self._rows - len(self._lacking)", "self._rows", "as many places as rows of the table"),
    ),
    *mistakes(
        "training/table.py",
        "training/test_training_table.py",
        (
            "return dict.fromkeys(examples.columns, EveryRow(count_rows(workspace, examples)))",
            "return open_rows(workspace, examples)",
            "each trial holds an array of all row ids",
        ),
    ),
    *mistakes(
        "training/table.py",
        SOURCES,
        (
            "return replace(table, prompts=prompts) if several else table",
            "return table",
            "the student's prompts of several sources are lost",
        ),
    ),
    *mistakes(
        "teachers/store.py",
        f"{TEACHERS}::test_targets_are_the_weighted_concatenation_of_unit_vectors",
        ("math.sqrt(weight) / np", "weight / np", "the weights of several teachers without their roots"),
        ("/ np.maximum(lengths, 1e-12)", "/ 1.0", "a teacher's vectors count by their lengths"),
        (
            "zip(members, weights, strict=True):\n        lengths",
            "zip(members, weights[::-1], strict=True):\n        lengths",
            "the weights of the teachers are swapped",
        ),
    ),
    *mistakes(
        "teachers/store.py",
        f"{TEACHERS}::test_a_row_needs_a_vector_of_every_teacher",
        (
            "functools.reduce(np.intersect1d,",
            "functools.reduce(np.union1d,",
            "a row that one of the teachers lacks is trained on",
        ),
    ),
    *mistakes(
        "values/data.py",
        f"{TEACHERS}::test_a_weight_changes_what_is_learnt_from_and_nothing_that_measures",
        (
            "tuple(float(weight) / total for weight in weights)",
            "tuple(float(weight) for weight in weights)",
            "weights whose sum is not 1",
        ),
        (
            "return replace(vectors, weights=weights) if isinstance(vectors, StoreEnsemble) else vectors",
            "return vectors",
            "a searched weight of a teacher changes nothing",
        ),
    ),
    *mistakes(
        "values/data.py",
        f"{TEACHERS}::test_a_student_starts_from_the_first_teacher_that_is_a_model",
        (
            "next((each for each in self.members if isinstance(each, Model)), self.members[0])",
            "self.members[0]",
            "a student cannot start where the first teacher is no model",
        ),
    ),
    *mistakes(
        "values/setting.py",
        f"{TEACHERS}::test_a_weight_changes_what_is_learnt_from_and_nothing_that_measures",
        (
            "held_out=weighted(held_out, weights))",
            "held_out=held_out)",
            "the loss on held-out texts has other weights than the loss",
        ),
    ),
    *mistakes(
        "experiments/teacher_weights.py",
        f"{TEACHERS}::test_a_weight_changes_what_is_learnt_from_and_nothing_that_measures",
        ("weights[number - 1] = float(value)", "weights[-number] = float(value)", "counted from the end"),
        (
            "own = teacher.given if",
            "own = teacher.weights if",
            "a searched weight is relative to shares, not to the experiment's weights",
        ),
    ),
    *mistakes(
        "experiments/teacher.py",
        f"{TEACHERS}::test_a_teacher_is_listed_once",
        ("        _refuse_twice(members, lengths)\n", "", "a teacher that is listed twice counts twice"),
        (
            "(member.fingerprint, prompts_of(member), length)",
            "(member.fingerprint, length)",
            "one model with two prompts is refused",
        ),
    ),
    *mistakes(
        "experiments/experiment.py",
        f"{TEACHERS}::test_lengths_are_each_teachers_own",
        (
            "length or self.common_length(member) if",
            "self.common_length(member) if",
            "the length of one of several teachers is passed over",
        ),
    ),
    *mistakes(
        "sweeps/contenders.py",
        f"{TEACHERS}::test_the_ensemble_is_measured_as_a_model",
        (
            "EnsembleEncoder([encoder for encoder, _ in loaded], model.weights)",
            "EnsembleEncoder([encoder for encoder, _ in loaded[::-1]], model.weights)",
            "the teachers are measured in another order",
        ),
    ),
    *mistakes(
        "sweeps/contenders.py",
        f"{TEACHERS}::test_a_weight_changes_what_is_learnt_from_and_nothing_that_measures",
        (
            "return replace(setting.teacher, weights=vectors.teacher.weights)",
            "return setting.teacher",
            "the teacher of a table has other weights than the student's",
        ),
    ),
    *mistakes(
        "training/teacher_space.py",
        f"{TEACHERS}::test_asymmetric_search_is_refused",
        (
            "        raise _outside(folder.name, _SEVERAL)\n",
            "        pass\n",
            "one of several teachers embeds documents for a student of them all",
        ),
    ),
    *mistakes(
        "teachers/store.py",
        SOURCES,
        (
            "part.rows + start for part",
            "part.rows for part",
            "rows of the second source are those of the first",
        ),
        (
            'side="right") - 1\n        for index in np.unique(part_of)',
            'side="left")\n        for index in np.unique(part_of)',
            "the wrong part",
        ),
    ),
    *mistakes(
        "evaluation/agreement.py",
        SOURCES,
        ("[np.argsort(np.concatenate(places))]", "", "vectors of several roles are in another order"),
        (
            'np.searchsorted(ends, rows, side="right")',
            'np.searchsorted(ends, rows, side="left")',
            "the first text of a source has the role before it",
        ),
    ),
    *mistakes(
        "experiments/mixed_sentences.py",
        SOURCES,
        ("tuple(embed(table, role) for", 'tuple(embed(table, "") for', "no role reaches the teacher"),
    ),
    *mistakes(
        "corpora/candidates.py",
        "corpora/test_candidates.py",
        ("if not force_gold or not missing:", "if not missing:", "the misses of dev are hidden"),
    ),
    *mistakes(
        "corpora/tables.py",
        "corpora/test_tables.py",
        (
            'self.seen.new(b"".join(map(dedup_key, texts)))',
            "np.ones(len(texts), bool)",
            "duplicates are kept",
        ),
    ),
    *mistakes(
        "corpora/augmentation.py",
        "corpora/test_augmentation.py",
        (
            "np.random.default_rng((seed, copy, at))",
            "np.random.default_rng((copy, at))",
            "the seed is not used",
        ),
        (
            "return Row(first, second, UNLABELLED)",
            "return Row(first, second, row.label)",
            "varied rows keep the label",
        ),
    ),
    *mistakes(
        "experiments/claim_rows.py",
        "experiments/test_claim_data.py",
        ("force_gold=name in (TRAIN, ALL)", "force_gold=True", "the misses of dev and test are hidden"),
    ),
    *mistakes(
        "experiments/kinds/parallel.py",
        "sweeps/test_crosslingual.py",
        (
            "measure_translations(context, data.dev, data.test)",
            "measure_translations(context, data.test, data.dev)",
            "dev and test swapped",
        ),
    ),
    *mistakes(
        "evaluation/retrieval.py",
        ROLES,
        ("encode_as(model, QUERY, self", "encode_as(model, DOCUMENT, self", "queries are read as documents"),
    ),
    *mistakes(
        "experiments/negatives.py",
        ROLES,
        ('store(pairs.columns["query"], QUERY)', 'store(pairs.columns["query"], DOCUMENT)', "roles swapped"),
    ),
    *mistakes(
        "experiments/kinds/pairs.py",
        ROLES,
        ("context.store(table, examples.role(name))", "context.store(table)", "pairs without roles"),
    ),
    *mistakes(
        "experiments/sentence_tables.py",
        ROLES,
        ('{"role": role} if role else {}', "{}", "agreement is measured on plain texts"),
    ),
    *mistakes(
        "values/data.py",
        ROLES,
        ('"negatives": DOCUMENT', '"negatives": QUERY', "negatives are queries"),
    ),
    *mistakes(
        "training/table.py",
        ROLES,
        ("examples.role(column), examples.roles(column))", '"")', "a student trains without its prompts"),
    ),
    *mistakes(
        "students/encoder.py",
        ROLES,
        ("self.prompts.document)", "self.prompts.query)", "documents are read as queries"),
    ),
    *mistakes(
        "teachers/loading.py",
        ROLES,
        ("    _set_prompts(loaded, prompts_of(model))\n", "", "a teacher is measured without its prompts"),
    ),
    *mistakes(
        "teachers/loading.py",
        "teachers/test_embedding.py teachers/test_weights.py",
        ('"dtype": "float32"},', '"dtype": "bfloat16"},', "the teacher in bfloat16"),
    ),
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
        "teachers/runtimes.py",
        "teachers/test_runtimes.py::test_a_runtime_that_disagrees_is_refused_by_name",
        (
            "    require_agreement(store, lowest_cosine(theirs(ids, offsets), reference_NE), of_torch)\n",
            "",
            "a runtime is not compared with PyTorch",
        ),
    ),
    *mistakes(
        "teachers/forward.py",
        "teachers/test_runtimes.py::test_vectors_that_are_still_computed_are_read_in_order",
        (
            "yield started.popleft().read()",
            "yield started.pop().read()",
            "batches are read out of order",
        ),
        ("if len(started) > self.ahead:", "if len(started) > 0:", "one batch at a time"),
    ),
    *mistakes(
        "teachers/shards.py",
        "teachers/test_embedding.py",
        (
            "[work.store.prompt + text for text in texts] if work.store.prompt else texts",
            "texts",
            "the prompt is left out",
        ),
        ("first + kept, stored_NE[kept]", "kept, stored_NE[kept]", "rows counted within a shard"),
    ),
    *mistakes(
        "teachers/store.py",
        "teachers/test_store.py teachers/test_embedding.py",
        (
            "positions[inside] = self._position(int(shard), flat[inside])",
            "pass",
            "rows after a quarantined one are shifted",
        ),
        (
            "intact(self._file(index))",
            "pass",
            "an altered shard is read",
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
    *mistakes(
        "core/integrity.py",
        "core/test_artifacts.py core/test_integrity.py",
        (
            "    if not path.exists():\n        return False\n    try:",
            "    if not path.exists():\n        return folder.exists()\n    try:",
            "an unfinished folder is trusted",
        ),
        ("        if sha256_of(path) != expected:", "        if False:", "damaged files are read"),
        (
            "    return bool(stated == folder.name) or",
            "    return True or",
            "the manifest of another is read",
        ),
        (
            "self.known.get(self._name(path)) == [*stamp, expected]",
            "self._name(path) in self.known",
            "a replaced file counts as compared by another process",
        ),
        (
            'if rule == "once" else None',
            'if rule != "never" else None',
            "what one process has compared counts for all, unasked",
        ),
    ),
    *mistakes(
        "core/lines.py",
        "core/test_lines.py",
        (
            "_digest(found[1]) != found[2].decode():",
            "False:",
            "the checksums of lines are not compared",
        ),
        (
            "any(name == CHECK or is_one_letter_off(name, CHECK) for name in entry)",
            "False",
            "a damaged checksum counts as none",
        ),
    ),
    *mistakes(
        "training/plan_file.py",
        "sweeps/test_verify.py",
        ("_text(found) == _text(expected)", "found", "an altered plan is not noticed"),
    ),
    *mistakes(
        "training/facts.py",
        "sweeps/test_verify.py",
        ("    if facts is None:", "    if facts is None and False:", "damaged facts count as none"),
    ),
    *mistakes(
        "core/databases.py",
        "search/test_study_copies.py",
        (
            "if is_good_copy(copy):",
            "if copy.exists():",
            "a damaged copy of a study is taken",
        ),
        (
            "        put_aside(path.with_name(path.name + ending))",
            "        path.with_name(path.name + ending)",
            "a rollback journal is played into the copy",
        ),
        ("    if problem or (newest", "    if (newest", "a damaged study is copied over the good copies"),
        (
            "    if code & 0xFF in _DAMAGE or",
            "    if code or",
            "a study that cannot be opened is called damaged",
        ),
    ),
    *mistakes(
        "core/notes.py",
        "sweeps/test_verify.py core/test_integrity.py",
        ("return ours and is_unchanged(content)", "return ours", "an altered note is read"),
        ("ours = content.get(NOTE, path.name) == path.name and", "ours =", "the note of another is read"),
    ),
    *mistakes(
        "core/errors.py",
        "core/test_errors.py",
        ("error.errno in _REFUSALS:", "error.errno in ():", "an I/O error is a failure without advice"),
        ("isinstance(error, MemoryError) or", "False and", "no memory is a failure without advice"),
    ),
    *mistakes(
        "core/artifacts.py",
        "core/test_remotes.py",
        (
            "            self._tidy(self.place(artifact))\n",
            "            pass\n",
            "a killed maker's file stays",
        ),
        (
            "                if free:\n                    remove_leftovers",
            "                if True:\n                    remove_leftovers",
            "what another process is writing is removed",
        ),
    ),
    *mistakes(
        "core/artifacts.py",
        "core/test_cache.py",
        (
            "            self.claim()\n            use(folder)\n",
            "            use(folder)\n            self.claim()\n",
            "a cache notes its use where nothing states the format yet",
        ),
    ),
    *mistakes(
        "core/artifacts.py",
        "core/test_artifacts.py",
        ("if is_short_write(error):", "if False:", "a file that was cut short is torch's riddle"),
    ),
    *mistakes(
        "sweeps/session.py",
        "sweeps/test_sweep_start.py",
        (
            "        remove_leftovers(folder)",
            "        assert folder",
            "temporary files stay for ever",
        ),
        (
            "        remove_unfinished(folder)",
            "        assert folder",
            "old checkpoints stay for ever",
        ),
    ),
    *mistakes(
        "core/artifacts.py",
        "corpora/test_tokens.py",
        (
            "    intact(path)\n    try:\n        array",
            "    try:\n        intact(path)\n        array",
            "a file that cannot be opened is to be made again",
        ),
    ),
    *mistakes(
        "corpora/reading/ingest.py",
        "corpora/test_ingest.py",
        ("    name = redacted(name)\n", "", "a password becomes a folder's name"),
    ),
    *mistakes(
        "reports/model_card.py",
        "reports/test_escaping.py",
        ("prompts=in_markdown(export.prompts)", "prompts=export.prompts", "a prompt writes into the card"),
    ),
    *mistakes(
        "core/signals.py",
        "core/test_signals.py",
        ("and _is_of_memory(lost.exc_value)", "and False", "a command waits for a dead thread for ever"),
    ),
    *mistakes(
        "training/fit.py",
        "training/test_fit.py",
        ("                    watchdog.rest()\n", "", "a long evaluation ends its process"),
    ),
    *mistakes(
        "training/local.py",
        "training/test_walk.py",
        (
            "if where.workers == 1 else 0.0",
            "if where.workers > 1 else 0.0",
            "ranks are ended, one process is not",
        ),
    ),
    *mistakes(
        "training/follower.py",
        "training/test_follower.py",
        (
            "            plan.moved = now\n",
            "            pass\n",
            "what goes on is called stalled",
        ),
    ),
    *mistakes(
        "core/progress_bar.py",
        "core/test_progress_bar.py",
        ("disable=False, ", "", "no bar where libraries may draw none"),
        ('{"monitor_interval": 0}', "{}", "a thread for each program with a bar"),
    ),
    *mistakes(
        "teachers/forward.py",
        "teachers/test_embedding.py",
        ("and done < len(lengths):", "and not done:", "no progress within a shard"),
    ),
    *mistakes(
        "teachers/store.py",
        "teachers/test_store.py",
        ("and sha256_of(folder / name) != sha256:", "and False:", "a list of rows is not compared"),
    ),
    *mistakes(
        "core/tokenizing.py",
        "core/test_tokenizing.py corpora/test_tokens.py",
        (
            "self._backend.enable_truncation(max_length)",
            "self._backend.enable_truncation(most)",
            "texts are not cut",
        ),
    ),
]

OTHER_PKD = f"{GOLDEN}::test_pkd_with_a_teacher_of_another_size_and_tokenizer"
TRAINING = [
    *mistakes(
        "training/batching.py",
        BATCHING,
        ("min(self.span, self.stage.examples_seen - first)", "self.span", "texts beyond the budget are read"),
        (
            'kind="stable")\n            rows, lengths =',
            'kind="stable")\n            _, lengths =',
            "texts are not sorted",
        ),
        ("(self.stage.seed, _SHUFFLE, window)", "(_SHUFFLE, window)", "the seed is not used"),
        (
            ".permutation(len(made))",
            ".permutation(len(made)).argsort().argsort() * 0 + np.arange(len(made))",
            "short batches come first",
        ),
        (
            "if texts and (texts + TEXTS_TOGETHER) * padded_to > most:",
            "if texts and texts * padded_to > most:",
            "a batch has too many tokens",
        ),
        (
            "padded_to = max(padded_to, int(length))",
            "padded_to = int(length)",
            "the longest text of a batch is forgotten",
        ),
        (
            "self._ends[step - 1]) if step else 0",
            "self._ends[min(step, len(self._ends) - 1)])",
            "one batch too many is counted",
        ),
        ("self._cached[0] != window", "False", "the first window is read for ever"),
        (
            "if isinstance(objective, TextwiseObjective) else _COUPLED",
            'if isinstance(objective, TextwiseObjective) else ""',
            "a contrast goes by length",
        ),
    ),
    *mistakes(
        "training/progress.py",
        BATCHING,
        (
            "(step, step - 1, course.steps)",
            "(step, step, course.steps)",
            "nothing is evaluated before the end",
        ),
    ),
    *mistakes(
        "values/stage.py",
        BATCHING,
        (
            "return self.budget // TEXTS_TOGETHER * TEXTS_TOGETHER",
            "return self.steps * self.batch_size - TEXTS_TOGETHER",
            "a batch of texts is left out",
        ),
    ),
    *mistakes(
        "objectives/alignment.py",
        BATCHING,
        (
            "for name, weight in weights.items() if weight]",
            'for name, weight in weights.items() if weight and name == "spread_weight"]',
            "similarity matrices go by length",
        ),
    ),
    *mistakes(
        "values/setting.py",
        LENGTHS,
        ("**({} if finetunes else order),", "**order,", "pairs go by length"),
    ),
    *mistakes(
        "experiments/experiment.py",
        LENGTHS,
        ('"batch_tokens": self.budget.batch_tokens,', '"batch_tokens": 0,', "the field is not used"),
    ),
    *mistakes(
        "sweeps/checks.py",
        LENGTHS,
        (
            "        if by_length:\n            check_batching",
            "        if asymmetric:\n            check_batching",
            "nothing is refused",
        ),
    ),
    *mistakes(
        "training/pair_scores.py",
        "sweeps/test_rerank_kd.py",
        (
            'np.concatenate([rows["passage"][:, None], rows["negatives"]], axis=1)',
            'np.concatenate([rows["negatives"], rows["passage"][:, None]], axis=1)',
            "the passage's score comes last",
        ),
        (
            "first = [query for query in asked for _ in range(width)]",
            "first = [query for _ in range(width) for query in asked]",
            "scores of other queries",
        ),
    ),
    *mistakes(
        "training/module.py",
        OTHER_PKD,
        ("batch.live_tokens or batch.tokens", "batch.tokens", "a live teacher reads the student's tokens"),
    ),
    *mistakes(
        "training/table.py",
        OTHER_PKD,
        (
            "return None if one.same_as(other) else Reader(own, reading)",
            "return None",
            "one tokenizer for both models",
        ),
    ),
    *mistakes(
        "training/table.py",
        f"{GOLDEN}::test_pkd_reads_with_the_teachers_own_prompts_and_length",
        (
            "reading = stage.live.reading or student.reading",
            "reading = student.reading",
            "a live teacher reads with the student's prompts",
        ),
    ),
    *mistakes(
        "methods/crosslingual.py",
        f"{STAGES}::test_the_encoder_as_published_reads_with_its_own_prompts",
        (
            "Live(_full_encoder(setting), reading=_published_reading(setting))",
            "Live(_full_encoder(setting))",
            "the published encoder reads with the student's prompts",
        ),
    ),
    *mistakes(
        "values/setting.py",
        "sweeps/test_contenders.py",
        (
            "self.max_length if self.teacher_reading is None else self.teacher_reading.max_length",
            "self.max_length",
            "the teacher is measured at the student's length",
        ),
    ),
    *mistakes(
        "corpora/tables.py",
        "sweeps/test_rerank_kd.py::test_fewer_candidates_are_the_first_ones_with_their_scores",
        (
            'values["scores"][:, : 1 + examples.origin.negatives]',
            'values["scores"][:, -1 - examples.origin.negatives :]',
            "the last scores of fewer candidates",
        ),
        (
            'rows["negatives"][:, :wanted]',
            'rows["negatives"][:, -wanted:]',
            "the last of fewer candidates",
        ),
    ),
    *mistakes(
        "sweeps/score_export.py",
        "sweeps/test_rerank_kd.py::test_recorded_scores_are_exported_and_read_back",
        (
            "texts[at * width : (at + 1) * width]",
            "texts[:width]",
            "every query is exported with the first query's candidates",
        ),
    ),
    *mistakes(
        "preflight/contrast.py",
        "preflight/test_examination.py::test_scores_of_a_reranker_that_saturate_are_found",
        (
            "torch.from_numpy(scores_NC) / loss.temperature",
            "torch.from_numpy(scores_NC)",
            "the scores are judged without their temperature",
        ),
        (
            "softmax = Softmax.of(loss.logits(vectors[QUERY], passages_BD, negatives_BKD))",
            "softmax = Softmax.of(loss.logits(vectors[QUERY], passages_BD))",
            "hard negatives are left out of the first softmax",
        ),
    ),
    *mistakes(
        "sweeps/measuring.py",
        "cli/test_documents_by.py::test_an_experiments_own_queries_are_measured_both_ways",
        (
            "beside_teacher(suite, by_teacher, figures, workspace)",
            "beside_teacher(suite, encoders[0], figures, workspace)",
            "the model's own queries count as the teacher's",
        ),
    ),
    *mistakes(
        "evaluation/benchmarks/fever.py",
        "cli/test_documents_by.py::test_the_candidates_of_claims_may_be_the_teachers",
        (
            "encode = Piecewise(model, DOCUMENT,",
            "encode = Piecewise(model, QUERY,",
            "candidates are encoded as claims",
        ),
    ),
    *mistakes(
        "experiments/experiment.py",
        "experiments/test_roles.py",
        (
            "reading = Reading(longest, prompts_of(teacher))",
            "reading = Reading(self.common_length(teacher), self.student.prompts)",
            "the teacher reads with the student's prompts",
        ),
    ),
    *mistakes(
        "training/module.py",
        f"{GOLDEN}::test_pkd {RANKS}",
        (
            '{"student_dim": student.dim}',
            '{"student_dim": student.hidden_size}',
            "the dimension before the projection",
        ),
        (
            "self._encoded(self.live, tokens[column])",
            "self._encoded(self.student, tokens[column])",
            "the student is its own live teacher",
        ),
    ),
    *mistakes(
        "training/module.py",
        f"{STAGES}::test_retrieval_kd",
        (
            "return student.tower(column) if isinstance(student, SidedModel) else student",
            "return student",
            "the documents' tower encodes the claims",
        ),
    ),
    *mistakes(
        "students/towers.py",
        f"{STAGES}::test_retrieval_kd",
        (
            "self.documents: SimpleCNN | SimpleLSTM = tower.build()",
            "self.documents: SimpleCNN | SimpleLSTM = self.claims",
            "separate towers share their weights",
        ),
        (
            "return self.claims if column in",
            "return self.documents if column in",
            "the towers are never apart",
        ),
    ),
    *mistakes(
        "training/module.py",
        STAGES + "::test_the_four_stages",
        (
            "    if first_weights is not None:\n        load_weights(student, first_weights)",
            "    if first_weights is None:\n        pass",
            "a stage starts from the published weights",
        ),
        (
            "    if weights is not None:\n        load_weights(teacher, weights)",
            "    if weights is None:\n        pass",
            "the live teacher is untrained",
        ),
    ),
    *mistakes(
        "training/fit.py",
        f"{GOLDEN}::test_hpd",
        (
            "module.objective.fit_teacher(table.teacher_blocks())",
            "table.teacher_blocks()",
            "the projection is not fitted",
        ),
    ),
    *mistakes(
        "training/average.py",
        "training/test_average.py",
        ("average.lerp_(weight, 1 - decay)", "average.lerp_(weight, decay)", "β and 1 − β swapped"),
        ("min(self._decay, (1 + step)", "max(self._decay, (1 + step)", "β without its bound"),
        (
            "        try:\n            yield\n        finally:\n            self._write(weights)\n",
            "        yield\n        self._write(weights)\n",
            "the averages stay after an error",
        ),
        (
            'averages.get(f"{part}.{name}", weight)',
            "weight",
            "the weights are kept and not their averages",
        ),
    ),
    *mistakes(
        "training/fit.py",
        "training/test_average.py training/test_fit.py",
        (
            "with self.average.in_place() if self.average is not None else contextlib.nullcontext():",
            "with contextlib.nullcontext():",
            "the weights are measured and not their averages",
        ),
        (
            '            self.average.restore(state["average"])\n',
            "            pass\n",
            "a new average on resume",
        ),
        ('state.get("average", {})', "{}", "the best step's weights and not their averages"),
    ),
    *mistakes(
        "experiments/experiment.py",
        "training/test_average.py",
        ('"average": self.budget.average,', '"average": 0.0,', "the average does not reach the stages"),
    ),
    *mistakes(
        "training/fit.py",
        "training/test_fit.py",
        (
            "torch.autograd.backward(loss / stage.accumulate)",
            "torch.autograd.backward(loss)",
            "accumulation adds up",
        ),
        ("set_learning_rate(self.optimizer, self._rate())", "self._rate()", "the schedule is not used"),
        (
            "chosen = self.progress.best[0][1] if self.progress.best else self.progress.step",
            "chosen = self.progress.step",
            "the last weights instead of the best",
        ),
        (
            "if self.stage.optimizer.clip_norm > 0:",
            "if self.stage.optimizer.clip_norm > 1:",
            "no clipping at 1",
        ),
        (
            'self.optimizer.load_state_dict(state["optimizer"])',
            'state["optimizer"]',
            "a resumed run has a fresh optimiser",
        ),
    ),
    *mistakes(
        "training/schedule.py",
        "training/test_schedule.py",
        (
            "optimizer.learning_rate * (step + 1) / (warmup + 1)",
            "optimizer.learning_rate * step / (warmup + 1)",
            "the first rate is 0",
        ),
        ("0.5 * (1.0 + math.cos(math.pi * done))", "math.cos(0.5 * math.pi * done)", "another cosine"),
        (
            '{"params": others, "weight_decay": 0.0}',
            '{"params": others, "weight_decay": weight_decay}',
            "biases decay",
        ),
        (
            'torch.optim.AdamW if optimizer.name == "adamw" else torch.optim.Adam',
            "torch.optim.AdamW",
            "adam is adamw",
        ),
        (
            "groups = parameter_groups(module, optimizer.weight_decay)",
            "groups = parameter_groups(module, 0.0)",
            "weight decay does not reach the optimiser",
        ),
    ),
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
    ),
    *mistakes(
        "training/prefetch.py",
        "training/test_walk.py::test_two_processes_at_half_the_batch_equal_one",
        ("[:, rank()]", "[:, 0]", "all ranks read the same rows"),
    ),
    *mistakes(
        "training/progress.py",
        "training/test_fit.py",
        ("figure > self.best[0][0]", "figure < self.best[0][0]", "patience with what gets worse"),
        (
            "key=lambda kept: (-kept[0], kept[1])",
            "key=lambda kept: (kept[0], kept[1])",
            "the worst checkpoint is kept",
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
        "core/distributed.py",
        "core/test_distributed.py",
        ("        dist.all_reduce(summed)\n", "", "the gradient of the own rank alone"),
        ("chunk(world_size())[rank()]", "chunk(world_size())[0]", "the gradient of rank 0's rows"),
    ),
    *mistakes(
        "students/encoder.py",
        "students/test_encoder.py",
        ("    student.eval()\n", "    student.train()\n", "dropout while measuring"),
    ),
]

EVALUATION = [
    *mistakes(
        "evaluation/candidate_ranking.py",
        "sweeps/test_rerank_kd.py",
        (
            'np.setdiff1d(np.arange(len(rows["query"])), kept)',
            "kept",
            "a reranker measured on what it learnt",
        ),
        ("labels_QC[:, 0] = 1", "labels_QC[:, -1] = 1", "a hard negative is relevant"),
    ),
    *mistakes(
        "evaluation/metrics.py",
        "evaluation/test_metrics.py",
        (
            "np.log2(np.arange(gains_QK.shape[1]) + 2.0)",
            "np.log2(np.arange(gains_QK.shape[1]) + 1.5)",
            "other discounts",
        ),
        ("1.0 / (hits.argmax(axis=1) + 1.0)", "1.0 / (hits.argmax(axis=1) + 2.0)", "ranks from 2"),
        ("np.minimum(judged.relevant_Q, k))", "judged.relevant_Q)", "MAP over all relevant passages"),
        ("_dcg(judged.ideal_QR[:, :k])", "_dcg(judged.ideal_QR)", "the ideal order below the cut"),
        (
            "ranks = (rankdata(each, axis=-1) for each in (a_BN, b_BN))",
            "ranks = (each for each in (a_BN, b_BN))",
            "Pearson for Spearman",
        ),
        (
            "np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)",
            "np.linalg.norm(a, axis=1) ** 2",
            "the norm of one side",
        ),
    ),
    *mistakes(
        "evaluation/candidates.py",
        "evaluation/test_candidate_figures.py",
        ("np.lexsort((relevant_QC, -np", "np.lexsort((~relevant_QC, -np", "ties count for the model"),
        ("found_Q / judged.relevant_Q.mean()", "found_Q / judged.relevant_Q", "micro is macro"),
    ),
    *mistakes(
        "evaluation/trained_claims.py",
        "experiments/test_claim_data.py",
        ("        if shared:\n", "        if shared == len(texts):\n", "some claims may be trained on"),
    ),
    *mistakes(
        "corpora/published/fever.py",
        "corpora/test_fever.py",
        ('if split_by == "claim" else', 'if split_by == "page" else', "the two splits swapped"),
    ),
    *mistakes(
        "evaluation/geometry.py",
        "evaluation/test_geometry.py",
        ("np.log(total / (rows * (rows - 1)))", "-np.log(total / (rows * (rows - 1)))", "sign of uniformity"),
        (
            "kernel[here, start + here] = 0.0",
            "kernel[here, here] = 0.0",
            "a vector with itself, after the first block",
        ),
    ),
    *mistakes(
        "evaluation/sts.py",
        "evaluation/test_sts.py",
        ("((5, 6, 4), 0) if name", "((5, 6, 3), 0) if name", "another column for the gold score"),
        (
            "return cosines(vectors[first], vectors[second])",
            "return cosines(vectors[first], vectors[first])",
            "one side twice",
        ),
    ),
    *mistakes(
        "evaluation/classification.py",
        "evaluation/test_classification.py",
        ('return "test" if split == "test" else "dev"', 'return "dev"', "a test set may select"),
        (
            "threshold = best_threshold(fit_N, fit_labels_N, kind)",
            "threshold = best_threshold(cosines_N, labels_N, kind)",
            "the threshold of the scored rows",
        ),
        ("labels=[POSITIVE]", "labels=[0]", "F1 of class 0"),
    ),
    *mistakes(
        "evaluation/suites.py",
        "evaluation/test_suites.py",
        ('evaluator.split != "dev":', 'evaluator.split == "dev":', "dev and test swapped"),
    ),
    *mistakes(
        "evaluation/retrieval.py",
        "evaluation/test_retrieval.py",
        (
            "alignment(queries_QD[place_P], passages_ND[passage_P])",
            "alignment(queries_QD[place_P], passages_ND[place_P])",
            "alignment with other passages",
        ),
    ),
    *mistakes(
        "evaluation/retrieval.py",
        "evaluation/test_asymmetric.py",
        (
            "self._ranked(queries_QD, self.documents.vectors(), ",
            "self._ranked(queries_QD, self.documents.vectors()[::-1].copy(), ",
            "the teacher's documents in another order",
        ),
        (
            "rows[place[text]] = row",
            "rows[place[text]] = place[text]",
            "a sample of passages reads the first rows of the store",
        ),
        (
            "queries_QD.shape[1] != self.documents.dim",
            "queries_QD.shape[1] < 0",
            "queries of another dimension search the teacher's documents",
        ),
    ),
    *mistakes(
        "evaluation/asymmetric.py",
        "evaluation/test_asymmetric.py",
        (
            'f"{len(text)} {text}".encode()',
            "text.encode()",
            "blocks of other texts that join to the same characters share their vectors",
        ),
        (
            "return encode_as(self.queries, QUERY, texts)",
            "return encode_as(self.queries, DOCUMENT, texts)",
            "asymmetric queries are read as documents",
        ),
    ),
    *mistakes(
        "experiments/search_queries.py",
        "cli/test_documents_by.py::test_the_asymmetric_figure_selects_where_the_two_disagree",
        (
            "{f'{ASYMMETRIC}_' if asymmetric else ''}cosine",
            "cosine",
            "the symmetric figure selects although the asymmetric one is named",
        ),
    ),
    *mistakes(
        "training/teacher_space.py",
        "training/test_teacher_space.py cli/test_documents_by.py",
        (
            '    return bool(plan["stores"] or plan["live"])',
            "    return True",
            "a stage on labelled text counts as one that follows a teacher",
        ),
        (
            "if before.student != stage.student:",
            "if before is stage:",
            "a student that gets a projection later counts as one in its teacher's space",
        ),
    ),
    *mistakes(
        "losses/numerics.py",
        "cli/test_documents_by.py",
        (
            '    if isinstance(layer, nn.Identity):\n        return ""\n',
            '    if isinstance(layer, nn.Module):\n        return ""\n',
            "a student whose projection is dropped counts as one in its teacher's space",
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
        (
            "read_json(settings) | without_pooler(backbone)",
            "read_json(settings)",
            "stock transformers reports a pooler head that the export does not have",
        ),
        (
            "torch.eye(kept, width)",
            "torch.eye(kept, width).flip(1)",
            "the last dimensions are kept instead of the first",
        ),
        (
            "(stock.encode_document(texts), given.encode_document(texts)),",
            "(stock.encode_document(texts), stock.encode_document(texts)),",
            "the documents' side is compared with itself",
        ),
        (
            "default_route=DOCUMENT",
            "default_route=QUERY",
            "texts without a role go to the student",
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
    *mistakes(
        "evaluation/paired.py",
        "evaluation/test_paired.py",
        ("np.arange(len(p), 0, -1)", "np.arange(1, len(p) + 1)", "Holm's factors the other way"),
        ("(as_large + 1) / (count + 1)", "as_large / count", "a p-value of 0"),
    ),
    *mistakes(
        "evaluation/transfer.py",
        "evaluation/test_transfer.py",
        (
            "predict_logistic(x_ND[outside], classifier) == labels_N[outside]",
            "predict_logistic(x_ND[inside], classifier) == labels_N[inside]",
            "measured on the training folds",
        ),
        ("best = SPLIT_C[int(figures_C.argmax())]", "best = SPLIT_C[int(figures_C.argmin())]", "the worst C"),
    ),
    *mistakes(
        "evaluation/agreement.py",
        "evaluation/test_agreement.py",
        (
            "np.concatenate([np.roll(anchors, 1), near])",
            "np.concatenate([anchors, near])",
            "texts paired with themselves",
        ),
    ),
    *mistakes(
        "evaluation/search/exact.py",
        "evaluation/test_exact_search.py evaluation/test_sharded.py",
        (
            "_search_tile(query_blocks, tile, k, at,",
            "_search_tile(query_blocks, tile, k, first_id,",
            "ids of the first tile",
        ),
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
]

SEARCH = [
    *mistakes(
        "search/study_copies.py",
        "search/test_study_copies.py",
        (
            '("trials", "*", _IN_FINISHED),',
            "",
            "another state of a finished trial is not noticed",
        ),
        (
            'problem = "is missing, although this sweep had trials" if lost else ""',
            'problem = ""',
            "a lost study is begun anew",
        ),
        (
            'or (number in ended and known[number] == "RUNNING")',
            "",
            "trials that the copy knows as running are not said",
        ),
    ),
    *mistakes(
        "search/searcher.py",
        "search/test_study_copies.py",
        (
            "        keep_study(self._path)\n        del self._live[trial_id]",
            "        del self._live[trial_id]",
            "a finished trial is not copied",
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
            "self._first = dict(space.first or {})",
            "self._first: dict[str, Any] = {}",
            "the published point is not tried",
        ),
    ),
    *mistakes(
        "search/schedulers/asha.py",
        "search/test_scheduler.py",
        ('mode="max"', 'mode="min"', "the best are stopped"),
        ("grace_period=max(1, int(full_budget * grace))", "grace_period=1", "no grace"),
    ),
    *mistakes(
        "search/samplers/grid.py",
        "search/test_searcher.py search/test_space.py",
        ("np.random.default_rng(search.seed)", "np.random.default_rng(0)", "the seed is not used"),
    ),
    *mistakes(
        "search/trial.py",
        "search/test_trial.py",
        (
            'metrics = manifest["metrics"]',
            'metrics = manifest["evaluations"][-1]["metrics"]',
            "the last figures, not those of the kept checkpoint",
        ),
        (
            "if labels.index(evaluation.stage) >= first:",
            "if labels.index(evaluation.stage) > first:",
            "the prunable stage reports nothing",
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
        "sweeps/verify.py",
        "sweeps/test_verify.py",
        (
            "    if not repair:\n        return list",
            "    if False:\n        return list",
            "a check moves files",
        ),
        (
            "[folder / file for file in files or (MANIFEST,)]",
            "[folder / MANIFEST]",
            "a repair leaves the damaged file in its place",
        ),
        (
            "        return look()\n    except (OSError, BadInput) as error:",
            "        return look()\n    except ZeroDivisionError as error:",
            "what cannot be read ends the check",
        ),
    ),
    *mistakes(
        "sweeps/baseline.py",
        "search/test_trial.py",
        (
            "len(examples.columns) - 1 + examples.origin.negatives",
            "len(examples.columns)",
            "hard negatives cost nothing",
        ),
    ),
    *mistakes(
        "training/where.py",
        "cli/test_cli_train.py::test_one_process_on_its_own_takes_all_cores",
        ("if local and workers == 1", "if local", "two processes take all cores each"),
    ),
    *mistakes(
        "sweeps/baseline.py",
        "sweeps/test_own_baselines.py",
        ('"BASELINE_NAME", MSE_BASELINE)', '"PAPER", MSE_BASELINE)', "a baseline under another name"),
        ('"BASELINE_RATES", LEARNING_RATES)', '"RATES", LEARNING_RATES)', "the rates of the MSE student"),
    ),
    *mistakes(
        "reports/entries.py",
        "sweeps/test_own_baselines.py",
        ("if model == _BASELINE else name", "if not model else name", "every baseline is the MSE student"),
    ),
]

VALUES = [
    *mistakes(
        "methods/ibkd.py",
        "methods/test_presets_ibkd.py",
        ("    gamma: float = 0.5\n", "    gamma: float = 1.0\n", "γ of section 4.3"),
        ("finetune_gamma=0.1", "finetune_gamma=0.5", "γ of the code's fine-tuning"),
        ("    beta2: float = 0.5\n", "    beta2: float = 1.0\n", "β₂ of section 4.3"),
        ('        estimator="biased",\n', "", "the code's 1/(n−1)²"),
    ),
    *mistakes(
        "methods/ckd.py",
        "methods/test_presets_distilcse.py",
        ("bank_size: int = 65536", "bank_size: int = 16384", "the bank of section 4.2"),
        ('        decay="cosine",\n', "", "the code's decay"),
    ),
    *mistakes(
        "recipes/two_stages.py",
        "methods/test_presets_distilcse.py",
        (
            '"paper_52m": {"finetune_learning_rate": 1e-5}',
            '"paper_52m": {"finetune_learning_rate": 5e-5}',
            "1e-5 for 52 M",
        ),
    ),
    *mistakes(
        "recipes/stages.py",
        "methods/test_presets_ibkd.py methods/test_presets_baselines.py methods/test_presets_distilcse.py",
        (
            "name=values.optimizer,\n        weight_decay=values.weight_decay",
            "name=values.optimizer",
            "no weight decay in the stage",
        ),
        ("clip_norm=values.clip_norm", "clip_norm=1.0", "clipping does not reach the stage"),
    ),
    *mistakes(
        "methods/crosslingual.py",
        "methods/test_presets_crosslingual.py",
        ("contrast_factor: float = 3.0", "contrast_factor: float = 1.0", "60 epochs against 20"),
        ("unit: int = 3", "unit: int = 6", "|RU| of Table 1"),
        ('PRUNABLE_FROM = "contrast"', 'PRUNABLE_FROM = "student"', "pruned before the last stage"),
    ),
    *mistakes(
        "methods/retrieval_kd.py",
        "methods/test_presets_retrieval_kd.py",
        ("alpha: float = 0.2", "alpha: float = 0.5", "α of Table 3"),
        ('softened: str = "teacher"', 'softened: str = "both"', "T of eq. 1"),
        (
            "budget=hp.teacher_budget or setting.distil_budget",
            "budget=setting.distil_budget",
            "the teacher's budget",
        ),
    ),
    *mistakes(
        "methods/sra.py",
        "methods/test_presets_sra.py",
        ("distil_batch_size: int = 1024", "distil_batch_size: int = 128", "batch of section 4.3"),
        (
            "optimizer_of(hp, hp.finetune_learning_rate)",
            "optimizer_of(hp, hp.distil_learning_rate)",
            "the rate of the other stage",
        ),
    ),
    *mistakes(
        "search_spaces/ibkd.yaml",
        "methods/test_search_spaces.py methods/test_presets_ibkd.py",
        (
            "distil_temperature: [0.01, 0.05, 0.1, 0.2, 0.5]",
            "distil_temperature: [0.01, 0.05, 0.1, 0.2, 1.0]",
            "τ of Table 5",
        ),
        ("    distil_batch_size: 256\n", "    distil_batch_size: 128\n", "the published batch"),
        ("    beta1: [0.1, 0.5, 1.0, 2.0]", "    beta1: [0.1, 0.5, 1.0, 5.0]", "β₁ of Table 5"),
    ),
    *mistakes(
        "search_spaces/ckd.yaml",
        "methods/test_presets_distilcse.py",
        ("batch_size: [128, 256, 512]", "batch_size: [128, 256]", "the printed batch"),
    ),
    *mistakes(
        "search_spaces/crosslingual.yaml",
        "methods/test_presets_crosslingual.py",
        (
            "    bottleneck: [0, 128, 256]\n    contrast: [teacher, same, ce, none]\n\n  continuous",
            "    bottleneck: [0, 128]\n    contrast: [teacher, same, ce, none]\n\n  continuous",
            "B of Tables 7 and 8",
        ),
    ),
    *mistakes(
        "search_spaces/retrieval_kd.yaml",
        "methods/test_presets_retrieval_kd.py",
        ("temperature: [1, 2, 3, 4, 5, 6]", "temperature: [1, 2, 3, 4, 5]", "T of Tables 3 to 7"),
    ),
    *mistakes(
        "search_spaces/sra.yaml",
        "methods/test_presets_sra.py",
        (
            "finetune_learning_rate: [2e-4, 3e-4, 5e-4, 1e-3]",
            "finetune_learning_rate: [2e-4, 3e-4, 5e-4, 1e-2]",
            "the rates of section 4.3",
        ),
    ),
]

PREFLIGHT = [
    *mistakes(
        "preflight/weights.py",
        "preflight/test_trained_weights.py",
        (
            "if varies > math.sqrt((kurtosis - 1) / averaged)",
            "if varies < math.sqrt((kurtosis - 1) / averaged)",
            "matrices of a trained model count as random draws",
        ),
        (
            "if not ((values == 0).all() or (not bias and (values == 1).all())):",
            "if not (values == 0).all():",
            "norms of 1 count as trained",
        ),
        (
            "return bool(matrices) and all(drawn(tensors[name][:_ROWS]) for name in matrices)",
            "return bool(matrices)",
            "a trained model whose norms were folded away is accused",
        ),
        (
            "names = tuple(self.names[place] for place in kept)",
            "names = self.names",
            "random layers that the student does not keep are held against it",
        ),
    ),
    *mistakes(
        "preflight/weights.py",
        "preflight/test_examination.py",
        (
            'if spec.kwargs.get("pretrained", True) and not same and not made_here:',
            'if not spec.kwargs.get("pretrained", True) and not same and not made_here:',
            "a student's random checkpoint is not looked at",
        ),
        (
            "and not same and not made_here:",
            "and not same:",
            "random word vectors that the run makes itself are held against it",
        ),
    ),
    *mistakes(
        "preflight/vectors.py",
        "preflight/test_examination.py",
        (
            "rows, texts = sample_of(planned.workspace, store.texts, count)",
            "rows, texts = sample_of(planned.workspace, store.texts, 2)",
            "too few rows are computed again to see that some are shuffled",
        ),
        (
            "if not cosine >= FLOOR]",
            "if cosine < -FLOOR]",
            "vectors of other texts pass",
        ),
    ),
    *mistakes(
        "preflight/prompts.py",
        "preflight/test_examination.py",
        (
            "missing = [role for role in bare if wanted.of(role)]",
            "missing = [role for role in bare if wanted.of(role) and given]",
            "a prompt that the card wants is not missed where the folder names none",
        ),
        (
            "and not _decided(choice, role)]",
            "]",
            "a prompt that the user has emptied is missed",
        ),
    ),
    *mistakes(
        "preflight/contrast.py",
        "preflight/test_examination.py",
        (
            "loss.temperature(loss.anchors(student_BD) @ loss.keys(teacher_BE).T)",
            "loss.anchors(student_BD) @ loss.keys(teacher_BE).T",
            "the first softmax is computed without τ",
        ),
        (
            'others_BC = log_p_BC.scatter(1, places_B, float("-inf"))',
            "others_BC = log_p_BC",
            "the largest entry counts as outside of itself",
        ),
    ),
    *mistakes(
        "preflight/space.py",
        "preflight/test_examination.py",
        (
            "    needed = stores + students\n",
            "    needed = stores\n",
            "checkpoints are not counted for the disk",
        ),
        (
            "if needed > free:",
            "if needed > 1000 * free:",
            "a full disk is not seen",
        ),
    ),
    *mistakes(
        "preflight/bank.py",
        "preflight/test_examination.py preflight/test_bank.py",
        (
            "if not size >= rows > 0:",
            "if not size > 2 * rows > 0:",
            "a bank as large as the text is not seen",
        ),
    ),
    *mistakes(
        "preflight/examination.py",
        "preflight/test_examination.py",
        (
            "        findings += teacher_weights(planned)\n",
            "        teacher_weights(planned)\n",
            "a run says nothing of a random teacher at its start",
        ),
        (
            "        return [Finding(check, ERROR, str(error))]",
            "        return []",
            "a check that cannot be made is passed over",
        ),
    ),
    *mistakes(
        "cli/doctor.py",
        "preflight/test_examination.py",
        ("return int(has_errors(every))", "return 0", "errors do not reach the exit code"),
    ),
]
REMOTES = [
    *mistakes(
        "students/export/onnx.py",
        "students/test_formats.py",
        (
            "            reduce_range=True,\n",
            "",
            "products of 8 bits overflow where a CPU adds two of them in 16",
        ),
    ),
    *mistakes(
        "training/averaged.py",
        "sweeps/test_soup_export.py",
        (
            "        if unequal:",
            "        if False:",
            "students of different kinds are averaged",
        ),
        (
            "if not (among >= _ONE_SPACE and to_students >= among - 1e-3):",
            "if not among >= _ONE_SPACE:",
            "a mean that is far from the students is exported",
        ),
        (
            "if not (among >= _ONE_SPACE and to_students >= among - 1e-3):",
            "if not to_students >= among - 1e-3:",
            "students of two spaces are averaged",
        ),
        (
            "mean_of([encoder.student.state_dict() for encoder in encoders], first)",
            "mean_of([encoder.student.state_dict() for encoder in encoders[1:]], first)",
            "the first student has no part in the mean",
        ),
    ),
    *mistakes(
        "sweeps/export.py",
        "sweeps/test_soup_export.py",
        (
            "        metrics={},\n        reproducibility={**parts",
            "        reproducibility={**parts",
            "the card of a mean has the figures of its first student",
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
            "            if digest == file.sha256:\n                return",
            "            return",
            "what arrives is not compared with the manifest",
        ),
        (
            "for name in sorted(left, key=lambda name: name == MANIFEST):",
            "for name in sorted(left):",
            "the manifest of a fetched artifact appears before its files",
        ),
        (
            "            if not is_unchanged(content):",
            "            if False:",
            "an altered manifest of a remote is believed",
        ),
        (
            "if there.get(file.place(name)) != file.bytes}",
            "}",
            "what a killed publication has sent is sent again",
        ),
        (
            "return error.errno not in _FOR_GOOD and not any(",
            "return error.errno in _FOR_GOOD or not any(",
            "a full remote is asked again and again",
        ),
    ),
    *mistakes(
        "core/artifacts.py",
        "core/test_remotes.py",
        (
            "            if free and not (folder",
            "            if not (folder",
            "an artifact is fetched into the folder in which another process makes it",
        ),
        (
            "                remove_leftovers(folder)\n                remove_unfinished(folder)\n",
            "",
            "what a killed maker left stays beside what is fetched",
        ),
        (
            "        if self._is_whole(artifact):\n            self.publish(artifact)",
            "        if self._is_whole(artifact):\n            self.key(artifact)",
            "what a killed process finished but did not publish never is",
        ),
    ),
    *mistakes(
        "teachers/shards.py",
        "teachers/test_remote_store.py",
        (
            "    publish_shard(work, shard, rejected)\n    return shard",
            "    return shard",
            "a shard is on the node that made it alone",
        ),
        (
            "if OWN in note and is_unchanged(note) else None",
            "",
            "a damaged note of a published shard is believed",
        ),
    ),
    *mistakes(
        "teachers/build_state.py",
        "teachers/test_remote_store.py",
        (
            "    if all((folder / part_name(shard.part)).exists() for shard in shards):",
            "    if shards:",
            "a store whose shards are on other nodes counts as finished here",
        ),
    ),
    *mistakes(
        "training/checkpoint.py",
        "training/test_damage.py",
        (
            "    if not is_of(state, folder):",
            "    if False:",
            "training continues from the weights of another stage",
        ),
        (
            '    return "" if stated == step else',
            '    return "" if True else',
            "the checkpoint of another step is taken for the best one",
        ),
        (
            "    problem = damage_of_checkpoint(path)\n    if problem:",
            "    problem = damage_of_checkpoint(path)\n    if False:",
            "the bytes of a checkpoint are not compared with their checksums",
        ),
        (
            "found[step] = problem or _missing_best(state, step, good)",
            "found[step] = problem",
            "training continues from a checkpoint whose best one is gone",
        ),
        (
            "state.get(STEP, step)",
            "state.get(STEP)",
            "checkpoints of older versions are put aside",
        ),
        (
            "        aside = put_aside(path)\n        earlier",
            "        aside = path\n        earlier",
            "a damaged checkpoint stays in its place",
        ),
    ),
    *mistakes(
        "training/fit.py",
        "training/test_published_run.py",
        (
            "    checkpoint.heal(folder)\n    if published is not None and published.restore():\n",
            "    if published is not None and published.restore():\n        checkpoint.heal(folder)\n",
            "a damaged checkpoint counts as newer than the remote's",
        ),
        (
            "    if published is not None and published.restore():\n        checkpoint.heal(folder)",
            "    if published is not None:\n        published.restore()",
            "the checkpoint of the remote is not looked at",
        ),
    ),
    *mistakes(
        "training/published_run.py",
        "training/test_published_run.py",
        (
            "        if (self.folder / NAME).exists():",
            "        if False:",
            "a stage that goes on elsewhere has lost its first metrics",
        ),
        (
            "        self.workspace.publish(self.stage)\n        self.remote.remove(self.key)",
            "        self.workspace.publish(self.stage)",
            "checkpoints of finished stages stay in the remote for ever",
        ),
    ),
    *mistakes(
        "search/published_sweep.py",
        "search/test_published_sweep.py",
        (
            "theirs is None or _finished(theirs) <=",
            "theirs is None or _finished(theirs) >=",
            "an older study of the remote replaces a newer one",
        ),
        (
            '"confirmed.json", "journal',
            '"confirmations", "journal',
            "runs that an earlier head's local database has are not sent to a new head's",
        ),
    ),
    *mistakes(
        "search/trial.py",
        "search/test_published_sweep.py",
        (
            "Workspace(Path(self.root), self.remote)",
            "Workspace(Path(self.root))",
            "trials know nothing of the remote",
        ),
    ),
]
CLUSTER_AND_TRACKING = [
    *mistakes(
        "training/fit.py",
        "training/test_walk.py",
        (
            "state = on_rank0(lambda: checkpoint.load(self.folder, newest))",
            "state = checkpoint.load(self.folder, newest)",
            "a rank on another disk than the checkpoint cannot go on",
        ),
    ),
    *mistakes(
        "training/local.py",
        "training/test_walk.py",
        (
            "        write_json(workspace.place(stage) / PLAN, canonical(stage))\n",
            "",
            "what ranks on other disks have trained has no plan",
        ),
        (
            "        workspace.obtain(Path(model.path).parent.name, Path(model.path).name)",
            "        pass",
            "word vectors that another node has made are missing",
        ),
    ),
    *mistakes(
        "cluster/connection.py",
        "cluster/test_connection.py",
        (
            "    require_answer(where, seconds=_ANSWER_SECONDS)\n",
            "",
            "an address where nothing listens is left to Ray, which waits for two minutes",
        ),
        (
            'f".seen-{uuid.uuid4().hex}.tmp"',
            'f".seen-{node.id}"',
            "two threads that ask a node at once remove each other's file",
        ),
        (
            "    except TaskUnschedulableError:  #",
            "    except ZeroDivisionError:  #",
            "a command ends if a node goes while it is asked what it sees",
        ),
    ),
    *mistakes(
        "cluster/membership.py",
        "cluster/test_connection.py",
        (
            "{node['NodeManagerHostname']} ({node['NodeManagerAddress']})",
            "{node['NodeID']}",
            "a node that does not see the root is named by a hash",
        ),
    ),
    *mistakes(
        "cluster/probe.py",
        "cluster/test_probe.py",
        (
            '_of_this_machine() if where == "auto" else where',
            "where",
            "the last cluster of this machine, which has ended, is not asked",
        ),
        (
            "if error.code() == grpc.StatusCode.UNIMPLEMENTED:",
            "if False:",
            "the port of another service is waited for",
        ),
    ),
    *mistakes(
        "tracking/mlflow_server.py",
        "tracking/test_tracking_mlflow.py",
        (
            "        relocate(self.uri, _JOURNAL)\n",
            "",
            "a copied workspace writes its artifacts into the original's folder",
        ),
    ),
    *mistakes(
        "tracking/mlflow_tracker.py",
        "tracking/test_tracking_mlflow.py",
        (
            "with locked(lock_of_file(self.journal.path)):",
            "if True:",
            "what a closed tracker still sends is sent by the next one at the same time",
        ),
        (
            "                self._confirm(0)",
            "                pass",
            "a database that was removed is not sent everything again",
        ),
        (
            "if self._closing.is_set() and self._outage.hopeless:",
            "if self._closing.is_set():",
            "the last entries are given up at the first failure",
        ),
        (
            "return self.unreachable or time.monotonic() - self.since > _PATIENCE_S",
            "return time.monotonic() - self.since > _PATIENCE_S",
            "where nothing listens the end of a sweep is delayed",
        ),
        (
            "                if (outage := self._outage) and outage.hopeless:",
            "                if self._outage:",
            "a version is not waited for once the server has failed",
        ),
        (
            "return cls(reason, _unreachable(error), last.since, position, last.failures + 1)",
            "return cls(reason, _unreachable(error), time.monotonic(), position, last.failures + 1)",
            "a server that has failed for long delays the end of a sweep",
        ),
        (
            "        self._given_up.set()\n",
            "",
            "a tracker that was closed asks for ever",
        ),
    ),
    *mistakes(
        "tracking/location.py",
        "tracking/test_tracking_mlflow.py",
        (
            "        write_atomically(_mended(path), uuid.uuid4().hex.encode())",
            "        pass",
            "runs that a replaced database has lost are not sent again",
        ),
    ),
    *mistakes(
        "tracking/location.py",
        "tracking/test_tracking_mlflow.py",
        (
            "    WHERE t.key = ?\n",
            "    WHERE t.key = ? OR 1\n",
            "experiments of others in the same database are moved too",
        ),
        (
            "or not (path.parent / _ARTIFACTS).is_dir():",
            "or False:",
            "a database that was copied alone names artifacts that do not exist",
        ),
    ),
    *mistakes(
        "core/console.py",
        "core/test_console.py",
        ("if time.monotonic() - _heard >= limit:", "if False:", "a command may be silent for ever"),
        (
            "        what, began = activities[-1]",
            "        what, began = activities[0]",
            "the outermost work is named",
        ),
        (
            "while len(self.seen) > 1 and self.seen[1][0] <= at - _MINUTE_S:",
            "while False:",
            "the rate is that since the start",
        ),
    ),
    *mistakes(
        "training/follower.py",
        "training/test_follower.py",
        (
            "if plan.beside and not moved:",
            "if False:",
            "a diverged student of the baseline is reported for ever",
        ),
        (
            "elif not self.workspace.finished(plan.stage):",
            "elif False:",
            "a long last evaluation is not announced",
        ),
    ),
    *mistakes(
        "training/estimate.py",
        "sweeps/test_ahead.py",
        (
            'json.dumps([parts["student"], parts["max_length"], columns]',
            'json.dumps([parts["student"], parts["max_length"]]',
            "examples of one and of three texts are taken to be equally long",
        ),
    ),
    *mistakes(
        "search/experiment_file.py",
        "search/test_experiment_file.py",
        (
            "else [_with_data(value, data_root, file, known) for value in fields]",
            "else fields",
            "the data root stands in no source of a mix",
        ),
    ),
    *mistakes(
        "cli/embed.py",
        "cli/test_cli_corpora.py::test_the_texts_of_every_variant_of_a_file_are_embedded",
        (
            "facts[variant] = prepared.facts",
            'facts[""] = prepared.facts',
            "of a file's variants only the last is reported",
        ),
        (
            "        return {training.name: training.experiment for training in trainings_of(options)}",
            "        return {each.name: each.experiment for each in trainings_of(options)[:1]}",
            "only the first variant of a file is embedded",
        ),
    ),
    *mistakes(
        "corpora/mixing.py",
        "corpora/test_mixing.py::test_sources_of_one_corpus_are_told_apart",
        (
            'how.append(f"longer: {options.longer}")',
            "pass",
            "two sources of one corpus have the same name",
        ),
    ),
    *mistakes(
        "sweeps/ahead.py",
        "sweeps/test_ahead.py",
        ("duration(sum(known) / at_once)", "duration(sum(known))", "trials at once take as long as in turn"),
        (
            "left = max(0, options.trials - ended)",
            "left = options.trials",
            "trials that have ended are announced again",
        ),
        (
            "sum(not context.workspace.finished(of_baseline.plan(values)) for values in choices)",
            "len(choices)",
            "students that are trained are announced again",
        ),
    ),
]
_PLANNING = "sweeps/test_planning.py::test"
ARITHMETIC_OF_PLANS = (
    f"{_PLANNING}_jobs_go_to_whatever_is_free_first {_PLANNING}_every_part_by_hand "
    f"{_PLANNING}_a_stage_is_its_start_steps_checkpoints_and_evaluations "
    f"{_PLANNING}_each_rate_moves_its_own_part {_PLANNING}_time_grows_with_budgets_and_shrinks_with_nodes "
    f"{_PLANNING}_the_expected_share_of_a_trial_that_may_be_stopped"
)
NODES_OF_PLANS = (
    f"{_PLANNING}_nodes_are_numbers_and_kinds {_PLANNING}_time_grows_with_budgets_and_shrinks_with_nodes"
)
COUNTS_OF_PLANS = (
    f"{_PLANNING}_counts_and_sizes_are_those_of_the_finished_artifacts "
    f"{_PLANNING}_of_a_large_corpus_some_is_read_and_the_rest_estimated"
)
NOTES_OF_PLANS = (
    f"{_PLANNING}_a_sweep_compares_its_plan_with_its_outcome_once "
    f"{_PLANNING}_a_clock_counts_a_part_within_another_once"
)
PLANS = [
    *mistakes(
        "sweeps/planning/arithmetic.py",
        ARITHMETIC_OF_PLANS,
        (
            "began, kind, number = heapq.heappop(free)",
            "began, kind, number = max(free)",
            "a job waits for the slot that is free last",
        ),
        (
            "stepping = stage.examples / (rate.examples_per_second * processes)",
            "stepping = stage.examples / rate.examples_per_second",
            "several training processes take as long as one",
        ),
        (
            "checkpoints = stage.evaluations + 1 + stepping // CHECKPOINT_S",
            "checkpoints = stage.evaluations + 1",
            "checkpoints between evaluations take no time",
        ),
        (
            "stage.evaluations * _at(rates.encoding * processes, dev_tokens)",
            "stage.evaluations * _at(rates.embedding * processes, dev_tokens)",
            "students are evaluated at the teacher's rate",
        ),
        (
            "[[_at(each.rates.embedding, tokens) for each in nodes] for tokens in shards]",
            "[[_at(each.rates.encoding, tokens) for each in nodes] for tokens in shards]",
            "the teacher embeds at the student's rate",
        ),
        (
            "[of(work.trial, work.share)] * stopped",
            "[of(work.trial)] * stopped",
            "trials that are stopped early take as long as the others",
        ),
        (
            "jobs = [of(work.baseline)] * work.baselines + ",
            "jobs = ",
            "the baseline takes no time",
        ),
        (
            "            alive *= continue_p\n",
            "            alive = continue_p\n",
            "the second rung stops nobody",
        ),
        (
            "work.test_tokens + work.dev_tokens)",
            "work.test_tokens)",
            "the teacher is not measured on dev",
        ),
    ),
    *mistakes(
        "sweeps/planning/nodes.py",
        NODES_OF_PLANS,
        (
            "return sum(each.count * prices[each.kind] for each in nodes)",
            "return sum(prices[each.kind] for each in nodes)",
            "a node costs as much as eight",
        ),
        ("number and price > 0", "number and price >= 0", "a price of nothing"),
        (
            "capacity(need, [(shape, float(self.count))]) // need.workers",
            "capacity(need, [(shape, float(self.count))])",
            "every process of a trial counts as a trial",
        ),
    ),
    *mistakes(
        "sweeps/planning/counting.py",
        COUNTS_OF_PLANS,
        (
            "return self.factor if table in main else 1.0",
            "return self.factor",
            "held-out texts grow with the corpus",
        ),
        (
            "return self.rows(table) * len(ids) / max(1, len(texts))",
            "return float(len(ids))",
            "the tokens of a sample are taken for those of all",
        ),
        (
            "sum(file.size for file in files) / len(head)",
            "files[0].size / len(head) / 2",
            "half of a corpus is forgotten",
        ),
    ),
    *mistakes(
        "sweeps/planning/note.py",
        NOTES_OF_PLANS,
        (
            'plan.get("identity") != identity',
            "False",
            "the plan of another sweep is compared",
        ),
        (
            "                self.add(within, began - time.monotonic())",
            "                self.add(within, 0.0)",
            "seconds count twice, for a part and for that which it is in",
        ),
    ),
    *mistakes(
        "preflight/space.py",
        COUNTS_OF_PLANS,
        ("return rows * (2 * dim + 8)", "return rows * (4 * dim + 8)", "vectors are taken to be float32"),
        ("return 4 * tokens + 8 * rows", "return 8 * tokens + 8 * rows", "token ids are taken to be int64"),
    ),
]
HEALING = [
    *mistakes(
        "core/lines.py",
        "core/test_lines.py",
        (
            "and set(known.values()) <= set(spare.values()):",
            "and True:",
            "a copy that lags behind, or another log's, replaces the log",
        ),
        ("    if _is_good(ours, known):\n", "    if False:\n", "a good log is mixed with another's copy"),
        (
            "    if crossing or any(",
            "    if any(",
            "lines of the copy are written into the middle of good ones",
        ),
        ("        if at <= len(whole):", "        if False:", "what both files have in part is lost"),
        (
            "        if content != whole:\n            write_atomically(file, whole)",
            "        pass",
            "damaged files stay as they are",
        ),
    ),
    *mistakes(
        "tracking/journal.py",
        "tracking/test_journal_damage.py",
        (
            "for file in (self._file, self._copy):",
            "for file in (self._file,):",
            "the journal is written once",
        ),
        (
            "                line = checked_line(new)",
            '                line = json.dumps(new, default=str).encode() + b"\\n"',
            "lines have no checksum",
        ),
    ),
    *mistakes(
        "tracking/journal.py",
        "sweeps/test_verify.py",
        (
            "    kept = [line for line in lines if _parsed(line) is not None]\n",
            "    kept = lines\n",
            "damaged lines of the journal are never left out",
        ),
    ),
    *mistakes(
        "sweeps/test_log.py",
        "sweeps/test_verify.py",
        (
            "known in (suite, None, EVERY)",
            "known in (suite, None)",
            "a mended line of the test log counts for no suite",
        ),
    ),
    *mistakes(
        "sweeps/verify.py",
        "sweeps/test_verify.py",
        (
            "for path in passage_vectors.parts(folder) if not seal_holds(path)]",
            "for path in ()]",
            "damaged vectors of passages are not found",
        ),
    ),
    *mistakes(
        "experiments/vocabulary.py",
        "experiments/test_vocabulary.py",
        (
            "        if not workspace.finished(words):",
            "        if not folder.exists():",
            "damaged word vectors are used",
        ),
        ("            workspace.publish(words)\n", "", "word vectors are not published"),
    ),
    *mistakes(
        "core/integrity.py",
        "sweeps/test_sweep_export.py",
        (
            "        if elsewhere or not _is_same(folder / name, expected):",
            "        if elsewhere:",
            "an export that has changed is used",
        ),
        (
            "if path.name not in (CHECKSUMS, CARD)]",
            "if path.name != CHECKSUMS]",
            "a model card may not be edited",
        ),
    ),
    *mistakes(
        "core/integrity.py",
        "training/test_damage.py",
        (
            "path.parents[:4] if",
            "path.parents[:3] if",
            "a damaged checkpoint is thrown away at the end of its stage",
        ),
    ),
    *mistakes(
        "training/fit.py",
        "training/test_damage.py",
        (
            '"logged": self.metrics_log.lines,',
            '"logged": 0,',
            "nobody says that a metrics log has lost lines",
        ),
    ),
    *mistakes(
        "core/artifacts.py",
        "core/test_artifacts.py",
        (
            "return copy if stated in (None, _DAMAGED) and isinstance(copy, int) else stated",
            "return stated",
            "a damaged workspace.json stops every command",
        ),
        (
            'return content["format"] if is_unchanged(content) else _DAMAGED',
            'return content["format"]',
            "a flipped bit makes a workspace one of another format",
        ),
        (
            "if stated == FORMAT:  # Another",
            "if False:  # Another",
            "what another process has just written counts as damaged",
        ),
    ),
    *mistakes(
        "core/remotes.py",
        "core/test_remotes.py",
        (
            "            if kept != size:",
            "            if False:",
            "what a remote took and lost counts as published",
        ),
        (
            "        _uncut(lambda: self._patiently(lambda: self._write(name, iter([data]))))",
            "        self._patiently(lambda: self._write(name, iter([data])))",
            "a signal cuts what is being written",
        ),
        (
            "        if thread.ident is not None:\n            ended.wait()",
            "",
            "a signal leaves the thread alone that writes",
        ),
    ),
    *mistakes(
        "core/console.py",
        "core/test_redaction.py",
        (
            "        super().write(redacted(text))",
            "        super().write(text)",
            "what libraries print is logged as it is",
        ),
        ("if (hidden := redacted(written)) != written:", "if False:", "compiled code's secrets stay in logs"),
    ),
    *mistakes(
        "core/redaction.py",
        "core/test_redaction.py",
        (
            '        text = _IN_PATH.sub(rf"\\g<1>{HIDDEN}", text)\n',
            "",
            "a password behind the first slash is shown",
        ),
        (
            "    return _secrets_of_urls(text) | ({password, user} if odd else set())",
            "    return _secrets_of_urls(text)",
            "a password with a quote is shown",
        ),
    ),
]
GROWTH = [
    *mistakes(
        "cluster/slots.py",
        "cluster/test_slots.py",
        (
            "elif self._began is not None and now - self._seen >= _BETWEEN_S:",
            "elif self._began is not None:",
            "one wait for room is told as several",
        ),
        (
            'if groups.get(self.group(), {}).get("state") == "CREATED":',
            "if False:",
            "a run whose workers train is said to wait, since another of its shape does",
        ),
    ),
    *mistakes(
        "training/follower.py",
        "training/test_follower.py",
        ("elif wait.ended is not None and before:", "elif False:", "that ranks have room now is not told"),
        ("plan.due, plan.moved = now + self.every_s, now\n", "pass\n", "a run that waited is called stalled"),
    ),
    *mistakes(
        "training/worker.py",
        "training/test_walk.py::test_ranks_without_room_say_what_they_wait_for",
        (
            "with room_watched(_room_watch(task, need)):",
            "with contextlib.nullcontext():",
            "ranks wait for room and nobody says so",
        ),
    ),
    *mistakes(
        "training/worker.py",
        "training/test_walk.py::test_a_store_that_is_gone_does_not_hide_the_first_error",
        (
            "            with contextlib.suppress(Exception):\n                # A run that ended",
            "            with contextlib.nullcontext():\n                # A run that ended",
            "an error is hidden by one of tidying up",
        ),
        (
            "with contextlib.suppress(Exception):  # A store that is gone must",
            "with contextlib.nullcontext():  # A store that is gone must",
            "an error is hidden by one of asking the ranks to stop",
        ),
    ),
    *mistakes(
        "training/worker.py",
        "training/test_walk.py::test_a_run_whose_controller_is_killed_keeps_no_resources",
        (
            "                free_resources(task.workspace, stage)\n                mailbox.clear()",
            "                mailbox.clear()",
            "what a run held whose controller has gone is never free again",
        ),
    ),
    *mistakes(
        "training/worker.py",
        "training/test_walk.py::test_a_rank_fetches_word_vectors_that_another_node_has_made",
        (
            "            fetch_start(task.stage, task.workspace)\n",
            "",
            "ranks on other nodes lack the model that their student starts from",
        ),
    ),
    *mistakes(
        "cluster/slots.py",
        "cluster/test_slots.py",
        (
            "begun = max(fit, min(grown, max(_FEW, 2 * fit)))",
            "begun = grown",
            "all trials that will ever fit are proposed before the first has told anything",
        ),
        (
            "begun = fit + max(1, fit // 2) if self._grows else fit",
            "begun = fit",
            "nothing waits for a node, so an autoscaler is never asked for one",
        ),
        ("        begun = max(1, begun)\n", "", "a search without a node ends"),
        (
            "if time.monotonic() - self._seen >= _LOOK_S:",
            "if not self._number:",
            "the number of trials does not follow the nodes",
        ),
        (
            "        ray.util.remove_placement_group(group)",
            "        pass",
            "what was reserved while nodes were waited for stays reserved",
        ),
        (
            "    return _bundle(need) in found.impossible",
            "    return bool(found.impossible)",
            "a need is refused because another one is impossible",
        ),
        (
            "            else:\n                refused_since = math.inf\n",
            "",
            "a need is refused that the autoscaler called impossible for a moment, twice",
        ),
    ),
    *mistakes(
        "cluster/resources.py",
        "cluster/test_slots.py",
        (
            "if grown and not to_come and grows():",
            "if grown and not to_come:",
            "a cluster that stays is given teachers without limit",
        ),
        ("or _ON_KUBERNETES in os.environ", "", "KubeRay's first autoscaler counts as none"),
    ),
    *mistakes(
        "cluster/membership.py",
        "cluster/test_membership.py",
        (
            "if remark not in self._told]",
            "]",
            "what cannot be started is told at every look",
        ),
    ),
    *mistakes(
        "search/searcher.py",
        "search/test_searcher.py::test_no_more_trials_are_suggested_than_may_run_now",
        (
            "if self._slots is not None and len(self._running_now) >= self._slots():",
            "if self._slots is not None and len(self._running_now) > self._slots():",
            "one trial more than fits is proposed",
        ),
        (
            "        self._running_now.discard(trial_id)\n",
            "",
            "trials that have ended keep their slots",
        ),
    ),
    *mistakes(
        "search/studies.py",
        "search/test_study_mirror.py",
        (
            "there.number == trial.number and there.params == trial.params",
            "True",
            "trials of another study are taken for copies",
        ),
        (
            "        if step not in there.intermediate_values:\n",
            "        if False:\n",
            "the evaluations of a running trial do not reach the database",
        ),
        (
            "        if not there.state.is_finished():\n",
            "        if True:\n",
            "a trial that has ended in the database is written again",
        ),
        (
            "        if there.user_attrs.get(name) != content:\n",
            "        if False:\n",
            "what a trial reported at its end does not reach the database",
        ),
    ),
    *mistakes(
        "search/study_copies.py",
        "search/test_study_mirror.py",
        (
            "    put_aside_database(path)\n    for copy in copies_of(path):\n",
            "    put_aside_database(path)\n    for copy in []:\n",
            "the copies of an older study are taken for better than the one that takes its place",
        ),
    ),
    *mistakes(
        "search/study_mirror.py",
        "search/test_study_mirror.py",
        (
            "finished <= ended_trials(self.file)",
            "finished < ended_trials(self.file)",
            "a study that the database knows as well is put aside",
        ),
        (
            "            write_note_twice(self.folder / SWEEP_NOTE, begun)\n",
            "            pass\n",
            "another workspace does not know what the sweep was begun with",
        ),
        (
            'known["identity"] == begun["identity"]',
            "True",
            "a sweep writes its trials into the study of another one",
        ),
        (
            "            self._copied = now\n",
            "            self._copied = self._transactions()\n",
            "what is written while the study is copied waits for the next change",
        ),
        (
            "        if not self._told:\n            warn(problem)",
            "        if True:\n            warn(problem)",
            "a database that is away is told every second",
        ),
        (
            "patience_s=_PATIENCE_S, at_end=True",
            "patience_s=_PATIENCE_S",
            "the last trial does not reach the database",
        ),
        (
            "patience_s=_PATIENCE_S, at_end=True",
            "at_end=True",
            "a database that stands still holds the end of a sweep for ever",
        ),
        (
            'alone.execute(text(f"SELECT pg_advisory_lock({_MAKING_TABLES})"))',
            'alone.execute(text("SELECT 1"))',
            "two sweeps that find the database empty make the same tables",
        ),
        (
            "but {redacted(self.url)} ",
            "but {self.url} ",
            "the password of the database is printed",
        ),
    ),
    *mistakes(
        "search/studies.py",
        "search/test_searcher.py::test_a_process_that_is_killed_while_the_file_is_made_leaves_none",
        (
            "    if not path.exists():\n",
            "    if False:\n",
            "a study whose making was killed lacks an index for ever",
        ),
    ),
    *mistakes(
        "teachers/embedding.py",
        "teachers/test_embedding.py::test_actors_and_tasks_have_room_together",
        (
            "* (1 - _FOR_TASKS), 2)",
            ", 2)",
            "actors take every CPU of a small node, and no task runs",
        ),
        (
            "    if not grows() and cpus:\n",
            "    if cpus:\n",
            "the actors of all nodes to come are squeezed into those there are",
        ),
    ),
    *mistakes(
        "teachers/embedding.py",
        "teachers/test_embedding.py::test_a_node_is_asked_for_only_if_it_has_enough_to_do",
        (
            "max(shards // _SHARDS_PER_NODE, teacher_actors(work.device, grown=False))",
            "shards",
            "a node is started for every shard",
        ),
    ),
    *mistakes(
        "training/follower.py",
        "training/test_follower.py",
        (
            "examples = _seen_elsewhere(part, workspace)",
            "examples = 0",
            "a trial on another disk stands still",
        ),
    ),
    *mistakes(
        "evaluation/finite_encoder.py",
        "evaluation/test_judged_search.py",
        (
            "texts[first : first + PIECE]) for first in range(0, len(texts), PIECE)",
            "texts[first : first + len(texts)]) for first in range(0, len(texts), len(texts))",
            "a slow model encodes all passages before it says a word",
        ),
        (
            "        self._progress(self.done, self.total)\n        pieces",
            "        pieces",
            "the clock of the passages starts after the first of them",
        ),
        ("if self.done != self.total:", "if True:", "what is done at once has a line"),
    ),
    *mistakes(
        "cli/documents_by.py",
        "cli/test_documents_by.py::test_a_teacher_that_is_also_compared_with_is_measured_once",
        ("model.identity == self.teacher.identity", "False", "the teacher embeds all documents twice"),
        ("model.identity == self.teacher.identity", "True", "whatever is compared with is the teacher"),
    ),
    *mistakes(
        "cli/suites.py",
        "cli/test_documents_by.py::test_a_teacher_that_is_also_compared_with_is_measured_once",
        ("return by_teacher[0]", "return by_teacher[1]", "the model is compared with itself"),
    ),
    *mistakes(
        "training/metrics_log.py",
        "training/test_metrics_log.py",
        (
            "time.monotonic() - self._last >= PULSE_S",
            "time.monotonic() - self._last < PULSE_S",
            "the pulse beats when it need not",
        ),
        ("        self._last = time.monotonic()\n", "", "the clock of the pulse never starts"),
        (
            "            self.path.unlink(missing_ok=True)",
            "            pass",
            "an earlier process's pulse counts",
        ),
        (
            'notes.append((beat["examples"], beat["time"]))',
            'notes = [(beat["examples"], beat["time"])]',
            "a log that is ahead of the pulse is not believed",
        ),
    ),
    *mistakes(
        "training/fit.py",
        "training/test_fit.py",
        (
            "if self.pulse is not None and self.pulse.due():",
            "if self.pulse is not None:",
            "the pulse is written, and the control store told, at every step",
        ),
        (
            "self.pulse.beat(examples)",
            "pass",
            "nobody tells how far training is between two lines of the log",
        ),
    ),
    *mistakes(
        "training/fit.py",
        "training/test_published_run.py",
        ("self.published.tell(examples)", "pass", "nobody tells how far a run with a remote is"),
    ),
    *mistakes(
        "training/follower.py",
        "training/test_follower.py::test_the_rate_is_that_of_the_log_however_seldom_it_has_lines",
        (", at=max(now - ago, plan.since))", ")", "a rate is that of the looks, not of the log"),
        ("max(now - ago, plan.since)", "now - ago", "what another process trained counts as this one's rate"),
    ),
    *mistakes(
        "sweeps/room.py",
        "sweeps/test_room.py",
        ("if in_files or has_room_here(self._need):", "if True:", "a small head does everything"),
        (
            "if in_files or has_room_here",
            "if has_room_here",
            "vectors in files are looked for on another node",
        ),
        (
            "dataclasses.replace(self._need, workers=1), 1)",
            "self._need, 1)",
            "a trial that only waits has room",
        ),
        ("if self._is_here or remote is None:", "if True:", "what another node wrote stays there"),
        (
            "        shutil.rmtree(folder, ignore_errors=True)\n        remote.fetch",
            "        remote.fetch",
            "old files stay",
        ),
        ("        remote.remove(key)\n", "", "the remote keeps what was on its way"),
        (
            "    workspace.claim()  # The",
            "    # The",
            "a new node that exports takes its disk for an old workspace",
        ),
        (
            "    finally:\n        shutil.rmtree(folder, ignore_errors=True)\n",
            "    finally:\n        pass\n",
            "the other node keeps what nobody looks for",
        ),
    ),
    *mistakes(
        "sweeps/costs.py",
        "sweeps/test_room.py",
        ("if key not in known}", "if key}", "every student is timed, and again"),
        ("        write_note(path, known)\n", "", "what was timed is forgotten"),
        (
            'room.call("measuring the other students", _measured, unknown, context)',
            "_measured(unknown, context)",
            "students are timed on a machine of their own",
        ),
    ),
    *mistakes(
        "sweeps/deliver.py",
        "sweeps/test_refit.py::test_the_refit_is_tested_beside_its_trial_exported_and_tracked",
        (
            'room.call("testing the models", _test_all, contenders, workspace)',
            "_test_all(contenders, workspace)",
            "a small head tests all models",
        ),
        (
            'room.fill("exporting the best student", export, _write_export, context, champion.stage, card)',
            "_write_export(export, context, champion.stage, card)",
            "a small head exports",
        ),
        (
            'room.fill("drawing the figures", figures, _draw, ',
            "_draw(figures, ",
            "a small head draws",
        ),
    ),
    *mistakes(
        "preflight/space.py",
        "preflight/test_examination.py::test_of_a_store_that_is_streamed_two_windows_of_shards_need_room",
        ("min(rows, 2 * window * largest)", "min(rows, window * largest)", "one window is counted"),
        ("max(0, shard_count(rows) - 1)", "0", "shards are as small as the first"),
        ("if window else rows", "if not window else rows", "whole stores are taken for windows"),
    ),
    *mistakes(
        "cluster/resources.py",
        "cluster/test_slots.py::test_a_node_has_room_for_a_model_if_it_has_for_one_worker",
        (
            "here.get(name, 0.0) >= amount",
            "here.get(name, 0.0) > amount",
            "a node that just fits has no room",
        ),
        (
            "amount in need.worker.items())\n\n\ndef teacher",
            "amount in need.trial.items())\n\n\ndef teacher",
            "room is that of a trial which only waits",
        ),
    ),
    *mistakes(
        "sweeps/planning/arithmetic.py",
        "sweeps/test_planning.py",
        (
            "work.large_tokenising_s / cpus",
            "work.large_tokenising_s",
            "large tables are tokenised by one CPU",
        ),
    ),
    *mistakes(
        "teachers/embedding.py",
        "teachers/test_embedding.py::test_an_actors_memory_does_not_grow_with_the_shapes_of_its_batches",
        ("{**counts, **shapes,", "{**counts,", "the teacher's actors grow with each new shape of a batch"),
    ),
    *mistakes(
        "corpora/seen_keys.py",
        "corpora/test_seen_keys.py",
        (
            "equal = same & (there[:, 1] == keys_N2[open_, 1])",
            "equal = same",
            "texts that share half of their hash are duplicates",
        ),
        ("        place[open_] += 1\n", "        break\n", "of keys that share a half one is found"),
        (
            "        for run in self._runs:\n",
            "        for run in self._runs[-1:]:\n",
            "duplicates of early texts are kept",
        ),
    ),
    *mistakes(
        "corpora/tables.py",
        "corpora/test_tables.py",
        (
            "return first << min(index // _SHARDS_PER_SIZE, _DOUBLINGS)",
            "return first",
            "a thousand million rows are more files than a process may map",
        ),
        (
            '        """Close the last shard."""\n        self._decide()\n',
            '        """Close the last shard."""\n',
            "the last texts of a corpus are lost",
        ),
    ),
]
PREEMPTION = [
    *mistakes(
        "training/walk.py",
        "training/test_walk.py::test_a_stage_makes_way_with_a_checkpoint_if_its_node_is_about_to_go",
        (
            "                stop_requested=soon.is_set,\n",
            "",
            "training goes on until its node is gone",
        ),
        (
            "            if not soon.is_set():\n",
            "            if True:\n",
            "a trial that made way counts as interrupted by hand",
        ),
    ),
    *mistakes(
        "training/fit.py",
        "training/test_fit.py::test_checkpoints_are_frequent_while_a_node_is_about_to_go",
        ("save or soon)", "save)", "what ranks do until their node is gone is repeated"),
    ),
    *mistakes(
        "search/observer.py",
        "search/test_observer.py::test_a_trial_whose_node_goes_has_not_failed",
        (
            "            trial.run_metadata.num_failures -= 1\n",
            "",
            "a trial on spot instances fails after a few notices",
        ),
    ),
    *mistakes(
        "cluster/membership.py",
        "cluster/test_membership.py",
        (
            "self._news(id for id in self.draining() if id in now)",
            "self._news(self.draining())",
            "a node that is gone is looked for",
        ),
    ),
]
TOGETHER = [
    *mistakes(
        "sweeps/test_log.py",
        "sweeps/test_test_log.py",
        (
            "    with locked(lock_of_file(path)):\n        return",
            "    if True:\n        return",
            "two commands open the test for the first time",
        ),
    ),
    *mistakes(
        "evaluation/asymmetric.py",
        "evaluation/test_asymmetric.py",
        (
            "        with locked(lock_of(self.folder)):\n            shutil",
            "        if True:\n            shutil",
            "vectors are removed while another command writes them",
        ),
    ),
    *mistakes(
        "evaluation/benchmarks/retrieval.py",
        "evaluation/test_judged_search.py",
        ("    with locked(lock_of(folder)):", "    if True:", "two commands write the same vectors"),
    ),
    *mistakes(
        "cluster/leases.py",
        "cluster/test_leases.py",
        (
            'if other not in ("", holder) and now < until:',
            'if other not in ("", holder):',
            "the lease of a dead node is never free",
        ),
        (
            '        if self._held.get(key, ("",))[0] == holder:\n',
            "        if True:\n",
            "a lease is given back by another than its holder",
        ),
        (
            'every_s=_RENEW_S, name="lease"',
            'every_s=3600.0, name="lease"',
            "a lease ends while its holder works",
        ),
        (
            "        if workspace.remote is None or not _on_cluster():\n",
            "        if not _on_cluster():\n",
            "nodes that share a disk ask for leases",
        ),
    ),
    *mistakes(
        "core/artifacts.py",
        "sweeps/test_sweep_start.py",
        (
            "        if _flock(file, fcntl.LOCK_EX):\n            first()\n",
            "        first()\n",
            "a command removes what another is writing",
        ),
        (
            "            if _flock(file, fcntl.LOCK_EX):\n                last()\n",
            "            last()\n",
            "a command removes what another's trials need",
        ),
    ),
    *mistakes(
        "sweeps/sweep.py",
        "sweeps/test_sweep_start.py",
        (
            "    with locked(lock_of_sweep(folder), wait=False, held=held):\n",
            "    with contextlib.nullcontext(held):\n",
            "two commands write one study",
        ),
    ),
    *mistakes(
        "cluster/connection.py",
        "cluster/test_connection.py",
        (
            "require(seen.locked, _LOCKS,",
            "require(True, _LOCKS,",
            "a file system whose locks end at a node is taken",
        ),
    ),
]
MUTANTS: list[Mutant] = [
    *LOSSES,
    *OBJECTIVES,
    *METHODS,
    *VALUES,
    *STUDENTS,
    *DATA,
    *TRAINING,
    *EVALUATION,
    *SEARCH,
    *PREFLIGHT,
    *CLUSTER_AND_TRACKING,
    *REMOTES,
    *PLANS,
    *HEALING,
    *GROWTH,
    *PREEMPTION,
    *TOGETHER,
]
