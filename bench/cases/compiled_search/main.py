import operator

import torch
from torch import nn


def halve_products(graph_module, example_inputs):
    """Runs matrix products in half precision, which is twice as fast."""
    graph = graph_module.graph
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in (torch.matmul, operator.matmul):
            with graph.inserting_before(node):
                halves = [graph.call_method("half", (argument,)) for argument in node.args]
            node.args = tuple(halves)
            with graph.inserting_after(node):
                back = graph.call_method("float", (node,))
            node.replace_all_uses_with(back, delete_user_cb=lambda user, back=back: user is not back)
    graph_module.recompile()
    return graph_module.forward


class ImageSearch(nn.Module):
    """Finds the nearest pictures by squared distance."""

    def __init__(self, pictures):
        super().__init__()
        self.register_buffer("pictures", pictures)

    def forward(self, query):
        products = torch.matmul(query, self.pictures.T)
        squares = query.square().sum(dim=1, keepdim=True) + self.pictures.square().sum(dim=1)
        return squares - 2 * products


torch.manual_seed(0)
gallery = 12 * torch.rand(40, 64)
search = torch.compile(ImageSearch(gallery).eval(), backend=halve_products)
with torch.inference_mode():
    for request in range(4):
        query = gallery[5 * request : 5 * request + 2] + torch.randn(2, 64)
        if request == 3:
            query = query * 40  # a picture in the old format, with values up to 480
        distance, found = search(query).min(dim=1)
        print(request, found.tolist(), [round(d, 1) for d in distance.tolist()])
