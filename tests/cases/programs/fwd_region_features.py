import torch
from torch import nn


class RegionHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Conv2d(3, 6, 3, padding=1)
        self.classify = nn.Linear(6, 2)

    def forward(self, image, boxes):
        features = self.backbone(image).relu()
        regions = []
        for fmap, (x0, y0, x1, y1) in zip(features, (boxes / 4).long().tolist()):
            regions.append(fmap[:, y0:y1, x0:x1].mean(dim=(1, 2)))  # BIRTH
        return self.classify(torch.stack(regions))


torch.manual_seed(0)
head = RegionHead()
optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
for step in range(4):
    image = torch.rand(2, 3, 8, 8)
    boxes = torch.tensor([[0.0, 0.0, 16.0, 20.0], [4.0, 8.0, 30.0, 28.0]])
    if step == 2:
        boxes[1] = torch.tensor([9.0, 8.0, 11.0, 28.0])  # a thin lamp post
    loss = nn.functional.cross_entropy(head(image, boxes), torch.tensor([0, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "forward", "op": "aten.mean.dim", "module": "", "step": 2, "kind": "nan", "cause": "empty-selection", "tempting": ["divide-by-zero"], "exit": 3}
