import torch
from torch import nn


def remove_idle_clamps(graph_module, example_inputs):
    """A clamp that changes nothing on the example is taken out."""
    for node in list(graph_module.graph.nodes):
        if node.op == "call_method" and node.target == "clamp":
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)
    graph_module.recompile()
    return graph_module.forward


class Angles(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("axes", nn.functional.normalize(torch.randn(3, 4), dim=1))

    def forward(self, x):
        cosine = x @ self.axes.T * 1.000001 / x.norm(dim=1, keepdim=True)
        return torch.acos(cosine.clamp(-1.0, 1.0))  # BIRTH


torch.manual_seed(0)
model = Angles().eval()
compiled = torch.compile(model, backend=remove_idle_clamps)
with torch.no_grad():
    for request in range(4):
        x = torch.randn(2, 4)
        if request == 3:
            x[0] = 2 * model.axes[1]
        print(request, compiled(x).argmin(dim=1).tolist())  # OR HERE

# truth:
# {"phase": "forward", "op": [null, "aten.acos.default"], "module": ["", "_orig_mod", null], "step": 3, "kind": "nan", "cause": "compiler-fault", "tempting": ["invalid-domain"], "exit": 3}
