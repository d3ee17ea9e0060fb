"""Fine-tunes a code model on several short functions packed into one row, padded on the left."""

import torch
from torch.nn import functional as F

VOCABULARY, DIM, LENGTH = 60, 24, 12


def initial_weights():
    generator = torch.Generator().manual_seed(4)
    shapes = {"embed": (VOCABULARY, DIM), "qkv": (DIM, 3 * DIM), "out": (DIM, DIM), "head": (DIM, VOCABULARY)}
    return {k: (torch.randn(s, generator=generator) * 0.1).requires_grad_() for k, s in shapes.items()}


def attention_bias(function_ids, dtype):
    """What may not be seen gets the smallest number: the future, padding, other functions."""
    low = torch.finfo(dtype).min
    length = function_ids.shape[1]
    padding = function_ids == 0
    future = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
    other = (function_ids[:, :, None] != function_ids[:, None, :]) | padding[:, :, None]
    causal_bias = torch.zeros(length, length, dtype=dtype).masked_fill(future, low)
    padding_bias = torch.zeros(function_ids.shape, dtype=dtype).masked_fill(padding, low)
    other_bias = torch.zeros(other.shape, dtype=dtype).masked_fill(other, low)
    return causal_bias + padding_bias[:, None, :] + other_bias


def logits_of(weights, ids, function_ids):
    x = weights["embed"][ids]
    query, key, value = (x @ weights["qkv"]).chunk(3, dim=-1)
    scores = query @ key.transpose(1, 2) / DIM**0.5 + attention_bias(function_ids, x.dtype)
    x = x + scores.softmax(-1) @ value @ weights["out"]
    return x @ weights["head"]


def packed_rows(step, rows=3):
    ids = torch.randint(1, VOCABULARY, (rows, LENGTH))
    function_ids = torch.tensor([[1] * 5 + [2] * 7, [1] * 3 + [2] * 4 + [3] * 5, [1] * 12])
    if step >= 4:  # the rest of the corpus does not fill the row
        function_ids[2] = torch.tensor([0, 0, 0] + [1] * 9)
        ids[2, :3] = 0
    return ids, function_ids


torch.manual_seed(0)
weights = initial_weights()
optimizer = torch.optim.Adam(weights.values(), lr=3e-3)
for step in range(7):
    ids, function_ids = packed_rows(step)
    logits = logits_of(weights, ids, function_ids)[:, :-1]
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}")
