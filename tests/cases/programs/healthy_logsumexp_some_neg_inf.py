import torch
from torch import nn


class CRFLike(nn.Module):
    def __init__(self, tags=4):
        super().__init__()
        self.emit = nn.Linear(5, tags)
        self.transition = nn.Parameter(torch.zeros(tags, tags))
        forbidden = torch.zeros(tags, tags)
        forbidden[2, 1] = forbidden[3, 0] = float("-inf")  # tags that may not follow each other
        self.register_buffer("forbidden", forbidden)

    def forward(self, x):
        emissions = self.emit(x)
        alpha = emissions[:, 0]
        for t in range(1, x.size(1)):
            score = alpha.unsqueeze(2) + self.transition + self.forbidden
            alpha = torch.logsumexp(score, dim=1) + emissions[:, t]
        return torch.logsumexp(alpha, dim=1)


torch.manual_seed(0)
crf = CRFLike()
optimizer = torch.optim.SGD(crf.parameters(), lr=0.05)
for step in range(5):
    x = torch.randn(2, 6, 5)
    loss = crf(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")

# truth:
# {"healthy": true, "exit": 0}
