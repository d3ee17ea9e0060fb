import torch
from torch import nn


def main():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e37)
    for step in range(3):
        x = torch.randn(8, 4)
        loss = (model(x) - 300 * x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 100.0)
        optimizer.step()  # BIRTH
        print(step, loss.item(), model.weight.tolist())


main()

# truth:
# {"phase": "optimizer", "op": "aten.add_.Tensor", "module": null, "step": 0, "kind": "inf", "cause": "bad-hyperparameter", "also": ["divergence"], "exit": 3}
