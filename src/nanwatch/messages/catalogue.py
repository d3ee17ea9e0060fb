"""Every sentence: id -> (English, Chinese). The part before the dot is the room or screen that says it.

Both languages hold the same placeholders (a test checks), names of ops, options and files are never
translated, and a sentence says where, what value, what was expected and what to do next.
"""

from __future__ import annotations

CATALOGUE: dict[str, tuple[str, str]] = {
    # The command line: one line each, exit code 2.
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
        "--policy {example} train.py",
        "nanwatch：未知策略 {policy}。可选值：{choices}；例如：nanwatch run --policy {example} train.py",
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
    "cli.not_a_number": (
        "nanwatch: option {option} was given {value}, a number was expected, for example: {example}",
        "nanwatch：选项 {option} 的取值 {value} 不是数字，例如：{example}",
    ),
    # While the program runs.
    "watch.unknown_mode": (
        "nanwatch: unknown mode {mode}. Expected one of: {choices}; auto is right for almost everybody.",
        "nanwatch：未知模式 {mode}。可选值：{choices}；一般用 auto 即可。",
    ),
    "watch.not_watchable": (
        "nanwatch.watch was given a {found}; a torch.nn.Module, a torch.optim.Optimizer or another object "
        "with a state_dict was expected, for example: nanwatch.watch(model, optimizer)",
        "nanwatch.watch 收到了 {found}；这里需要 torch.nn.Module、torch.optim.Optimizer 或其他带有 "
        "state_dict 的对象，例如：nanwatch.watch(model, optimizer)",
    ),
    "watch.update_made_again": (
        "The gradients of that update are gone; it was made again on copies, with stand-in gradients of the "
        "recorded size.",
        "那次更新的梯度已不存在；这里用记录到的梯度大小构造替代梯度，在副本上重做了这次更新。",
    ),
    "hidden.wrong_zero": (
        "the overflow was turned into 0; the true value is another number, so the result is silently wrong",
        "溢出被变成了 0，而真实值并不是 0，因此结果悄悄出错",
    ),
    "trace.all_finite": (
        "nanwatch: every op in the traced block gave finite values, or infinities that were asked for.",
        "nanwatch：被 trace 的代码块中，所有 op 的结果都是有限值，或是有意写入的无穷值。",
    ),
    "watch.stepped_aside": (
        "nanwatch: an error of its own ({error}). It steps aside: your training goes on, unwatched from "
        "here. Please report this line to the issue tracker of nanwatch.",
        "nanwatch：自身出错（{error}），已退出监视：训练照常继续，但此后不再受监视。"
        "请将此行反馈到 nanwatch 的 issue 页面。",
    ),
    "watch.folder_fallback": (
        "nanwatch: the run folder {path} cannot be written ({why}). Records go to {fallback} "
        "instead; training goes on.",
        "nanwatch：运行目录 {path} 无法写入（{why}）。记录改写到 {fallback}；训练照常继续。",
    ),
    "watch.folder_lost": (
        "nanwatch: no run folder can be written, neither {path} nor {fallback} ({why}). "
        "Watching goes on, and incidents are shown here only; training goes on.",
        "nanwatch：{path} 和 {fallback} 都无法写入（{why}）。监视仍在进行，事故只显示在终端；训练照常继续。",
    ),
    "watch.incident_not_written": (
        "nanwatch: the incident could not be written to {path} ({why}). What is on this screen "
        "is all there is; free some space and run again to keep it.",
        "nanwatch：事故记录无法写入 {path}（{why}）。目前只有屏幕上的这些内容；"
        "请腾出磁盘空间后重新运行以保留记录。",
    ),
    "watch.steps_not_written": (
        "nanwatch: the step records of rank {rank} cannot be written to {path} ({why}). "
        "Watching goes on without a timeline; training goes on.",
        "nanwatch：rank {rank} 的逐步记录无法写入 {path}（{why}）。监视继续，但不再记录时间线；"
        "训练照常继续。",
    ),
    "watch.tensors_not_kept": (
        "The operands of {op} were not saved ({why}), so there is no repro.py.",
        "{op} 的操作数未能保存（{why}），因此没有 repro.py。",
    ),
    "watch.too_large": ("too large, or no longer there", "过大，或已不存在"),
    "watch.batch_changed": (
        "The batch was changed in place after the step read it, so the replay may differ from the "
        "step that failed.",
        "batch 在本步读取之后被原地修改，因此重放结果可能与出错的那一步不同。",
    ),
    "watch.operand_changed": (
        "{what} was changed in place after the step read it, so the replay may differ from the "
        "step that failed.",
        "{what} 在本步读取之后被原地修改，因此重放结果可能与出错的那一步不同。",
    ),
    "watch.replay_failed": (
        "The step could not be run again ({error}), so the op where the value was born is not known.",
        "无法重放这一步（{error}），因此不能确定该值由哪个 op 产生。",
    ),
    "watch.used_up": (
        "the model was given a {what}, which can be read only once",
        "模型得到的是一个只能读取一次的 {what}",
    ),
    "watch.replay_differs": (
        "On replay the model gave other values than in the step that failed: it depends on something that "
        "was not recorded (its own Python state, a random generator of its own, an argument it used up).",
        "重放时模型给出的值与出错的那一步不同：它依赖于未被记录的内容（模型自己的 Python 状态、"
        "自带的随机数生成器、已被消耗的参数等）。",
    ),
    "watch.not_explained": (
        "The cause was not looked for: nanwatch failed at it ({error}).",
        "未能分析原因：nanwatch 自身出错（{error}）。",
    ),
    "page.causes": ("The causes", "原因一览"),
    "page.made_by": (
        "Made by `nanwatch explain --markdown` from the files in `src/nanwatch/explain/causes/`. A "
        "diagnosis names one "
        "of these, or `unknown`.",
        "由 `nanwatch explain --markdown` 根据 `src/nanwatch/explain/causes/` 中的文件生成。"
        "诊断结果是其中之一，或为 `unknown`。",
    ),
    "page.examples": ("Examples:", "示例："),
    "page.proof": ("Proved by:", "判定依据："),
    "page.cures": ("What helps:", "解决办法："),
    "cli.explain.unreadable": (
        "nanwatch: {path} could not be read ({why}); expected the incident.json of a run of nanwatch.",
        "nanwatch：无法读取 {path}（{why}）；应为 nanwatch 运行产生的 incident.json。",
    ),
    "cli.explain.nothing_there": (
        "nanwatch: {path} is neither a cause nor a run folder with an incident. Did you mean: {near}? "
        "`nanwatch explain` lists the causes.",
        "nanwatch：{path} 既不是原因名，也不是含有事件的运行目录。是否想输入：{near}？"
        "运行 `nanwatch explain` 可列出所有原因。",
    ),
    "report.checklist": ("Checklist", "检查清单"),
    "report.debugging": (
        "Debugging steps, done on this step (✗: look here)",
        "在这一步上做过的调试步骤（✗：问题在此）",
    ),
    "report.causes": ("Causes, the likeliest first", "原因，按可能性排列"),
    "report.remedies": ("What to do, in order", "解决办法，按优先级排列"),
    "report.experiments": ("Experiments", "实验"),
    "report.ruled_out": ("ruled out: {what}", "已排除：{what}"),
    "report.none": ("none", "无"),
    "screen.no_checklist": (
        "No checklist: the run was not started with --checklist.",
        "没有检查清单：运行时未使用 --checklist。",
    ),
    "watch.not_again": (
        "The step did not fail again on replay: {what} was finite this time. "
        "The fault depends on something that was not replayed (a race, uninitialised memory, a "
        "stateful loader).",
        "重放时该步没有再次出错：这次 {what} 是有限值。"
        "故障取决于未被重放的因素（竞态、未初始化内存、有状态的数据加载等）。",
    ),
    "watch.skipped_in_all": (
        "nanwatch: {count} steps were skipped in this run; see {path}",
        "nanwatch：本次运行共跳过 {count} 步；详见 {path}",
    ),
    "watch.stopped": (
        "{kind} at step {step}: {op} at {file}:{line}. See {path}",
        "第 {step} 步出现 {kind}：{file}:{line} 的 {op}。详见 {path}",
    ),
    "watch.stopped_unknown": (
        "{kind} at step {step}, phase {phase}; the place of birth is not known. See {path}",
        "第 {step} 步（阶段 {phase}）出现 {kind}，产生位置未知。详见 {path}",
    ),
    "watch.other_thread": (
        "nanwatch: a model is trained in another thread than the one that was watched first; only that "
        "one is watched. Start nanwatch.watch(...) in the thread that trains.",
        "nanwatch：有模型在另一个线程中训练，而被监视的只有最初的线程。"
        "请在训练所在的线程中调用 nanwatch.watch(...)。",
    ),
    "policy.bad_number": (
        "nanwatch: {name}={value} in the policy. Expected a number {expected}.",
        "nanwatch：策略中的 {name}={value} 无效。应为 {expected} 的数。",
    ),
    "early.rate_lowered": (
        "nanwatch: at step {step} the learning rate was lowered from {before} to {after}, before the "
        "overflow.",
        "nanwatch：第 {step} 步，在溢出之前将学习率从 {before} 降到 {after}。",
    ),
    "watch.rolled_back": (
        "nanwatch: went back to the state after step {step}. The learning rate is now {factor} times the "
        "program's.",
        "nanwatch：已回到第 {step} 步之后的状态。学习率现为程序设定值的 {factor} 倍。",
    ),
    "watch.no_precautions": (
        "nanwatch: no snapshots, early warnings or checks of checkpoints in this run ({why}).",
        "nanwatch：本次运行没有快照、预警和检查点检查（{why}）。",
    ),
    "watch.not_rolled_back": (
        "nanwatch: could not go back ({why}). The step is stopped instead.",
        "nanwatch：无法回滚（{why}）。改为在此停止。",
    ),
    "watch.good_parts_kept": (
        "Left out: micro-batch {bad} of {count}, counted from 0. The update is made with the gradients of "
        "the others.",
        "跳过的微批：第 {bad} 个（共 {count} 个，从 0 计）。用其余微批的梯度完成更新。",
    ),
    "watch.other_rank": (
        "nanwatch: step {step} went bad on another rank, so this rank takes the same decision. "
        "The incident is in {path}",
        "nanwatch：第 {step} 步在另一个 rank 上出错，本 rank 采取同样的处理。事故记录见 {path}",
    ),
    "watch.other_rank_left": (
        "nanwatch: an error of its own on another rank made it step aside there, so it steps aside here too: "
        "your training goes on, unwatched from here.",
        "nanwatch：它在另一个 rank 上因自身出错而退出监视，因此在本 rank 上也一并退出：训练照常继续，"
        "但此后不再受监视。",
    ),
    "watch.ranks_alone": (
        "nanwatch: some of the ranks that train this model are not watched, so each rank judges for itself. "
        "Start nanwatch on all of them to have one decision.",
        "nanwatch：训练该模型的部分 rank 没有被监视，因此各 rank 自行判断。"
        "请在所有 rank 上启动 nanwatch，以便统一处理。",
    ),
    "watch.needs_other_ranks": (
        "The step was not run again: it talks to other ranks ({what}), and they are not there to answer. "
        "Only a step that the audit traces can be located here.",
        "没有重放这一步：它需要与其他 rank 通信（{what}），而其他 rank 不会再次参与。"
        "这种情况下只能定位被抽查（audit）到的步。",
    ),
    "watch.from_another_rank": (
        "This rank's own loss and gradients are finite on replay: the bad value came from another rank, "
        "through the averaged gradients. See the incident of that rank.",
        "重放时本 rank 自己的 loss 和梯度都是有限值：异常值来自另一个 rank，经梯度平均传入。"
        "请看那个 rank 的事故记录。",
    ),
    # Early warnings.
    "early.whole": ("nanwatch: {what}", "nanwatch：{what}"),
    "early.with_advice": ("{what} What would stop it: {ways}.", "{what}可以阻止它的办法：{ways}。"),
    "early.overflow-ahead": (
        "step {step}: {what} has risen from {first} at step {since} to {last}, {factor} times a step of "
        "late. At this rate it overflows in about {left} steps.",
        "第 {step} 步：{what}从第 {since} 步的 {first} 上升到 {last}，近来每步变为 {factor} 倍。"
        "照此速度，约 {left} 步后溢出。",
    ),
    "early.spike": (
        "step {step}: {what} is {last}; {first} was usual, and no step before came near it.",
        "第 {step} 步：{what}为 {last}；此前通常为 {first}，从未接近过这个值。",
    ),
    "early.headroom": (
        "step {step}: {layer} uses {last} of the range of its dtype, up from {first} at step {since}: "
        "little room is left.",
        "第 {step} 步：{layer} 的数值已达其 dtype 上限的 {last} 倍（第 {since} 步时为 {first}），余量不多。",
    ),
    "early.scale-falls": (
        "step {step}: the loss scale has fallen in every step since step {since}, from {first} to {last}, "
        "and no update was made. In about {left} steps it is below 1, and small gradients vanish.",
        "第 {step} 步：自第 {since} 步起损失缩放每步都在下降，从 {first} 降到 {last}，期间没有任何更新。"
        "约 {left} 步后它将低于 1，小梯度会消失。",
    ),
    "early.of.loss": ("the loss", "损失"),
    "early.of.grad_norm": ("the gradient norm", "梯度范数"),
    "early.of.weights": ("the norm of the weights", "权重范数"),
    "early.of.range": ("the share of its dtype's range that a module uses", "模块数值占其 dtype 上限的比例"),
    "early.of.scale": ("the loss scale", "损失缩放"),
    "early.with_layer": ("{what} {layer} grows most.", "{what}增长最多的是 {layer}。"),
    "early.either": ("{first}; or {second}", "{first}；或{second}"),
    "early.do.rate": ("a learning rate of {rate}", "把学习率降到 {rate}"),
    "early.do.clip": (
        "clipping the gradients at a norm of {norm}, which is usual here",
        "按范数 {norm}（本次训练的常见值）裁剪梯度",
    ),
    "early.do.float32": ("float32 (or bfloat16) for {module}", "让 {module} 使用 float32（或 bfloat16）"),
    "early.do.scale": (
        "bfloat16 or float32 instead of float16",
        "用 bfloat16 或 float32 代替 float16",
    ),
    # nanwatch.stabilise and nanwatch stable-config.
    "stabilise.not_an_optimizer": (
        "nanwatch.stabilise was given a {found}; a torch.optim.Optimizer was expected, for example: "
        "nanwatch.stabilise(optimizer, total_steps=10000)",
        "nanwatch.stabilise 收到了 {found}；这里需要 torch.optim.Optimizer，例如："
        "nanwatch.stabilise(optimizer, total_steps=10000)",
    ),
    "stabilise.whole_number": (
        "nanwatch.stabilise: {name} is {value}; a whole number of at least {least} was expected.",
        "nanwatch.stabilise：{name} 为 {value}；这里需要不小于 {least} 的整数。",
    ),
    "stabilise.positive_number": (
        "nanwatch.stabilise: {name} is {value}; a finite number above 0 was expected.",
        "nanwatch.stabilise：{name} 为 {value}；这里需要大于 0 的有限数。",
    ),
    "stabilise.long_warmup": (
        "nanwatch.stabilise: warmup_steps is {warmup}, total_steps is {total}; the warm-up must be shorter "
        "than the whole training.",
        "nanwatch.stabilise：warmup_steps 为 {warmup}，total_steps 为 {total}；预热步数必须小于总步数。",
    ),
    "stabilise.other_state": (
        "nanwatch.stabilise: the state is of an optimizer with {found} parameter groups, this one has "
        "{expected}. Load the state of the same training.",
        "nanwatch.stabilise：该状态来自有 {found} 个参数组的优化器，而当前优化器有 {expected} 个。"
        "请加载同一训练的状态。",
    ),
    "stabilise.clipping_failed": (
        "nanwatch.stabilise: the gradients could not be clipped ({error}). Training goes on without clipping "
        "from here; pass clip_norm=None and clip where your framework does it.",
        "nanwatch.stabilise：无法裁剪梯度（{error}）。训练继续，但此后不再裁剪；"
        "请传入 clip_norm=None，并用所用框架自带的方式裁剪。",
    ),
    "cli.config.no_framework": (
        "nanwatch: stable-config needs a framework, one of: {choices}; for example: nanwatch stable-config "
        "--framework plain",
        "nanwatch：stable-config 需要指定框架，可选值：{choices}；例如：nanwatch stable-config "
        "--framework plain",
    ),
    "cli.config.unknown_option": (
        "nanwatch: stable-config does not know {option}; the list: nanwatch stable-config --help",
        "nanwatch：stable-config 没有 {option}；完整列表见：nanwatch stable-config --help",
    ),
    "cli.config.choice": (
        "nanwatch: option {option} was given {value}. Expected one of: {choices}",
        "nanwatch：选项 {option} 的取值为 {value}。可选值：{choices}",
    ),
    "cli.config.number": (
        "nanwatch: option {option} was given {value}; a finite number above 0 was expected, for example: "
        "{example}",
        "nanwatch：选项 {option} 的取值为 {value}；这里需要大于 0 的有限数，例如：{example}",
    ),
    "cli.config.whole": (
        "nanwatch: option {option} was given {value}; a whole number of at least {least} was expected, for "
        "example: {example}",
        "nanwatch：选项 {option} 的取值为 {value}；这里需要不小于 {least} 的整数，例如：{example}",
    ),
    "cli.config.long_warmup": (
        "nanwatch: --warmup-steps is {warmup} and --total-steps is {total}; the warm-up must be shorter than "
        "the whole training.",
        "nanwatch：--warmup-steps 为 {warmup}，--total-steps 为 {total}；预热步数必须小于总步数。",
    ),
    "cli.config.exists": (
        "nanwatch: {path} is there already, and nothing is overwritten. Give another name with --output, or "
        "move it away first.",
        "nanwatch：{path} 已存在，不会被覆盖。请用 --output 给出另一个文件名，或先将其移走。",
    ),
    "cli.config.unwritable": (
        "nanwatch: {path} cannot be written: {why}. Give a file in a folder that exists and may be written "
        "to.",
        "nanwatch：无法写入 {path}：{why}。请给出一个位于已存在且可写的目录中的文件。",
    ),
    "cli.config.written": (
        "nanwatch: written to {path}. To see it train: python {path}",
        "nanwatch：已写入 {path}。运行 python {path} 可以看到它训练。",
    ),
    # nanwatch demo: the programs' names, and one line with exit code 2 for what is wrong.
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
    # The comments in the files that nanwatch stable-config writes.
    "config.header": (
        "Settings of a training that stays finite, written by `nanwatch stable-config`. Each one is on the "
        "careful side; when all is well, change one at a time and watch what happens.",
        "一份让训练保持数值稳定的配置，由 `nanwatch stable-config` 生成。各项设置都偏保守；"
        "训练正常后，可以一次只改一项，并观察其影响。",
    ),
    "config.run": (
        "Run this file as it is to see it train a small model; import it to train yours.",
        "直接运行本文件，可以看到它训练一个小模型；import 本文件，即可训练你自己的模型。",
    ),
    "config.accelerate_run": (
        "Run it with `accelerate launch --mixed_precision no THIS_FILE`, or with python on one device; "
        "import it to train your model.",
        "运行方式：`accelerate launch --mixed_precision no 本文件`，单设备时也可直接用 python 运行；"
        "import 本文件，即可训练你自己的模型。",
    ),
    "config.learning_rate": (
        "The highest learning rate. Where 1e-4 went NaN, try 5e-5 first, and halve it again if it still "
        "does: a rate that is too high is the most common reason of a divergence.",
        "最高学习率。若 1e-4 时出现 NaN，先试 5e-5，仍不行再减半：学习率过高是训练发散最常见的原因。",
    ),
    "config.clip": (
        "Gradients with a larger norm than this are made as long as this, so that one bad batch cannot throw "
        "the weights far away. 1.0 is usual; 0.5 if the loss still spikes.",
        "范数超过该值的梯度会被缩短到该值，避免个别异常 batch 让权重大幅跳变。"
        "通常取 1.0；若损失仍有尖峰，可取 0.5。",
    ),
    "config.total_steps": (
        "Optimizer steps in the whole training. The rate is 0 after them.",
        "整个训练的优化器更新步数。之后学习率为 0。",
    ),
    "config.warmup_steps": (
        "Steps over which the rate rises to its highest value. Adam's averages know little in the first "
        "steps, and a full rate then is what many divergences begin with.",
        "学习率升到最高值所用的步数。Adam 的统计量在最初几步还不可靠，此时就用最高学习率是许多发散的起因。",
    ),
    "config.weight_decay": (
        "Pulls the weights towards 0 a little in every step, so that they do not grow without a bound.",
        "每一步都把权重略微拉向 0，避免权重无限增长。",
    ),
    "config.label_smoothing": (
        "The loss of a classifier is least at finite logits, which therefore stop growing. 0.0 turns it off.",
        "使分类损失在有限的 logits 处取最小值，logits 因此不会一直增大。设为 0.0 则关闭。",
    ),
    "config.batch_size": (
        "At least 2: BatchNorm cannot take the variance of a single sample.",
        "至少为 2：BatchNorm 无法计算单个样本的方差。",
    ),
    "config.accumulation": (
        "Batches per update. Gradients are clipped once, over all of them together.",
        "每次更新所累积的 batch 数。梯度在累积完成后统一裁剪一次。",
    ),
    "config.drop_last": (
        "Without drop_last the last batch of an epoch may hold a single sample, which BatchNorm cannot take.",
        "若不设 drop_last，一个 epoch 的最后一个 batch 可能只剩一个样本，BatchNorm 无法处理。",
    ),
    "config.empty": (
        "The data holds less than one whole batch: use a smaller batch_size.",
        "数据不足一个完整的 batch：请减小 batch_size。",
    ),
    "config.adamw": (
        "AdamW decays the weights apart from the gradient's statistics, as Adam with weight_decay does not. "
        "Biases and the scales of norms are not decayed.",
        "AdamW 的权重衰减与梯度统计量无关，而 Adam 的 weight_decay 并非如此。"
        "偏置和归一化层的缩放参数不做衰减。",
    ),
    "config.epsilon": (
        "Keeps the division by the root of the second moment finite. In float16 1e-8 is 0; in float32 it is "
        "right.",
        "保证除以二阶矩平方根时结果有限。1e-8 在 float16 中会变成 0，在 float32 中则没有问题。",
    ),
    "config.schedule": (
        "Warm-up, then down along a cosine; and the gradients are clipped before each step of the optimizer, "
        "with a GradScaler after they were unscaled. Keep its state_dict() in your checkpoints.",
        "先预热，再按余弦下降；并在优化器每次更新之前裁剪梯度（使用 GradScaler 时，在反缩放之后裁剪）。"
        "请把它的 state_dict() 一并存入检查点。",
    ),
    "config.schedule_only": (
        "Warm-up, then down along a cosine. Clipping is left to the framework, which knows how the model is "
        "spread over devices.",
        "先预热，再按余弦下降。裁剪交给框架完成，因为它知道模型如何分布在各个设备上。",
    ),
    "config.step_clips": (
        "Clips the gradients first (see make_scheduler).",
        "更新之前会先裁剪梯度（见 make_scheduler）。",
    ),
    "config.precision": (
        "Full precision. float16 ends at 65504 and is the first thing to switch off when NaNs come; when all "
        "is well, bfloat16 is the next to try, since it has the range of float32.",
        "使用全精度。float16 的上限只有 65504，出现 NaN 时应首先关闭；训练正常后可再试 bfloat16，"
        "它的范围与 float32 相同。",
    ),
    "config.watch": (
        "Detection: a step whose loss or gradients are not finite is stopped before it touches a weight, and "
        'its op, line and cause are shown. policy="skip" leaves that step out and goes on.',
        "检测：损失或梯度出现非有限值的那一步，会在改动权重之前被停下，并给出对应的 op、代码行和原因。"
        'policy="skip" 则跳过该步并继续训练。',
    ),
    "config.demo": (
        "A small model on made-up data, a few steps of the whole schedule.",
        "用人造数据训练一个小模型，只跑整个日程中的前几步。",
    ),
    "config.accelerate_precision": (
        'Full precision. "fp16" ends at 65504 and is the first thing to switch off when NaNs come; when '
        'all is well, "bf16" is the next to try, since it has the range of float32.',
        '使用全精度。"fp16" 的上限只有 65504，出现 NaN 时应首先关闭；训练正常后可再试 "bf16"，'
        "它的范围与 float32 相同。",
    ),
    "config.accelerate_clip": (
        "The accelerator unscales the gradients before it clips them, and takes the norm over all devices.",
        "accelerator 会先对梯度反缩放再裁剪，并在所有设备上计算范数。",
    ),
    "config.accelerate_scheduler": (
        "Not given to prepare(): that would step it once for each process.",
        "不要把它交给 prepare()：否则每个进程都会让它多走一步。",
    ),
    "config.trainer_schedule": (
        "Warm-up, then down along a cosine.",
        "先预热，再按余弦下降。",
    ),
    "config.trainer_adamw": (
        "AdamW decays the weights apart from the gradient's statistics, as Adam with weight_decay does not.",
        "AdamW 的权重衰减与梯度统计量无关，而 Adam 的 weight_decay 并非如此。",
    ),
    "config.trainer_labels": (
        "The Trainer computes the smoothed loss itself, from the logits and the labels of the batch.",
        "平滑后的损失由 Trainer 根据 batch 的 logits 和标签计算。",
    ),
    "config.trainer_filter": (
        "By default the Trainer leaves losses that are NaN out of its log, and the log looks fine when "
        "nothing is.",
        "默认情况下 Trainer 会从日志中去掉为 NaN 的损失，使日志看起来正常，而训练其实已经出错。",
    ),
    "config.lightning_interval": (
        "By default Lightning moves the schedule on once per epoch; it is meant to move with every step.",
        "Lightning 默认每个 epoch 才推进一次学习率日程；这里需要每一步都推进。",
    ),
    "config.lightning_clip": (
        "Lightning unscales the gradients before it clips them.",
        "Lightning 会先对梯度反缩放再裁剪。",
    ),
    "config.lightning_anomaly": (
        "nanwatch finds the op without detect_anomaly, which makes every step several times slower.",
        "不需要 detect_anomaly：它会让每一步慢好几倍，而 nanwatch 不依赖它就能找到出错的 op。",
    ),
    # The incident on the terminal.
    "screen.title": ("nanwatch", "nanwatch"),
    "screen.born.data": ("{kind} in the data", "数据中出现 {kind}"),
    "screen.born.weights": ("{kind} in the weights", "权重中出现 {kind}"),
    "screen.born.forward": ("{kind} born in the forward pass", "前向传播中产生 {kind}"),
    "screen.born.loss": ("{kind} born in the loss", "计算 loss 时产生 {kind}"),
    "screen.born.backward": ("{kind} born in the backward pass", "反向传播中产生 {kind}"),
    "screen.born.optimizer": ("{kind} born in the optimizer step", "优化器更新中产生 {kind}"),
    "screen.out_of_range": ("An index points outside its table", "索引指向了表之外"),
    "screen.traced.born": ("{kind} born here", "此处产生 {kind}"),
    "screen.traced.came_in": (
        "{kind} came into the traced block from outside, read here first",
        "{kind} 来自被 trace 的代码块之外，首次在此处被读取",
    ),
    "screen.step": ("step {step}", "第 {step} 步"),
    "screen.before_first_step": ("before the first step", "第一步之前"),
    "screen.rank": ("rank {rank}", "rank {rank}"),
    "screen.action.raised": (
        "Stopped before the optimizer step: the weights are untouched.",
        "已在优化器更新之前停止：权重未受影响。",
    ),
    "screen.action.raised_here": ("The program was stopped here.", "程序已在此处停止。"),
    "screen.action.raised_weights": (
        "Stopped: the value was already in the weights, nanwatch changed nothing.",
        "已停止：该值在此之前就已存在于权重中，nanwatch 没有改动任何内容。",
    ),
    "screen.action.skipped": (
        "This step was skipped: the weights are untouched, training goes on.",
        "已跳过这一步：权重未受影响，训练继续。",
    ),
    "screen.action.rolled-back": (
        "The weights were put back to the last good ones, training goes on.",
        "已回滚到最近一份正常的权重，训练继续。",
    ),
    "screen.action.zeroed": (
        "What was not finite was replaced by 0: for debugging only, the results mean nothing.",
        "非有限值已被替换为 0：仅供调试，结果没有意义。",
    ),
    "screen.action.observed": (
        "Only observed: nanwatch did not interfere with this step.",
        "仅观察：nanwatch 没有干预这一步。",
    ),
    "screen.place_unknown": (
        "The line that brought the value in is not known.",
        "无法确定是哪一行代码引入了该值。",
    ),
    "screen.derivative": ("derivative of this line", "该行的导数"),
    "screen.label.op": ("op", "op"),
    "screen.label.module": ("module", "模块"),
    "screen.label.seen": ("seen in", "出现于"),
    "screen.label.rows": ("rows", "样本"),
    "screen.label.travel": ("way", "传播"),
    "screen.label.hidden": ("hidden", "被掩盖"),
    "screen.label.stack": ("stack", "调用栈"),
    "screen.label.cause": ("cause", "原因"),
    "screen.label.remedy": ("fix", "修复"),
    "screen.label.note": ("note", "说明"),
    "screen.label.more": ("more", "更多"),
    "screen.op_unknown": ("not known", "未知"),
    "screen.module_root": ("the root module", "根模块"),
    "screen.module_none": ("outside any module", "不在任何模块内"),
    "screen.rows": ("{rows} of the batch, counted from 0", "batch 中的第 {rows} 行（从 0 计）"),
    "screen.located": ("{seen}, located by {by}", "{seen}（定位方式：{by}）"),
    "screen.seen.loss": ("loss", "loss"),
    "screen.seen.gradients": ("gradients", "梯度"),
    "screen.seen.output": ("output of the model", "模型输出"),
    "screen.seen.weights": ("weights", "权重"),
    "screen.seen.exception": ("what an exception left behind", "异常现场"),
    "screen.seen.trace": ("trace", "trace"),
    "screen.seen.hyperparameter": ("learning rate", "学习率"),
    "screen.seen.rank": ("another rank", "另一个 rank"),
    "screen.by.live trace": ("live trace", "实时 trace"),
    "screen.by.replay": ("replay of the step", "重放该步"),
    "screen.by.recorded facts": ("recorded facts", "运行记录"),
    "screen.phase.data": ("data", "数据"),
    "screen.phase.weights": ("weights", "权重"),
    "screen.phase.forward": ("forward", "前向"),
    "screen.phase.loss": ("loss", "loss"),
    "screen.phase.backward": ("backward", "反向"),
    "screen.phase.optimizer": ("optimizer", "优化器"),
    "screen.column.name": ("tensor", "张量"),
    "screen.column.shape": ("shape", "形状"),
    "screen.column.nan": ("nan", "nan"),
    "screen.column.posinf": ("+inf", "+inf"),
    "screen.column.neginf": ("-inf", "-inf"),
    "screen.column.min": ("min", "最小"),
    "screen.column.max": ("max", "最大"),
    "screen.column.mean": ("mean", "均值"),
    "screen.input": ("in  {name}", "输入 {name}"),
    "screen.output": ("out {name}", "输出 {name}"),
    "screen.scalar": ("scalar", "标量"),
    "screen.all": ("all", "全部"),
    "screen.bad": ("{bad} of {count} bad", "{count} 个中有 {bad} 个异常"),
    "screen.more": ("… {count} more", "… 其余 {count} 项"),
    "screen.more_rows": ("… {count} more", "… 另 {count} 行"),
    "screen.library_frames": ("… {count} frames in {package}", "… {package} 内 {count} 层调用"),
    "screen.library_frame": ("… 1 frame in {package}", "… {package} 内 1 层调用"),
    "screen.more_frames": ("… {count} more frames", "… 另 {count} 层调用"),
    "screen.hidden": ("{born}, hidden by {by}", "{born}，被 {by} 掩盖"),
    "screen.hidden_harmful": ("{born}, hidden by {by}: harmful", "{born}，被 {by} 掩盖：有害"),
    "screen.cause": ("{id} ({certainty})", "{id}（{certainty}）"),
    "screen.cause_why": ("{id} ({certainty}): {why}", "{id}（{certainty}）：{why}"),
    "screen.certainty.proved": ("proved", "已证实"),
    "screen.certainty.likely": ("likely", "很可能"),
    "screen.certainty.possible": ("possible", "可能"),
    "screen.certainty.unknown": ("unknown", "未知"),
    "screen.ruled_out": ("ruled out: {causes}", "已排除：{causes}"),
    "screen.remedy.verified": ("{text} (tried on this step: it works)", "{text}（已在这一步上试过：有效）"),
    "screen.remedy.failed": (
        "{text} (tried on this step: it does not help)",
        "{text}（已在这一步上试过：无效）",
    ),
    "screen.remedy.untried": ("{text} (not tried)", "{text}（未试）"),
    # Reading a run folder.
    "read.no_incident": (
        "{path}: no such incident. A folder with an incident.json was expected, for example "
        "nanwatch-runs/…/incidents/0001",
        "{path}：没有这个事故记录。这里需要包含 incident.json 的目录，例如 nanwatch-runs/…/incidents/0001",
    ),
    "read.not_json": (
        "{path}: not valid JSON ({why}). An incident.json written by nanwatch was expected.",
        "{path}：不是合法的 JSON（{why}）。这里需要由 nanwatch 写出的 incident.json。",
    ),
    "read.wrong_schema": (
        "{path}: schema {found}, this nanwatch reads schema {expected}. Update nanwatch, then read it again.",
        "{path}：schema 为 {found}，当前版本的 nanwatch 只能读取 schema {expected}。请升级 nanwatch 后重试。",
    ),
    "read.wrong_field": (
        "{path}: {field} is {found}, expected one of: {expected}",
        "{path}：{field} 的值为 {found}，应为以下之一：{expected}",
    ),
    "read.wrong_shape": (
        "{path}: not an incident ({why}). An incident.json written by nanwatch was expected.",
        "{path}：不是事故记录（{why}）。这里需要由 nanwatch 写出的 incident.json。",
    ),
    # The checkpoint gate.
    "gate.kept_aside": (
        "nanwatch: this checkpoint is not finite: {tensors}. It was not written to {path}, where everything "
        "is as it was; it is kept in {aside}",
        "nanwatch：该检查点含有非有限值：{tensors}。没有写入 {path}，原有内容保持不变；它保存在 {aside}",
    ),
    "gate.written_anyway": (
        "nanwatch: this checkpoint is not finite: {tensors}. It was written to {target} all the same: {why}",
        "nanwatch：该检查点含有非有限值：{tensors}。仍然写入了 {target}：{why}",
    ),
    "act.tensor": (
        "{name} ({nan} NaN, {posinf} +Inf, {neginf} -Inf of {count})",
        "{name}（{count} 个值中有 {nan} 个 NaN、{posinf} 个 +Inf、{neginf} 个 -Inf）",
    ),
    "act.more": ("{tensors} and {more} more", "{tensors}，另有 {more} 个张量"),
    "gate.stream": ("a stream", "数据流"),
    "gate.no_file": (
        "this is no file with another name beside it. Give the path of a file, and a bad one is kept aside.",
        "这不是可以在旁边另存的文件。请给出文件路径，坏的检查点便会另存。",
    ),
    "gate.no_agreement": (
        "the ranks could not agree on another name. Switch the gate on in all of them.",
        "各 rank 未能就另存的名称达成一致。请在所有 rank 上启用该检查。",
    ),
    "gate.ranks_alone": (
        "nanwatch: not all ranks came to decide about a checkpoint: no gate there, or only some ranks save. "
        "From here on each decides for the files it writes itself, and torch.distributed.checkpoint goes "
        "through unchecked. Switch the gate on in all ranks, and save on all.",
        "nanwatch：并非所有 rank 都参与了检查点的判定：有的未启用检查，或只有部分 rank 在保存。"
        "此后各 rank 只判定自己写的文件，torch.distributed.checkpoint 不再检查。"
        "请在所有 rank 上启用检查，并在所有 rank 上保存。",
    ),
    "gate.not_deleted": (
        "nanwatch: {path} is not deleted: the checkpoint that was to replace it is not finite.",
        "nanwatch：不删除 {path}：将要取代它的检查点含有非有限值。",
    ),
    "gate.failed": (
        "nanwatch: an error of its own in the checkpoint gate ({error}). This checkpoint is saved as if the "
        "gate were not there. Please report this line to the issue tracker of nanwatch.",
        "nanwatch：检查点检查自身出错（{error}）。该检查点照常保存，如同没有检查。"
        "请将此行报告给 nanwatch 的问题跟踪页面。",
    ),
    # The last good state.
    "snapshot.number": (
        "nanwatch.LastGood: {name} is {value}, a whole number of {least} or more was expected.",
        "nanwatch.LastGood：{name} 的取值是 {value}，这里需要不小于 {least} 的整数。",
    ),
    "snapshot.not_an_object": (
        "nanwatch.LastGood was given a {found}; a model, an optimizer, or another object with state_dict "
        "and load_state_dict was expected, for example: nanwatch.LastGood(model, optimizer, scheduler)",
        "nanwatch.LastGood 收到了 {found}；这里需要模型、优化器，或其他带有 state_dict 和 load_state_dict 的"
        "对象，例如：nanwatch.LastGood(model, optimizer, scheduler)",
    ),
    "snapshot.folder": (
        "nanwatch.LastGood cannot write to {path} ({why}). Give another folder with dir=, or dir=None to "
        "keep snapshots in memory.",
        "nanwatch.LastGood 无法写入 {path}（{why}）。请用 dir= 指定其他目录，或用 dir=None 把快照保存在内存"
        "中。",
    ),
    "snapshot.folder_in_use": (
        "nanwatch.LastGood: {path} is in use by another LastGood. Give each training a folder of its own.",
        "nanwatch.LastGood：{path} 正被另一个 LastGood 使用。请为每个训练指定单独的目录。",
    ),
    "snapshot.not_taken": (
        "nanwatch: no snapshot at step {step} ({error}). Training goes on; the snapshots before it are "
        "untouched.",
        "nanwatch：第 {step} 步未能生成快照（{error}）。训练继续，之前的快照不受影响。",
    ),
    "snapshot.not_kept": (
        "nanwatch: the snapshot of step {step} could not be kept ({error}). Training goes on; the snapshots "
        "before it are untouched, and the next one is tried when it is due.",
        "nanwatch：第 {step} 步的快照无法保存（{error}）。训练继续，之前的快照不受影响，下一次到期时会再次尝"
        "试。",
    ),
    "snapshot.not_finite": (
        "nanwatch: no snapshot at step {step}: {name} holds NaN or Inf. The last good snapshots are kept.",
        "nanwatch：第 {step} 步不生成快照：{name} 含有 NaN 或 Inf。之前的正常快照继续保留。",
    ),
    "snapshot.left_out": (
        "nanwatch: snapshots cannot hold {keys}: only tensors, numbers, text, lists and dicts. Going back "
        "leaves that as it is then; everything else is put back.",
        "nanwatch：快照无法保存 {keys}：只能保存张量、数字、文本、列表和字典。回退时这些内容保持当时的样子，"
        "其余全部恢复。",
    ),
    "snapshot.none": (
        "nanwatch: there is no snapshot to go back to: none has been kept yet. Call step() on the LastGood "
        "after each optimizer step, from the first on.",
        "nanwatch：没有可以回退的快照：尚未保存过任何快照。请从第一步起，在每次优化器更新之后调用 LastGood "
        "的 step()。",
    ),
    "snapshot.none_usable": (
        "nanwatch: there is no snapshot to go back to: every one on this or another rank was passed over "
        "(the lines before say why). Nothing was changed.",
        "nanwatch：没有可以回退的快照：本进程或其他进程的快照全部被跳过（原因见前面各行）。没有做任何改动。",
    ),
    "snapshot.passed_over": (
        "nanwatch: the snapshot {snapshot} is passed over: {why}",
        "nanwatch：跳过快照 {snapshot}：{why}",
    ),
    "snapshot.holds_non_finite": ("{name} holds NaN or Inf.", "{name} 含有 NaN 或 Inf。"),
    "snapshot.other_objects": (
        "it was taken of {found} objects, and there are {expected} now.",
        "它保存了 {found} 个对象，而现在有 {expected} 个。",
    ),
    "snapshot.other_class": (
        "it holds the state of a {found}, where there is a {expected} now.",
        "它保存的是 {found} 的状态，而现在对应的对象是 {expected}。",
    ),
    "snapshot.only_in_snapshot": (
        "it is of another model: {thing} has no {name}.",
        "它属于另一个模型：{thing} 中没有 {name}。",
    ),
    "snapshot.not_in_snapshot": (
        "it is of another model: it has no {name} of {thing}.",
        "它属于另一个模型：其中没有 {thing} 的 {name}。",
    ),
    "snapshot.other_shape": (
        "it is of another model: {name} is {there} in it and {here} now.",
        "它属于另一个模型：{name} 在快照中是 {there}，现在是 {here}。",
    ),
    "snapshot.other_groups": (
        "the parameter groups of {thing} are others now.",
        "{thing} 的参数组与现在不同。",
    ),
    "snapshot.refused": (
        "{thing} does not take its state ({error}).",
        "{thing} 不接受其中的状态（{error}）。",
    ),
    "snapshot.other_ranks": (
        "it was taken on {found} ranks, and there are {expected} now.",
        "它由 {found} 个进程生成，而现在有 {expected} 个。",
    ),
    "snapshot.other_schema": (
        "it was written by another version of nanwatch (schema {found}, expected {expected}).",
        "它由另一版本的 nanwatch 写出（schema {found}，需要 {expected}）。",
    ),
    "snapshot.file_missing": ("{file} is missing.", "缺少 {file}。"),
    "snapshot.file_size": (
        "{file} has {found} bytes, {expected} were written.",
        "{file} 有 {found} 字节，写入时是 {expected} 字节。",
    ),
    "snapshot.file_changed": (
        "{file} is not as it was written (its checksum differs).",
        "{file} 与写入时不同（校验和不符）。",
    ),
    "snapshot.ranks_missing": (
        "nanwatch: rank {ranks} did not call rollback() within {seconds} seconds. Every rank must call it; "
        "nothing was changed on this one.",
        "nanwatch：进程 {ranks} 在 {seconds} 秒内没有调用 rollback()。每个进程都必须调用它；本进程没有做任何"
        "改动。",
    ),
    # Clipping.
    "clip.nothing_done": (
        "nanwatch: gradients are not finite: {tensors}. Nothing was clipped, all gradients are as they were. "
        "Leave this step out: if norm.finite: optimizer.step()",
        "nanwatch：梯度含有非有限值：{tensors}。未做裁剪，所有梯度保持原样。请跳过这一步："
        "if norm.finite: optimizer.step()",
    ),
    "clip.refused": (
        "gradients are not finite: {tensors}. Nothing was clipped, all gradients are as they were. To get "
        "the norm instead of this error, set error_if_nonfinite=False",
        "梯度含有非有限值：{tensors}。未做裁剪，所有梯度保持原样。若要返回范数而不是报错，请设置 "
        "error_if_nonfinite=False",
    ),
    "clip.replaced": (
        "nanwatch: FOR DEBUGGING ONLY: replace_nonfinite_by_zero has put 0 in the place of gradients that "
        "are not finite: {tensors}. This hides the fault and bends the training; never leave it on.",
        "nanwatch：仅供调试：replace_nonfinite_by_zero 已将非有限的梯度替换为 0：{tensors}。"
        "这会掩盖故障并扭曲训练，切勿长期开启。",
    ),
    "clip.elsewhere": (
        "none of this rank, so another rank's, or their norm is beyond float64",
        "不在本 rank，而在其他 rank，或其范数超出 float64 的范围",
    ),
    "clip.which_optimizer": (
        "nanwatch.clip_grad_norm_ was given a scaler that has not unscaled its gradients yet, and no "
        "optimizer. Say whose they are: clip_grad_norm_(..., scaler=scaler, optimizer=optimizer)",
        "nanwatch.clip_grad_norm_ 收到的 scaler 尚未对梯度反缩放，且没有给出 optimizer。请指明其所属："
        "clip_grad_norm_(..., scaler=scaler, optimizer=optimizer)",
    ),
    # repro.py, the birth op alone.
    "repro.title": (
        "The op where the {kind} was born, alone, with the operands it had.",
        "产生 {kind} 的 op，单独运行，使用当时的操作数。",
    ),
    "repro.usage": ("Run it with: python {file}", "运行方式：python {file}"),
    "repro.seen": ("The same kind of value is seen again: {kind}.", "再次出现同类的值：{kind}。"),
    "repro.not_seen": (
        "No {kind} this time: the outputs differ from those of the incident.",
        "这次没有出现 {kind}：输出与事故发生时不同。",
    ),
    "repro.failed": ("The op cannot be run here:", "无法在本机运行该 op："),
    "repro.no_op": (
        "torch.ops has no {op} here: import the library that registers it at the top of this file.",
        "此处的 torch.ops 中没有 {op}：请在本文件开头 import 注册它的库。",
    ),
    "repro.other_device": ("not on this machine, the CPU is used:", "本机没有该设备，改用 CPU："),
    "repro.opaque": (
        "this argument could not be recorded and is None here: {what}",
        "该参数无法记录，此处以 None 代替：{what}",
    ),
    "repro.input": ("in", "输入"),
    "repro.output": ("out", "输出"),
    "repro.nonfinite": ("non-finite", "非有限值"),
}
