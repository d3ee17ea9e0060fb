import torch
from torch import nn

torch.manual_seed(0)
teacher, student = nn.Linear(4, 5), nn.Linear(4, 5)
optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
for step in range(6):
    x, votes = torch.randn(8, 4), torch.rand(8, 5)
    with torch.no_grad():
        soft = teacher(x).softmax(-1)
    if step == 4:
        votes[2] = 0  # nobody has voted
    labels = votes / votes.sum(-1, keepdim=True)  # BIRTH
    logits = student(x)
    loss = nn.functional.cross_entropy(logits, labels) + nn.functional.kl_div(logits.log_softmax(-1), soft)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "data", "op": "aten.div.Tensor", "module": null, "step": 4, "kind": "nan", "cause": "divide-by-zero", "exit": 3}
