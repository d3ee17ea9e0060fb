import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


class Pendulum:
    """A stiff integrator: pushed hard enough it leaves the real numbers."""

    def reset(self):
        self.state = np.array([0.1, 0.0], dtype=np.float32)
        return self.state

    def step(self, force):
        angle, speed = self.state
        with np.errstate(all="ignore"):
            speed = speed + np.float32(0.1) * (np.sin(angle) + force * angle**3)
            angle = angle + np.float32(2.0) * speed
        self.state = np.array([angle, speed], dtype=np.float32)
        return self.state, 1.0


torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)).eval()
environment = Pendulum()
state = environment.reset()
for t in range(60):
    observation = torch.from_numpy(state)[None]  # BIRTH
    with torch.no_grad():
        action = Categorical(logits=policy(observation)).sample()
    state, reward = environment.step(np.float32(6.0 if action.item() else 4.0))
print("balanced for", t)

# truth:
# {"phase": "data", "op": null, "module": null, "step": [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30], "kind": ["nan", "inf"], "cause": "bad-input", "exit": 3}
