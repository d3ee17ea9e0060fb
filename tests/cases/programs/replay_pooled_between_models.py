import torch
from torch import nn

torch.manual_seed(0)


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(40, 8)

    def forward(self, ids):
        return self.e(ids)


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 3)

    def forward(self, x):
        return self.l(x).softmax(-1)


class Service:
    def __init__(self):
        self.embed, self.rank = Embedder().eval(), Ranker().eval()

    def pool(self, h, ids):
        alive = (ids > 2).float().unsqueeze(-1)
        return (h * alive).sum(1) / alive.sum(1)  # BIRTH

    @torch.inference_mode()
    def answer(self, ids):
        return self.rank(self.pool(self.embed(ids), ids))


svc = Service()
for req in range(6):
    ids = torch.randint(3, 40, (3, 6))
    if req == 4:
        ids[1] = torch.tensor([0, 1, 2, 0, 1, 1])  # stop words only
    print(req, svc.answer(ids).argmax(-1).tolist())

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": null, "step": 9, "kind": "nan", "samples": [1], "cause": "empty-selection", "also": ["divide-by-zero"], "exit": 3}
