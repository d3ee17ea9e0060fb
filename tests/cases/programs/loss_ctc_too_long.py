import torch
import torch.nn.functional as F
from torch import nn


class Acoustic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 16, 3, padding=1)
        self.proj = nn.Linear(16, 6)

    def forward(self, x):
        return self.proj(self.conv(x).relu().permute(2, 0, 1))


torch.manual_seed(0)
model = Acoustic()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    frames = torch.randn(2, 8, 10)
    target_lengths = torch.tensor([4, 3 if step < 3 else 9])
    targets = torch.randint(1, 6, (2, 9))
    targets[1, ::2], targets[1, 1::2] = 3, 3  # repeats need blanks between them
    log_probs = model(frames).log_softmax(2)
    input_lengths = torch.full((2,), 10)
    loss = F.ctc_loss(log_probs, targets, input_lengths, target_lengths)  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "loss", "op": "aten._ctc_loss.Tensor", "module": null, "step": 3, "kind": "inf", "samples": [1], "cause": "infeasible-target", "exit": 3}
