"""A softmax over a row that is -inf everywhere."""

from __future__ import annotations

from nanwatch.explain.birth import BirthOp
from nanwatch.explain.case import Case
from nanwatch.explain.claim import Against, Claim, Page
from nanwatch.explain.infinities import BORN, masked_row, origins_of_birth
from nanwatch.explain.masks import mask_constant
from nanwatch.explain.mechanism import dims_of, rows_all
from nanwatch.explain.remedies import offer
from nanwatch.explain.text import Text
from nanwatch.records import Remedy

PAGE = Page(
    title=Text("A softmax over a row that is masked everywhere", "对整行都被遮住的行做 softmax"),
    meaning=Text(
        "Masked positions hold -inf, and in one row every position is masked: a padded sample, a node "
        "without neighbours, a window that ended, a beam without a legal move. The softmax of nothing is 0 "
        "/ 0 and every value of the row is NaN; logsumexp gives -inf, and its gradient is NaN. Cleaning "
        "the output afterwards (nan_to_num, where) mends the value, not the gradient.",
        "被遮住的位置为 -inf，而某一行的所有位置都被遮住：全是填充的样本、没有邻居的节点、已结束的窗口、没"
        "有合法走法的状态。对空集做 softmax 就是 0 / 0，整行都是 NaN；logsumexp 得到 -inf，其梯度是 NaN。"
        "事后清理输出（nan_to_num、where）只修好了数值，修不好梯度。",
    ),
    proof=Text(
        "The row of scores that the op was given: every value is -inf, and the program wrote -inf there "
        "itself.",
        "该运算得到的那一行分数：每个值都是 -inf，而且是程序自己写入的 -inf。",
    ),
    cures=Text(
        "Say what such a row should give, before the softmax: leave one position open, fill the row with "
        "zeros and set the output to zero afterwards, or drop the row. scaled_dot_product_attention with a "
        "mask gives zeros for it. nanwatch.stable has a masked softmax that does this for value and "
        "gradient.",
        "在 softmax 之前就规定这样的行应得到什么：至少留一个位置，或先把该行填 0、事后把输出置 0，或去掉该"
        "行。带掩码的 scaled_dot_product_attention 对它给出 0。nanwatch.stable 中的带掩码 softmax 对数值和"
        "梯度都处理好了。",
    ),
    examples=("fwd_masked_attention_row", "fwd_mha_all_padding", "bwd_logsumexp_all_masked"),
)

WHY = Text(
    "Rows of {operand} that {op} was given are -inf everywhere: {count} of them{places}.",
    "{op} 的 {operand} 中有 {count} 行全为 -inf{places}。",
)
WHY_LATER = Text(
    "Rows of {operand} that {forward} was given in the forward pass are -inf everywhere: {count} of "
    "them{places}; {op} in the backward pass makes NaN of it.",
    "前向的 {forward} 的 {operand} 中有 {count} 行全为 -inf{places}；反向的 {op} 由此得到 NaN。",
)
WHY_ZERO = Text(
    "The zero that {op} was given as {operand} is the sum of exp over rows that are -inf everywhere.",
    "{op} 的 {operand} 为 0，是因为它是对全为 -inf 的行求 exp 之和。",
)
ROWS = Text(" (row {rows})", "（第 {rows} 行）")
NOT_WRITTEN = Text(
    "-inf is what became of the constant {value:g}, which the dtype cannot hold",
    "-inf 是该类型无法表示的常数 {value:g} 变成的",
)
SOME_COMPUTED = Text(
    "open: some of the infinities that it was given were computed, not written down",
    "存疑：它得到的无穷中有一些是计算得到的，不是程序写入的",
)
NOT_AGAIN = Text(
    "in the same step run again no row is masked everywhere", "重新运行这一步时没有整行被遮住的行"
)


def weigh(case: Case) -> Claim | Against | None:
    found = masked_row(case)
    if found is None or case.birth is None:
        return None
    mask = mask_constant(case)
    if mask is not None:
        return Against(NOT_WRITTEN.say(value=mask.value))
    op = case.birth.name
    count, rows = _rows(found.birth, found.mechanism.operand)
    shown = ROWS.say(rows=", ".join(map(str, rows[:5]))) if rows else ""
    if found.birth is not case.birth:
        why = WHY_LATER.say(
            forward=found.birth.name, count=count, operand=found.mechanism.operand, places=shown, op=op
        )
    elif found.mechanism is case.mechanism:
        why = WHY.say(op=op, count=count, operand=found.mechanism.operand, places=shown)
    else:
        why = WHY_ZERO.say(op=op, operand=found.mechanism.operand)
    if case.located.by == "live trace" and case.outcome("repeat").finite:
        return Claim("possible", why, (NOT_AGAIN.say(),), 2.0)
    if found.birth is case.birth and any(o.kind == BORN for o in origins_of_birth(case)):
        return Claim("likely", why, (SOME_COMPUTED.say(),), 2.0)
    return Claim("proved", why, (), 2.0)


def _rows(birth: BirthOp, operand: str) -> tuple[int, list[int]]:
    """How many rows are masked, and at which first index, where there is one."""
    scores = birth.tensor(operand)
    if scores is None:
        return 0, []
    hidden = scores == float("-inf") if scores.is_floating_point() else scores.bool()
    other = birth.tensor("other")
    if birth.name == "sub" and other is not None:
        sizes = [1] * (scores.dim() - other.dim()) + list(other.shape)
        dims = [d for d in range(scores.dim()) if sizes[d] == 1]
    elif "attention" in birth.name or operand != "self":
        dims = [scores.dim() - 1]
    else:
        dims = dims_of(birth.arguments.get("dim"), scores.dim())
    masked = rows_all(hidden, dims)
    along_first = scores.dim() > 1 and 0 not in dims and -scores.dim() not in dims
    rows = sorted({int(i) for i in masked.nonzero()[:, 0]}) if along_first else []
    return int(masked.sum()), rows


def remedies(case: Case) -> list[Remedy]:
    return offer(case, "safe-masked-softmax", "finite-mask", "drop-bad-rows", "skip-batch")
