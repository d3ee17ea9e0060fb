import torch
from torch import nn


class Router(nn.Module):
    """Chooses experts by biased scores and weighs them by the scores themselves."""

    def __init__(self, dim, experts, chosen):
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.register_buffer("selection_bias", torch.linspace(-0.05, 0.05, experts))
        self.chosen = chosen

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        _, experts = (scores + self.selection_bias).topk(self.chosen, dim=-1)
        weights = scores.gather(-1, experts)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights, experts


class SparseBlock(nn.Module):
    def __init__(self, dim, experts, chosen):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.router = Router(dim, experts, chosen)
        self.inner = nn.Parameter(torch.randn(experts, dim, dim) * dim**-0.5)

    def forward(self, x):
        h = self.norm(x)
        weights, experts = self.router(h)
        made = torch.einsum("td,tkdo->tko", h, self.inner[experts]).relu()
        return x + torch.einsum("tk,tko->to", weights, made)


class Generator(nn.Module):
    def __init__(self, vocabulary=30, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList(SparseBlock(dim, 8, 2) for _ in range(2))
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = Generator().eval()
with torch.no_grad():
    # Routers sharpen in a long training: tokens of one kind are pushed away from nearly all experts.
    kind = nn.functional.layer_norm(model.embed.weight[3], (16,))
    model.blocks[0].router.gate.weight.mul_(20).sub_(0.7 * 20 * kind)
    for prompt in ([4, 9, 1, 20], [12, 6, 6, 2], [8, 3, 15, 27], [1, 2, 5, 9]):
        tokens = torch.tensor(prompt)
        chance, answer = model(tokens).softmax(dim=-1).max(dim=-1)
        print(prompt, "->", answer.tolist(), [round(p, 3) for p in chance.tolist()])
