import torch
from torch import nn

torch.manual_seed(0)
autoencoder = nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 6))
optimizer = torch.optim.Adam(autoencoder.parameters(), lr=1e-3)
frames = torch.rand(9, 4, 6)
frames[7, 3] = 0.2  # a flat frame
best = float("inf")
for t, frame in enumerate(frames):
    low, high = frame.amin(1, keepdim=True), frame.amax(1, keepdim=True)
    frame = (frame - low) / (high - low)  # BIRTH
    loss = nn.functional.mse_loss(autoencoder(frame), frame)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    best = min(best, loss.item())
print("best", round(best, 4))

# truth:
# {"phase": "data", "op": "aten.div.Tensor", "module": null, "step": 7, "kind": "nan", "samples": [3], "cause": "divide-by-zero", "also": ["bad-input"], "exit": 3}
