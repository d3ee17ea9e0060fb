import torch
from torch import nn


class TiedLM(nn.Module):
    def __init__(self, vocab=11, dim=6):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.decoder = nn.Linear(dim, vocab, bias=False)
        self.decoder.weight = self.embed.weight

    def forward(self, ids):
        h = self.embed(ids)
        logits = self.decoder(h)
        return logits - torch.log(torch.exp(logits).sum(-1, keepdim=True))  # BIRTH


torch.manual_seed(0)
lm = TiedLM()
optimizer = torch.optim.SGD(lm.parameters(), lr=0.05)
for step in range(7):
    ids = torch.randint(0, 11, (3, 4))
    if step == 5:
        with torch.no_grad():
            lm.embed.weight[ids[0, 0]] *= 20  # somebody "boosts" a rare token
    log_p = lm(ids)
    loss = -log_p.gather(-1, ids.roll(-1, 1).unsqueeze(-1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.exp.default", "module": "", "step": 5, "kind": "inf", "cause": "overflow", "exit": 3}
