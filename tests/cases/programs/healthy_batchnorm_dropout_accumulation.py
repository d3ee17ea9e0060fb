import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
cnn = nn.Sequential(
    nn.Conv2d(1, 4, 3, padding=1),
    nn.BatchNorm2d(4),
    nn.ReLU(),
    nn.MaxPool2d(3, stride=2, padding=1),  # pads with -inf inside
    nn.Dropout(0.25),
    nn.Flatten(),
    nn.Linear(64, 3),
)
optimizer = torch.optim.SGD(cnn.parameters(), lr=0.05, momentum=0.9, nesterov=True)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=4)
for i in range(12):
    image, label = torch.rand(2, 1, 8, 8), torch.randint(0, 3, (2,))
    loss = F.cross_entropy(cnn(image), label, label_smoothing=0.1) / 3
    loss.backward()
    if i % 3 == 2:
        norm = nn.utils.clip_grad_norm_(cnn.parameters(), float("inf"))  # only to log it
        optimizer.step()
        warmup.step()
        optimizer.zero_grad()
        print(i, bool(norm.isfinite()), f"{loss.item():.4f}")

# truth:
# {"healthy": true, "exit": 0}
