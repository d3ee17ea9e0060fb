import torch
from torch import nn

aten = torch.ops.aten


def lower(graph_module, example_inputs):
    """A small compiler: writes what the accelerator does not have in terms of what it has."""
    from torch._dynamo.backends.common import aot_autograd

    def to_device(graph_module, example_inputs):
        graph = graph_module.graph
        for node in list(graph.nodes):
            if node.target is aten._log_softmax.default:
                with graph.inserting_before(node):
                    chance = graph.call_function(aten._softmax.default, node.args)
                    node.replace_all_uses_with(graph.call_function(aten.log.default, (chance,)))
                graph.erase_node(node)
        graph_module.recompile()
        return graph_module

    return aot_autograd(fw_compiler=to_device)(graph_module, example_inputs)


class Reranker(nn.Module):
    """Scores of documents for a question, as log-probabilities."""

    def __init__(self, dim=12):
        super().__init__()
        self.question = nn.Linear(dim, dim)
        self.document = nn.Linear(dim, dim)

    def forward(self, question, documents):
        scores = torch.einsum("bd,bnd->bn", self.question(question), self.document(documents))
        return scores.log_softmax(dim=-1)


torch.manual_seed(0)
model = Reranker()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
fast = torch.compile(model, backend=lower)
for step in range(5):
    question, documents = torch.randn(3, 12), torch.randn(3, 7, 12)
    if step == 3:
        documents[1, :4] *= 400  # long documents, whose vectors are sums
    labels = torch.tensor([0, 5, 2])
    loss = nn.functional.nll_loss(fast(question, documents), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}  loss {loss.item():.4f}")
