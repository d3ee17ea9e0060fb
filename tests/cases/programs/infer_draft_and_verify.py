import torch
from torch import nn


class LM(nn.Module):
    def __init__(self, vocab=8):
        super().__init__()
        self.table = nn.Embedding(vocab, vocab)

    def forward(self, token):
        return self.table(token).softmax(-1)


@torch.no_grad()
def speculate(draft, target, token, steps):
    out = []
    for step in range(steps):
        q, p = draft(token), target(token)
        proposal = torch.multinomial(q, 1).squeeze(1)
        accept = p.gather(1, proposal[:, None]) / q.gather(1, proposal[:, None])
        rest = torch.relu(p - q)
        rest = rest / rest.sum(dim=-1, keepdim=True)  # BIRTH
        corrected = torch.multinomial(rest, 1).squeeze(1)
        token = torch.where(torch.rand(len(token)) < accept.squeeze(1), proposal, corrected)
        out.append(token.tolist())
    return out


torch.manual_seed(0)
draft, target = LM().eval(), LM().eval()
with torch.no_grad():
    target.table.weight.copy_(draft.table.weight + 0.3 * torch.randn(8, 8))
    target.table.weight[5] = draft.table.weight[5]
print(speculate(draft, target, torch.tensor([0, 1]), 12))

# truth:
# {"phase": ["forward", "loss"], "op": "aten.div.Tensor", "module": null, "step": [1, 3], "kind": "nan", "cause": "invalid-probabilities", "also": ["divide-by-zero"], "exit": 3}
