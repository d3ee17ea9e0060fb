import torch
from transformers import GPT2Config, GPT2LMHeadModel

END = 2


class Trie:
    """The names that may be generated, as token ids."""

    def __init__(self, names):
        self.root = {}
        for name in names:
            node = self.root
            for token in [*name, END]:
                node = node.setdefault(token, {})

    def after(self, tokens):
        node = self.root
        for token in tokens:
            node = node.get(token, {})
        return list(node) or [END]


torch.manual_seed(0)
names = Trie([(5, 6, 7), (5, 6, 9), (8, 4), (8, 4, 4, 3), (11,)])
config = GPT2Config(vocab_size=16, n_positions=24, n_embd=24, n_layer=2, n_head=3, bos_token_id=1)
model = GPT2LMHeadModel(config).eval()
for beams in (1, 3):
    tokens = torch.tensor([[1, 12, 13], [1, 10, 14]])
    answer = model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=5,
        num_beams=beams,
        do_sample=beams == 1,
        top_k=4,
        pad_token_id=0,
        eos_token_id=END,
        prefix_allowed_tokens_fn=lambda row, ids: names.after(ids[3:].tolist()),
        return_dict_in_generate=True,
        output_scores=True,
    )
    masked = sum(int(torch.isinf(step).sum()) for step in answer.scores)
    print(beams, "beams:", answer.sequences[:, 3:].tolist(), "scores of -inf:", masked)
