import torch
from torch import nn


def expand(graph_module, example_inputs):
    """Writes compound functions as the elementary ones that the device has."""
    graph = graph_module.graph
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is torch.logsumexp:
            with graph.inserting_before(node):
                e = graph.call_function(torch.exp, (node.args[0],))
                s = graph.call_function(torch.sum, (e,), {"dim": node.kwargs["dim"]})
                node.replace_all_uses_with(graph.call_function(torch.log, (s,)))
            graph.erase_node(node)
    graph_module.recompile()
    return graph_module.forward


@torch.compile(backend=expand)
def energy_loss(scores, positive):
    partition = torch.logsumexp(scores, dim=1)  # BIRTH
    return (partition - (scores * positive).sum(dim=1)).mean()


torch.manual_seed(0)
model = nn.Linear(4, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(5):
    x = torch.randn(3, 4)
    if step == 3:
        x[2] *= -300
    positive = nn.functional.one_hot(torch.randint(0, 5, (3,)), 5).float()
    loss = energy_loss(model(x), positive)  # OR HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 3))

# truth:
# {"phase": "loss", "op": [null, "aten.exp.default"], "module": null, "step": 3, "kind": "inf", "cause": "compiler-fault", "tempting": ["overflow"], "exit": 3}
