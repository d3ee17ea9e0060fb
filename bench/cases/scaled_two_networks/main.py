"""Trains a segmenter and its boundary critic with one GradScaler; its first scales overflow, as they should."""

import torch
from torch import nn


def networks():
    torch.manual_seed(0)
    segmenter = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    critic = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(8 * 49, 1)
    )
    return segmenter, critic


def masks(count=8):
    picture = torch.randn(count, 1, 16, 16)
    return picture, (nn.functional.avg_pool2d(picture, 3, 1, 1) > 0).float()


segmenter, critic = networks()
optimizers = {
    "segmenter": torch.optim.AdamW(segmenter.parameters(), lr=2e-3),
    "critic": torch.optim.AdamW(critic.parameters(), lr=1e-3),
}
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=5)
accumulate = 2
for batch in range(16):
    picture, mask = masks()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = segmenter(picture)
        realness = critic(logits.sigmoid())
    fit = nn.functional.binary_cross_entropy_with_logits(logits.float(), mask)
    fool = nn.functional.softplus(-realness.float()).mean()
    scaler.scale((fit + 0.1 * fool) / accumulate).backward(inputs=list(segmenter.parameters()))
    with torch.autocast("cpu", dtype=torch.float16):
        judged = critic(mask) - critic(logits.detach().sigmoid())
    critic_loss = nn.functional.softplus(-judged.float()).mean()
    scaler.scale(critic_loss / accumulate).backward(inputs=list(critic.parameters()))
    if batch % accumulate == accumulate - 1:
        for name, net in (("segmenter", segmenter), ("critic", critic)):
            scaler.unscale_(optimizers[name])
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizers[name])
            optimizers[name].zero_grad()
        scaler.update()
        print(
            f"batch {batch}: fit {fit.item():.4f} critic {critic_loss.item():.4f} scale {scaler.get_scale():.0f}"
        )
