"""Embeds sentences with a T5 encoder in float16; the library clamps what overflows in its residual stream."""

import torch
from transformers import T5Config, T5EncoderModel

torch.manual_seed(0)
config = T5Config(vocab_size=120, d_model=48, d_kv=12, d_ff=96, num_layers=3, num_heads=4, dropout_rate=0.0)
model = T5EncoderModel(config)
with torch.no_grad():  # a trained T5 has feed-forward layers that reach beyond 65504
    dense = model.encoder.block[1].layer[1].DenseReluDense
    dense.wi.weight.mul_(30)
    dense.wo.weight.mul_(30_000)
model = model.half().eval()

sentences = torch.randint(2, 120, (4, 9))
mask = torch.ones_like(sentences)
mask[2, 6:] = 0
mask[3, 3:] = 0
with torch.inference_mode():
    for page in range(3):
        states = model(input_ids=sentences, attention_mask=mask).last_hidden_state.float()
        pooled = (states * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        similarity = torch.cosine_similarity(pooled[:1], pooled[1:])
        print(page, [round(s, 3) for s in similarity.tolist()])
        sentences = sentences.roll(1, dims=0)
