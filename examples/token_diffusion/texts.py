"""Texts as images of tokens, row by row; what is left of an image is padding."""

from __future__ import annotations

import torch

SIDE = 4
PLACES = SIDE * SIDE
PROMPT = 3
"""So many tokens at the beginning of a text are given; the model makes the rest."""

Text = list[int]


def make_texts(count: int, vocabulary: int) -> list[Text]:
    """Phrases in random order: there is something to learn."""
    random = torch.Generator().manual_seed(1)
    phrases = torch.randint(0, vocabulary, (8, 4), generator=random).tolist()
    texts = []
    for _ in range(count):
        chosen = torch.randint(0, len(phrases), (4,), generator=random).tolist()
        length = int(torch.randint(PROMPT + 2, PLACES + 1, (1,), generator=random))
        texts.append([token for n in chosen for token in phrases[n]][:length])
    return texts


def collate(texts: list[Text]) -> dict[str, torch.Tensor]:
    ids = torch.zeros(len(texts), PLACES, dtype=torch.long)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(text, dtype=torch.long)
    lengths = torch.tensor([len(text) for text in texts])
    place = torch.arange(PLACES)
    return {
        "ids": ids,
        "filled": place < lengths[:, None],
        "asked": (place >= PROMPT) & (place < lengths[:, None]),
    }
