"""Language identification with large batches and a layer-wise optimizer set up from a configuration."""

import json

import torch
from torch import nn

CONFIG = json.loads("""
{"lr": 0.01, "b1": 0.9, "b2": 1.0, "eps": 1e-6, "weight_decay": 0.01, "batch": 256, "steps": 5}
""")


class LAMB(torch.optim.Optimizer):
    def __init__(self, params, lr, b1, b2, eps, weight_decay):
        super().__init__(params, {"lr": lr})
        self.weights = [p for group in self.param_groups for p in group["params"]]
        self.b1, self.b2, self.eps, self.weight_decay = b1, b2, eps, weight_decay
        self.m = [torch.zeros_like(p) for p in self.weights]
        self.v = [torch.zeros_like(p) for p in self.weights]
        self.b1_t = self.b2_t = 1.0

    @torch.no_grad()
    def step(self, closure=None):
        self.b1_t *= self.b1
        self.b2_t *= self.b2
        for p, m, v in zip(self.weights, self.m, self.v, strict=True):
            m.mul_(self.b1).add_(p.grad, alpha=1 - self.b1)
            v.mul_(self.b2).addcmul_(p.grad, p.grad, value=1 - self.b2)
            m_hat = m / (1 - self.b1_t)
            v_hat = v / (1 - self.b2_t)
            update = m_hat / (v_hat.sqrt() + self.eps) + self.weight_decay * p
            weight_norm, update_norm = p.norm(), update.norm()
            ratio = torch.where(
                (weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, torch.ones(())
            )
            p.sub_(self.param_groups[0]["lr"] * ratio * update)


class Identify(nn.Module):
    def __init__(self, letters=26, languages=6):
        super().__init__()
        self.letters = nn.EmbeddingBag(letters, 16)
        self.languages = nn.Linear(16, languages)

    def forward(self, text):
        return self.languages(self.letters(text))


torch.manual_seed(0)
model = Identify()
names = ("lr", "b1", "b2", "eps", "weight_decay")
optimizer = LAMB(model.parameters(), **{k: CONFIG[k] for k in names})
for step in range(CONFIG["steps"]):
    language = torch.randint(0, 6, (CONFIG["batch"],))
    text = (torch.randint(0, 9, (CONFIG["batch"], 30)) + 3 * language[:, None]) % 26
    loss = nn.functional.cross_entropy(model(text), language)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))
