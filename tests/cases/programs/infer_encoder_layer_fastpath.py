import torch
from torch import nn


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, dim_feedforward=32, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        y = self.layer(x)  # BIRTH
        return self.head(y[:, 0])


torch.manual_seed(0)
ranker = Ranker().eval()
with torch.inference_mode():
    for request in range(4):
        x = torch.randn(2, 6, 16)
        if request == 3:
            x[1, 0] *= 1e38  # a sensor glitch: finite, but its square is not
        print(request, ranker(x).argmax(dim=-1).tolist())

# truth:
# {"phase": "forward", "op": "aten._transformer_encoder_layer_fwd.default", "module": "layer", "step": 3, "kind": "nan", "samples": [1], "cause": "overflow", "also": ["bad-input"], "exit": 3}
