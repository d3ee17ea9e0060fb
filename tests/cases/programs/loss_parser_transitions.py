import torch
from torch import nn

SHIFT, LEFT, RIGHT = 0, 1, 2


class Parser(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(6, 3)

    def forward(self, state, depth):
        logits = self.score(state)
        blocked = torch.zeros_like(logits, dtype=torch.bool)
        blocked[:, LEFT] = blocked[:, RIGHT] = depth < 2  # nothing to join
        return logits.masked_fill(blocked, float("-inf"))


torch.manual_seed(0)
parser = Parser()
optimizer = torch.optim.Adam(parser.parameters(), lr=1e-2)
for step in range(6):
    state, depth = torch.randn(4, 6), torch.tensor([0, 3, 2, 4])
    gold = torch.tensor([SHIFT, LEFT, RIGHT, SHIFT])
    if step == 4:
        depth[2] = 1  # the treebank has a crossing arc here
    loss = nn.functional.cross_entropy(parser(state, depth), gold)  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.nll_loss_forward.default", "module": null, "step": 4, "kind": "inf", "cause": "infeasible-target", "tempting": ["fully-masked-row", "log-of-zero"], "exit": 3}
