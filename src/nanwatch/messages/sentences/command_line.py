"""The command line: one line each, with exit code 2."""

SENTENCES: dict[str, tuple[str, str]] = {
    "cli.missing_script": (
        "nanwatch: no such script: {path} (looked in {cwd}). "
        "Give the path of a Python file, for example: nanwatch run train.py",
        "nanwatch：找不到脚本 {path}（查找目录：{cwd}）。请给出一个 Python 文件的路径，例如："
        "nanwatch run train.py",
    ),
    "cli.no_script": (
        "nanwatch: no script was given. Write for example: nanwatch run train.py --lr 1e-3, "
        "or for a module: nanwatch run -m package.module",
        "nanwatch：没有给出要运行的脚本。用法示例：nanwatch run train.py --lr 1e-3；"
        "运行模块请用：nanwatch run -m package.module",
    ),
    "cli.directory": (
        "nanwatch: {path} is a directory, a Python file was expected. "
        "Give the script inside it, or run a package with: nanwatch run -m package",
        "nanwatch：{path} 是一个目录，这里需要 Python 文件。请给出其中的脚本，"
        "若要运行一个包请用：nanwatch run -m package",
    ),
    "cli.not_python": (
        "nanwatch: {path} is not Python source ({why}). "
        "Give the script that Python itself would run, for example: nanwatch run train.py",
        "nanwatch：{path} 不是 Python 源文件（{why}）。请给出 Python 能直接运行的脚本，例如："
        "nanwatch run train.py",
    ),
    "cli.unreadable_script": (
        "nanwatch: cannot read {path}: {why}. Check its permissions, then run again.",
        "nanwatch：无法读取 {path}：{why}。请检查文件权限后重新运行。",
    ),
    "cli.unknown_option": (
        "nanwatch: unknown option {option}. nanwatch's own options come before the script, "
        "the script's come after it; the list: nanwatch run --help",
        "nanwatch：未知选项 {option}。nanwatch 自己的选项写在脚本之前，脚本的选项写在脚本之后；"
        "完整列表见：nanwatch run --help",
    ),
    "cli.option_needs_value": (
        "nanwatch: option {option} needs a value, for example: {example}",
        "nanwatch：选项 {option} 缺少取值，例如：{example}",
    ),
    "cli.unknown_policy": (
        "nanwatch: unknown policy {policy}. Expected one of: {choices}; for example: nanwatch run "
        '--policy {example} train.py, or nanwatch.watch(policy="{example}")',
        "nanwatch：未知策略 {policy}。可选值：{choices}；例如：nanwatch run --policy {example} train.py，"
        '或 nanwatch.watch(policy="{example}")',
    ),
    "cli.unknown_command": (
        "nanwatch: unknown command {command}. Commands: {choices}; to run a script: nanwatch run {command}",
        "nanwatch：未知命令 {command}。可用命令：{choices}；若要运行脚本请用：nanwatch run {command}",
    ),
    "cli.no_such_module": (
        "nanwatch: no module named {module} (sys.path starts at {cwd}). "
        "Check the spelling, or install it in this environment: {python}",
        "nanwatch：找不到模块 {module}（sys.path 起始于 {cwd}）。请检查拼写，或在当前环境中安装：{python}",
    ),
    "cli.package_without_main": (
        "nanwatch: {module} is a package without __main__.py, so Python cannot run it. "
        "Name a module inside it, for example: nanwatch run -m {module}.train",
        "nanwatch：{module} 是一个没有 __main__.py 的包，Python 无法直接运行。"
        "请指定其中的模块，例如：nanwatch run -m {module}.train",
    ),
    "cli.option_takes_no_value": (
        "nanwatch: option {option} takes no value, {value!r} was given; write it alone: {option}",
        "nanwatch：选项 {option} 不带取值，却给了 {value!r}；请只写：{option}",
    ),
    "cli.no_name": (
        "nanwatch: the name of the script is empty. Write for example: nanwatch run train.py",
        "nanwatch：脚本名为空。用法示例：nanwatch run train.py",
    ),
}
