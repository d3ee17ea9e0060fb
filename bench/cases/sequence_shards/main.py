import torch
import torch.nn.functional as F
from torch import nn

IGNORE = -100
SHARDS = 4


class Decoder(nn.Module):
    def __init__(self, vocabulary=40, dim=32):
        super().__init__()
        self.token = nn.Embedding(vocabulary, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, ids):
        causal = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
        return self.head(self.layers(self.token(ids), mask=causal, is_causal=True))


def conversation(step, length=32):
    """A prompt and its answer; only the answer is learned."""
    ids = torch.randint(1, 40, (2, length + 1))
    labels = ids[:, 1:].clone()
    prompt = 9 if step == 3 else 5
    labels[:, :prompt] = IGNORE
    return ids[:, :-1], labels


def ring_loss(logits, labels):
    """Each member of the ring holds a part of the sequence and computes its own loss."""
    parts = zip(logits.chunk(SHARDS, dim=1), labels.chunk(SHARDS, dim=1), strict=True)
    losses = [F.cross_entropy(x.flatten(0, 1), y.flatten(), ignore_index=IGNORE) for x, y in parts]
    return torch.stack(losses).mean()


torch.manual_seed(0)
model = Decoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
for step in range(6):
    ids, labels = conversation(step)
    loss = ring_loss(model(ids), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print("step", step, "loss", round(loss.item(), 4))
