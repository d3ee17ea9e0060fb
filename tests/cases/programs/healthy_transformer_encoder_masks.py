import torch
from torch import nn

torch.manual_seed(0)


class Seq(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, 1)

    def forward(self, x, pad):
        causal = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        additive = torch.zeros(pad.shape).masked_fill(pad, float("-inf"))
        h = self.encoder(x, mask=causal, src_key_padding_mask=additive)
        return self.head(h.masked_fill(pad.unsqueeze(-1), 0.0)).sum(1)


seq = Seq()
optimizer = torch.optim.Adam(seq.parameters(), lr=1e-3)
for step in range(4):
    x = torch.randn(3, 5, 8)
    pad = torch.arange(5)[None] >= torch.tensor([5, 3, 1])[:, None]
    loss = seq(x, pad).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.5f}")
seq.eval()
with torch.no_grad():
    print(bool(seq(torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)).isfinite().all()))

# truth:
# {"healthy": true, "exit": 0}
