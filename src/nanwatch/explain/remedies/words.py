"""What each source edit does, in a sentence."""

from __future__ import annotations

from nanwatch.explain.text import Text

EDITS: dict[str, Text] = {
    "split-eigenvalues": Text(
        "Put a different small number on each place of the diagonal: the derivative divides by what two "
        "eigenvalues or singular values differ by.",
        "在对角线的每个位置加上不同的小数：其导数要除以两个特征值或奇异值之差。",
    ),
    "log-softmax": Text(
        "Take log_softmax in one go instead of the log of a softmax that may underflow to 0.",
        "用 log_softmax 一步完成，不要对可能下溢为 0 的 softmax 取 log。",
    ),
    "clamp-log": Text(
        "Keep the operand of the log above 0.",
        "让 log 的操作数保持大于 0。",
    ),
    "clamp-divisor": Text(
        "Keep the divisor away from 0.",
        "让除数远离 0。",
    ),
    "max-with-one": Text(
        "Divide by at least 1: a count may be 0.",
        "除数至少为 1：计数可能为 0。",
    ),
    "eps-inside-sqrt": Text(
        "Add an eps inside the root: its derivative at 0 is infinite.",
        "在根号内加上 eps：根号在 0 处的导数为无穷大。",
    ),
    "clamp-domain": Text(
        "Keep the operand inside the domain of the function, off its edge.",
        "让操作数保持在函数的定义域之内，并离开边界。",
    ),
    "bounded-exp": Text(
        "Bound the operand of the exponential by what the dtype can hold.",
        "按该精度的上限限制指数函数的操作数。",
    ),
    "upcast-op": Text(
        "Do this operation in float32.",
        "用 float32 做这一步运算。",
    ),
    "bfloat16-cast": Text(
        "Convert to bfloat16 instead: it has the range of float32.",
        "改为转换成 bfloat16：它的数值范围与 float32 相同。",
    ),
    "safe-masked-softmax": Text(
        "Give a row in which everything is masked zeros instead of 0/0 (nanwatch.stable.masked_softmax "
        "does the same).",
        "对全部被掩掉的行给出 0，而不是 0/0（nanwatch.stable.masked_softmax 同样如此）。",
    ),
    "guarded-mean": Text(
        "The mean of nothing is 0: divide the sum by at least 1.",
        "空集的均值取 0：用和除以至少为 1 的数。",
    ),
    "where-not-product": Text(
        "Choose with where instead of multiplying: zero times infinity is NaN.",
        "用 where 选择，不要用乘法：0 乘以无穷大是 NaN。",
    ),
    "double-where": Text(
        "Give the function a harmless operand where its result is not taken: else the derivative of the "
        "branch not "
        "taken is 0 * inf.",
        "在结果不被采用的位置给函数一个无害的操作数，否则未被选中分支的导数为 0 * inf。",
    ),
}
