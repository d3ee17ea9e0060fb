"""nanwatch demo: the names of its programs, and one line with exit code 2 for what is wrong."""

SENTENCES: dict[str, tuple[str, str]] = {
    "demo.title_A": (
        "text generation, one layer after the other",
        "逐层文本生成",
    ),
    "demo.title_B": (
        "a mixture-of-experts engine with its experts on the CPU",
        "专家放在 CPU 上的混合专家（MoE）推理引擎",
    ),
    "demo.title_C": (
        "a deep MLP, an RNN and a transformer that explode or vanish",
        "会梯度爆炸或消失的深层 MLP、RNN 和 Transformer",
    ),
    "demo.title_D": (
        "an attention-pooling classifier over bags, with Accelerate",
        "基于 Accelerate 的注意力池化分类器（多实例包）",
    ),
    "demo.title_E": (
        "diffusion on token images",
        "基于 token 图像的扩散模型",
    ),
    "demo.how": (
        "To see one: nanwatch demo D --fault empty-bag. What goes wrong in each, in a sentence: "
        "nanwatch demo D --list",
        "运行其中一个：nanwatch demo D --fault empty-bag。查看每个故障的一句话说明：nanwatch demo D --list",
    ),
    "demo.unknown_letter": (
        "nanwatch: demo has no program {given}. Expected one of: {choices}; the list: nanwatch demo",
        "nanwatch：demo 没有程序 {given}。可选值：{choices}；完整列表见：nanwatch demo",
    ),
    "demo.unknown_fault": (
        "nanwatch: demo {letter} has no fault {fault}. Expected one of: {choices}",
        "nanwatch：demo {letter} 没有故障 {fault}。可选值：{choices}",
    ),
    "demo.unknown_argument": (
        "nanwatch: demo does not know {argument}; write for example: nanwatch demo D --fault empty-bag",
        "nanwatch：demo 不认识 {argument}；用法示例：nanwatch demo D --fault empty-bag",
    ),
    "demo.fault_of_what": (
        "nanwatch: demo was given --fault {fault} without a program, for example: "
        "nanwatch demo {where} --fault {fault}",
        "nanwatch：demo 只给了 --fault {fault}，没有给出程序，例如：nanwatch demo {where} --fault {fault}",
    ),
    "demo.no_examples": (
        "nanwatch: the example programs are not beside {package}. Install nanwatch again, or run it from a "
        "checkout.",
        "nanwatch：在 {package} 旁没有找到示例程序。请重新安装 nanwatch，或在代码仓库中运行。",
    ),
    "demo.no_list": (
        "nanwatch: {program} --list failed: {why}. Install what it needs, then try again.",
        "nanwatch：{program} --list 运行失败：{why}。请安装所需依赖后重试。",
    ),
}
