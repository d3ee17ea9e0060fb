import torch
from torch import nn


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, tokens):
        centre = tokens.mean(dim=0)  # BIRTH
        return self.fc(tokens - centre), centre


class MoE(nn.Module):
    def __init__(self, dim=4, experts=3):
        super().__init__()
        self.router = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(Expert(dim) for _ in range(experts))

    def forward(self, x):
        choice = self.router(x).argmax(dim=-1)
        out, centres = torch.zeros_like(x), []
        for k, expert in enumerate(self.experts):
            rows = (choice == k).nonzero().squeeze(1)
            y, centre = expert(x[rows])
            out = out.index_add(0, rows, y)
            centres.append(centre)
        return out, torch.stack(centres)


torch.manual_seed(0)
moe = MoE()
optimizer = torch.optim.AdamW(moe.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(24, 4)
    if step == 4:
        with torch.no_grad():
            moe.router.bias[2] = -100.0
    y, centres = moe(x)
    loss = y.square().mean() + 0.01 * centres.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.mean.dim", "module": "experts.2", "step": 4, "kind": "nan", "cause": "empty-selection", "exit": 3}
