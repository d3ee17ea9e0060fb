"""The losses as torch has them, and the same as people write them by hand."""

import torch
import torch.nn.functional as F

squared_error = F.mse_loss
cross_entropy = F.cross_entropy
binary_cross_entropy = F.binary_cross_entropy_with_logits


def log_of_probability(logit: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    p = torch.sigmoid(logit)
    return -(label * torch.log(p) + (1 - label) * torch.log(1 - p)).mean()


def log_of_one_plus_exp(logit: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return (torch.log(1 + torch.exp(logit)) - label * logit).mean()


def contrastive(logit: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Pairs of the same label near each other, others at least 1 apart."""
    distance = torch.sqrt((logit[:, None] - logit[None, :]).square())
    same = (label[:, None] == label[None, :]).float()
    return (same * distance + (1 - same) * torch.relu(1 - distance)).mean()


def relative_error(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((prediction - target) / target).abs().mean()
