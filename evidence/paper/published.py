"""The paper's figures, as they stand in *Learning from aggregated data with a maximum entropy model*.

Each is followed by where it stands. The paper's four plots are images without numbers in the text; what their
captions and the text beside them say is kept here in words.
"""

from __future__ import annotations

MODELS = {
    "logistic": "Logistic",
    "field": "MRF",
    "naive_bayes": "Naive Bayes",
    "best_pair": "B2f",
}
"""Our name of each model of the table, and the paper's."""

DATA_SETS = {
    "attribution": "Criteo-Attribution",
    "bank": "Bank marketing",
    "adult": "Adult",
    "adkdd_raw": "Criteo-AdKdd, (raw)",
    "adkdd_encoded": "Criteo-AdKdd, target encodings",
}
"""Our name of each data set of the table, and the paper's, in the paper's order."""

NLLH: dict[str, dict[str, float]] = {
    "attribution": {"logistic": 0.091, "field": 0.086, "naive_bayes": 0.053, "best_pair": 0.048},
    "bank": {"logistic": 0.427, "field": 0.421, "naive_bayes": 0.189, "best_pair": 0.318},
    "adult": {"logistic": 0.421, "field": 0.416, "naive_bayes": 0.213, "best_pair": 0.297},
    "adkdd_raw": {"logistic": 0.311, "field": 0.265, "naive_bayes": 0.175, "best_pair": 0.139},
    "adkdd_encoded": {"logistic": 0.303, "field": 0.285, "naive_bayes": 0.191, "best_pair": 0.168},
}
"""Section 5.3, Table 4 (tab:NLLHresults): NLLH on test records, by data set and model.

Its footnote: Naive Bayes on both versions of Criteo-AdKdd "without early stopping […] does completely
diverge". The best pair is that of the best test score (section 5.2); Naive Bayes is the best test value
during its training, and its penalty that of the best test value (appendix A); the logistic's penalty was
tried on a log 2 scale and kept if best on "the validation set", of which the paper says no more (appendix
A).
"""

ROWS = {"attribution": 16_000_000, "bank": 41_188, "adult": 48_842, "adkdd": 80_000_000}
FEATURES = {"attribution": 11, "bank": 20, "adult": 14, "adkdd": 19}
ADULT_ROWS = {"train": 32_561, "test": 16_281}
"""Section 5.1: records and features of each data set. Only of Adult is the split between train and test
told."""

GRID_LAMBDAS = (1, 4, 16, 64)
BANK_GRID: dict[tuple[int, int], float] = {
    # (λ_θ, λ_μ)
    (1, 1): 0.338,
    (1, 4): 0.322,
    (1, 16): 0.264,
    (1, 64): 0.174,
    (4, 1): 0.405,
    (4, 4): 0.405,
    (4, 16): 0.389,
    (4, 64): 0.337,
    (16, 1): 0.416,
    (16, 4): 0.415,
    (16, 16): 0.406,
    (16, 64): 0.382,
    (64, 1): 0.421,
    (64, 4): 0.420,
    (64, 16): 0.419,
    (64, 64): 0.406,
}
"""Section 5.3, Table 5 (tab:benchlambda2BanK): NLLH of the field on Bank's test records by (λ_θ, λ_μ)."""

TYPICAL_LAMBDA_THETA = (100, 1000)
"""Section 3.5, on regularisation: the range of λ_θ typical "on a dataset with 20 features and all
crossfeatures"."""

TYPICAL_LAMBDA_MU = 1
"""Section 3.5 and appendix A: λ_μ of 1 or less is fine, a higher one is only harmful."""

CHAINS = {"adult": 10_000, "bank": 10_000, "adkdd": 1_000_000}
"""Section 4.3: Gibbs samples used on each data set."""

CHAINS_SHARE = 0.1
"""Appendix A: go up to this share of the number of records, "if possible"."""

ITERATIONS = {"adkdd": 500, "adkdd_fast_mu": 250, "adkdd_default_steps": 1000}
"""Section 4.3: 500 iterations on Criteo-AdKdd, a few hours on 200 machines. Appendix A: the best results
there needed 250 with the longer step on μ, and more than 1,000 with the default steps."""

STEP = 1.0
FAST_STEP_MU = 5.0
"""Appendix A: both step sizes are 1/K, with K the number of tables; or 5/K on μ, which converged fastest
but "might be sometimes instable"."""

LARGE_STEP = 0.05
"""Section 5.3, beside Figure 3: the step on μ on Criteo-AdKdd; the same on θ too "lead the model to
diverge"."""

LOGISTIC_ITERATIONS = 200
"""Appendix A: iterations of L-BFGS of every logistic, the best pair's included."""

XOR_RATE = {0: 0.25, 1: 0.75}
XOR = {0: 0.1, 1: 0.9}
"""Section 4.2: P(Y=1|x₃) of the example, and what the pairwise field predicts with infinitely many
records."""

