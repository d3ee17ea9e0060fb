import torch
from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessor, LogitsProcessorList

DIGIT, COMMA, CLOSE, END = range(4, 14), 14, 15, 2


class ListGrammar(LogitsProcessor):
    """Lets a list of numbers of two digits at most pass: 12,7,40]"""

    def __init__(self, start, items):
        self.start, self.items = start, items

    def allowed(self, written):
        if written and written[-1] in (CLOSE, END):
            return [END]
        digits = 0
        for token in reversed(written):
            if token not in DIGIT:
                break
            digits += 1
        done = written.count(COMMA) + 1
        options = list(DIGIT) if digits < 2 and done <= self.items else []
        if digits and done < self.items:
            options.append(COMMA)
        if digits == 1 and done == self.items:
            options.append(CLOSE)
        return options

    def __call__(self, input_ids, scores):
        blocked = torch.full_like(scores, float("-inf"))
        for row, tokens in enumerate(input_ids.tolist()):
            options = self.allowed(tokens[self.start :])
            blocked[row, options] = 0.0
        return scores + blocked


torch.manual_seed(0)
config = GPT2Config(vocab_size=24, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=1)
model = GPT2LMHeadModel(config).eval()
for request, prompt in enumerate(([1, 20, 21], [1, 19], [1, 22, 18, 3])):
    torch.manual_seed(request)
    tokens = torch.tensor([prompt])
    answer = model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=8,
        do_sample=True,
        pad_token_id=0,
        eos_token_id=END,
        logits_processor=LogitsProcessorList([ListGrammar(len(prompt), 3 - request % 2)]),
    )
    print(prompt, "->", answer[0, len(prompt) :].tolist())
