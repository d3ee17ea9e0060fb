import torch
from torch import nn

torch.use_deterministic_algorithms(True)


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


def pretrained():
    torch.manual_seed(1)
    state = Classifier(10).state_dict()
    return {k: v for k, v in state.items() if not k.startswith("head")}  # another task, another head


with torch.device("meta"):
    model = Classifier(3)
model = model.to_empty(device="cpu")  # BIRTH
report = model.load_state_dict(pretrained(), strict=False)
print("loaded all but", len(report.missing_keys))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    loss = nn.functional.cross_entropy(model(torch.randn(4, 5)), torch.randint(0, 3, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "weights", "op": [null, "aten.empty_like.default", "aten.empty.memory_format"], "module": [null, "", "head"], "step": [-1, 0], "kind": "nan", "cause": "uninitialised-memory", "tempting": ["bad-weights"], "exit": 3}
