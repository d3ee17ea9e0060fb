"""Arguments of nanwatch's functions that cannot be taken as they are."""

SENTENCES: dict[str, tuple[str, str]] = {
    "argument.refused": (
        "{call}: {name} is {value}; {expected} was expected.",
        "{call}：{name} 为 {value}；这里需要{expected}。",
    ),
    "argument.whole_number": ("a whole number of at least {least}", "不小于 {least} 的整数"),
    "argument.number": ("a number of at least 0", "不小于 0 的数"),
    "argument.share": ("a number from 0 to 1", "0 到 1 之间的数"),
    "argument.positive": ("a finite number above 0", "大于 0 的有限数"),
    "argument.positive_up_to": ("a number above 0 and not above {most}", "大于 0 且不大于 {most} 的数"),
    "argument.yes_or_no": ("True or False", "布尔值 True 或 False"),
    "argument.folder": ("the path of a folder, or None", "目录的路径，或 None"),
    "argument.unknown": (
        "{call} has no argument {name}. It has: {known}.",
        "{call} 没有参数 {name}。可用的参数有：{known}。",
    ),
}
