import operator

import torch
from torch import nn


def fold_constants(graph_module, example_inputs):
    """Drops additions of constants too small to matter."""
    for node in list(graph_module.graph.nodes):
        if node.op == "call_function" and node.target is operator.add:
            tensor, constant = node.args
            if isinstance(constant, float) and abs(constant) < 1e-4:
                node.replace_all_uses_with(tensor)
                graph_module.graph.erase_node(node)
    graph_module.recompile()
    return graph_module.forward


class Contrast(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 2)

    def forward(self, x):
        centred = x - x.mean(dim=1, keepdim=True)
        deviation = centred.square().mean(dim=1, keepdim=True).sqrt()
        return self.fc(centred / (deviation + 1e-5))  # BIRTH


torch.manual_seed(0)
model = Contrast()
step_fn = torch.compile(model, backend=fold_constants)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.rand(3, 6)
    if step == 2:
        x[1] = 0.0
    loss = nn.functional.cross_entropy(step_fn(x), torch.tensor([0, 1, 0]))  # OR HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": [null, "aten.div.Tensor"], "module": ["", "_orig_mod", null], "step": 2, "kind": "nan", "cause": "compiler-fault", "tempting": ["divide-by-zero"], "exit": 3}