TRIPLETS = 220
TRIPLET_FEATURES = 12
TRIPLET_MODALITIES = 100
TRIPLET_LARGEST_DIFFERENCE = 0.001
"""Section 5.3 and Figure 4, on Criteo-AdKdd: all triplets of the 12 features of fewer than 100 modalities;
logistic less field was "smaller than 0.001" at most."""

ENCODING_ROWS = 4_000_000
ENCODING_MODALITIES = 1000
NOISE_SIGMA = 17.0
"""Section 5.2, on Criteo-AdKdd: held-out records that target encodings were learnt on, the number of
modalities that each stays below, and the Gaussian noise on each pre-aggregated count."""

TIMES_SLOWER_THAN_LOGISTIC = 100
"""Section 4.3: training the field against training the logistic on the records."""

FIGURES = {
    1: "Effect of number of Gibbs samples",
    2: "Effect of the gradient rescaling on the Adult dataset",
    3: "Effect of using different step sizes on Criteo-AdKdd (with target encodings) dataset",
    4: "Comparing MRF and logistic on 220 triplets of features",
}
"""Captions. The text beside them: Figure 2, the rescaled gradient is "clearly […] converging faster";
Figure 3, a longer step on μ than on θ "was highly beneficial"."""


# What follows does not stand in the paper but in the outputs of the notebook RunOnBankingDataset.ipynb of the
# authors' published code, run on Adult in its published split: numbers such as those behind the figures. The
# code makes tables of the single features beside those of all pairs, codes every numeric column by ten bins
# of equal width, has no validation part, and takes steps of 0.01 on both μ and θ.

NOTEBOOK_TABLES = "singles,pairs"
NOTEBOOK_STEP = 0.01
NOTEBOOK_ITERATIONS = 200

NOTEBOOK_ADULT: dict[str, dict[int, float]] = {
    "logistic": {10: 0.4206, 100: 0.4072, 1000: 0.3565},
    "field": {
        1: 0.4091,
        4: 0.4160,
        10: 0.4187,
        16: 0.4192,
        64: 0.4155,
        100: 0.4125,
        128: 0.4103,
        1000: 0.3690,
    },
    "naive_bayes": {1: 0.1767, 10: 0.1948, 100: 0.2435},
}
"""NLLH on Adult's test records by λ_θ, λ_μ = 1, after 200 iterations. The logistic is fitted by 200 steps of
the same preconditioned gradient descent on the records, not by L-BFGS; Naive Bayes is the field of the single
tables alone."""

NOTEBOOK_ADULT_LOGISTIC_TRAIN = {10: 0.4482, 100: 0.4188, 1000: 0.3592}
"""The same logistics on the training records."""

NOTEBOOK_CHAINS = {
    100: 0.3853,
    200: 0.4046,
    500: 0.4108,
    1_000: 0.4129,
    2_000: 0.4132,
    5_000: 0.4127,
    10_000: 0.4124,
    50_000: 0.4125,
    100_000: 0.4125,
}
"""The same by the number of Gibbs samples, λ_θ = 100, λ_μ = 1, 200 iterations (Figure 1)."""

NOTEBOOK_GRADIENTS: dict[str, dict[int, float]] = {
    "rescaled": {
        50: 0.3919,
        100: 0.4075,
        150: 0.4110,
        200: 0.4125,
        250: 0.4133,
        300: 0.4138,
        350: 0.4143,
        400: 0.4146,
        450: 0.4148,
        500: 0.4151,
    },
    "plain": {
        50: 0.3596,
        100: 0.3987,
        150: 0.4089,
        200: 0.4119,
        250: 0.4132,
        300: 0.4139,
        350: 0.4145,
        400: 0.4149,
        450: 0.4152,
        500: 0.4154,
    },
}
"""The same by iteration for the two gradients, λ_θ = 100, λ_μ = 1, 100,000 Gibbs samples (Figure 2)."""

NOTEBOOK_STEPS: dict[str, dict[int, float]] = {
    "5 × on μ": {
        50: 0.3996,
        100: 0.4078,
        150: 0.4108,
        200: 0.4124,
        250: 0.4132,
        300: 0.4138,
        350: 0.4142,
        400: 0.4146,
        450: 0.4146,
        500: 0.4150,
    },
    "5 × on both": {
        50: 0.3580,
        100: 0.3560,
        150: 0.3630,
        200: 0.3564,
        250: 0.3607,
        300: 0.3680,
        350: 0.3688,
        400: 0.3683,
        450: 0.3715,
        500: 0.3558,
    },
}
"""The same by iteration with longer steps, λ_θ = 100, λ_μ = 1, 10,000 Gibbs samples: on Adult, where the
paper's Figure 3 is of Criteo-AdKdd."""

NOTEBOOK_GRID_NOTE = (
    "the loop that the authors' notebook calls table 5 runs on Adult and never uses its second variable: λ_μ "
    "is 1 in every cell of it, and what it prints as λ_μ is λ_θ"
)
"""On the published code of the grid (Table 5 of the paper is of Bank, and varies along both)."""
