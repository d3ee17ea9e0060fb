"""The numbers of one tensor, or of many: finite or not, counts, extremes, norms, in one pass over memory.

    numbers(t), many_numbers(ts)   records.Numbers, on the host
    is_finite(t)                   the verdict alone, on the host
    norms_by_device(gradients)     the total norm, left on the device: non-finite when a gradient is
    norm_and_verdict(gradients)    the same, on the host too a tensor
    latch(gradients, loss, kept)   the same and its verdict, kept in a GPU's memory
    numbers_and_norm(ls, gs)       losses and that norm at once, where all lie in host memory; else None
    statistics(x)                  torch.ops.nanwatch.statistics: seven numbers, left on the device

The CPU kernels are C, compiled in the background by the first call and cached for the user; until they are
ready, and where there is no compiler, torch does the same more slowly. `wait_until_ready()` waits for them.
"""

from nanwatch.tensors.compiled import wait_until_ready
from nanwatch.tensors.cuda_norm import Answer
from nanwatch.tensors.gradients import latch, norm_and_verdict, norms_by_device, numbers_and_norm
from nanwatch.tensors.measure import many_numbers, numbers
from nanwatch.tensors.statistics_op import FIELDS, statistics
from nanwatch.tensors.verdict import is_finite

__all__ = [
    "FIELDS",
    "Answer",
    "is_finite",
    "latch",
    "many_numbers",
    "norm_and_verdict",
    "norms_by_device",
    "numbers",
    "numbers_and_norm",
    "statistics",
    "wait_until_ready",
]
