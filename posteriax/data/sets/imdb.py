"""IMDB: 25,000 film reviews for training and 25,000 for testing, half of them positive (Maas et al. 2011)."""

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np

from posteriax._internal.checks import check_count
from posteriax.data.sets.data_set import DataSet, Part, register
from posteriax.data.sets.fetching import DataError, Remote, damaged, data_folder, fetch, find_arrays, read_archive

ARCHIVE = Remote(
    "aclImdb_v1.tar.gz",
    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    "md5:7c2ac02c03563afcf9b574c7e56c153a",
)
ARRAYS = ("tokens_train", "offsets_train", "y_train", "tokens_test", "offsets_test", "y_test")
PADDING, START, UNKNOWN, FIRST_WORD = 0, 1, 2, 3
WORDS = 20_000
REVIEW = re.compile(r"aclImdb/(train|test)/(neg|pos)/\d+_\d+\.txt")


@register("imdb")
def load_imdb(name: str, folder: str | Path | None = None, *, length: int = 100, words: int = WORDS) -> DataSet:
    """Reviews as word indices, (N, length): the most frequent words have the lowest indices.

    A long review keeps its last words; a short one is padded at its beginning, so that a recurrent network ends on its
    words. Index 0 is padding, 1 the start of a review, 2 any rarer word.

    Args:
        length: words per review.
        words: the size of the vocabulary, at most 20,000.
    """
    check_count("length", length)
    if not 3 < words <= WORDS:
        raise ValueError(f"words must be between 4 and {WORDS:,}, got {words}")
    location = data_folder(folder)
    arrays = find_arrays(location, ["imdb"], ARRAYS) or _from_archive(fetch(ARCHIVE, location))
    parts: dict[str, Part] = {}
    for part in ("train", "test"):
        tokens = np.where(arrays[f"tokens_{part}"] < words, arrays[f"tokens_{part}"], UNKNOWN)
        offsets, y = arrays[f"offsets_{part}"].astype(np.int64), arrays[f"y_{part}"]
        if len(offsets) != len(y) + 1 or offsets[0] != 0 or offsets[-1] != len(tokens) or (np.diff(offsets) < 0).any():
            raise DataError(f"offsets_{part} of imdb.npz do not divide its {len(tokens)} tokens into {len(y)} reviews")
        parts[part] = (pad(tokens, offsets, length), y.astype(np.int32))
    return DataSet(name, parts["train"], parts["test"], ("bad", "good"))


def pad(tokens: np.ndarray, offsets: np.ndarray, length: int) -> np.ndarray:
    """Concatenated sequences as rows of the same length: the last `length` tokens of each.

    >>> pad(np.array([5, 6, 7, 8, 9]), np.array([0, 1, 5]), 3).tolist()
    [[0, 0, 5], [7, 8, 9]]
    """
    padded = np.full((len(offsets) - 1, length), PADDING, np.int32)
    for row, (first, last) in enumerate(pairwise(offsets)):
        kept = tokens[max(first, last - length) : last]
        padded[row, length - len(kept) :] = kept
    return padded


def _from_archive(path: Path) -> dict[str, np.ndarray]:
    """The reviews, with words indexed by their frequency in the training reviews."""
    texts: dict[str, list[tuple[str, list[str], int]]] = {"train": [], "test": []}
    try:
        for name, data in read_archive(path, REVIEW.fullmatch):
            _, part, kind, _ = name.split("/")
            texts[part].append((name, _split(data.decode()), int(kind == "pos")))
    except UnicodeDecodeError as error:
        raise damaged(path, error) from error
    counts = Counter(word for _, review, _ in texts["train"] for word in review)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: WORDS - FIRST_WORD]
    number = {word: i for i, word in enumerate(ranked, FIRST_WORD)}
    arrays = {}
    for part, reviews in texts.items():
        if len(reviews) != 25_000:
            raise DataError(f"{path} holds {len(reviews):,} {part} reviews, not 25,000: delete it, and load again")
        rows = [[START, *(number.get(word, UNKNOWN) for word in review)] for _, review, _ in sorted(reviews)]
        arrays[f"tokens_{part}"] = np.concatenate([np.array(row, np.uint16) for row in rows])
        arrays[f"offsets_{part}"] = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        arrays[f"y_{part}"] = np.array([good for *_, good in sorted(reviews)])
    return arrays


def _split(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.replace("<br />", " ").lower())
