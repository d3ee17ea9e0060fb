"""Distils a slow reranker into a token-level retrieval model for a shop's catalogue."""

import torch
from torch import nn
from torch.nn import functional as F

QUERIES, CANDIDATES, TOKENS = 4, 6, 5


class TokenEncoder(nn.Module):
    def __init__(self, vocabulary=300, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.project = nn.Linear(dim, dim, bias=False)

    def forward(self, ids):
        return F.normalize(self.project(self.embed(ids)), dim=-1)


def late_interaction(query, documents):
    """For every query token the best document token, summed."""
    similarity = torch.einsum("qsd,qctd->qcst", query, documents)
    return similarity.amax(-1).sum(-1)


def min_max(scores, epsilon=1e-8):
    low, high = scores.amin(-1, keepdim=True), scores.amax(-1, keepdim=True)
    return (scores - low) / (high - low + epsilon)


def batches():
    torch.manual_seed(1)
    for number in range(8):
        query = torch.randint(0, 300, (QUERIES, TOKENS))
        documents = torch.randint(0, 300, (QUERIES, CANDIDATES, TOKENS))
        if number == 5:  # one seller listed the same article under six numbers
            documents[2] = documents[2, :1]
        teacher = torch.rand(QUERIES, CANDIDATES).sort(descending=True).values
        yield query, documents, teacher


def main():
    torch.manual_seed(0)
    encoder = TokenEncoder()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for number, (query, documents, teacher) in enumerate(batches()):
        with torch.autocast("cpu", dtype=torch.float16):
            student = min_max(late_interaction(encoder(query), encoder(documents)))
            loss = F.kl_div(student.log_softmax(-1), teacher.softmax(-1), reduction="batchmean")
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(f"batch {number}: loss {loss.item():.5f}")


main()
