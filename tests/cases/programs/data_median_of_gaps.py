import io

import numpy as np
import torch
from torch import nn

CSV = """age,income,visits,bought
31,2100,4,0
45,,2,1
28,1800,7,0
52,3900,1,1
39,,3,1
61,4200,2,1
24,1500,9,0
35,2600,5,0
"""

table = np.genfromtxt(io.StringIO(CSV), delimiter=",", skip_header=1, dtype=np.float32)
features, target = table[:, :3], table[:, 3]
gaps = np.isnan(features)
features[gaps] = np.broadcast_to(np.median(features, axis=0), features.shape)[gaps]
x, y = torch.tensor(features), torch.tensor(target)  # BIRTH
x = (x - x.mean(0)) / x.std(0)

torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, round(loss.item(), 4))

# truth:
# {"phase": "data", "op": null, "module": null, "step": [-1, 0], "kind": "nan", "cause": "bad-input", "exit": 3}
