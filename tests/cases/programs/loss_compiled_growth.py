import torch
from torch import nn


def tidy(graph_module, example_inputs):
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()
    return graph_module.forward


@torch.compile(backend=tidy)
def growth_loss(log_rate, observed):
    expected = torch.exp(log_rate)  # BIRTH
    return (expected - observed).abs().mean()


torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(5):
    x = torch.rand(4, 3)
    if step == 3:
        x[1] = 400 * model.weight.detach()[0].sign()
    loss = growth_loss(model(x), torch.ones(4, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten.exp.default", "module": null, "step": 3, "kind": "inf", "samples": [1], "cause": "overflow", "tempting": ["compiler-fault"], "exit": 3}
