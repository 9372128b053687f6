"""The pseudocode of the paper's appendix, as plainly as it stands there.

Differences: `MaskedTransformer`, which the appendix describes in words, is torch's own encoder;
random numbers come from a generator; `Categorical(...).sample()` is written out, so that a given
random number gives a given code. MISSING is a value that is not known: the paper masks it with
probability 1, and it has no loss.
"""

import torch
from torch import Tensor, nn, ones, sigmoid, zeros
from torch.nn.functional import cross_entropy

MISSING = -1


class OrderedEmbedding(nn.Module):
    def __init__(self, occ: Tensor, dim: int) -> None:
        super().__init__()
        self.E = nn.Parameter(zeros(len(occ), dim))
        self.l = nn.Parameter(torch.randn(dim) * 0.05)
        self.h = nn.Parameter(torch.randn(dim) * 0.05)
        self.r = ((occ - occ[0]) / (occ[-1] - occ[0])).float()[:, None]

    @property
    def weight(self) -> Tensor:
        return self.r * self.l + (1 - self.r) * self.h + self.E


class Embedding(nn.Module):
    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.E = nn.Parameter(torch.randn(size, dim) * 0.05)

    @property
    def weight(self) -> Tensor:
        return self.E


class DynamicLinear(nn.Module):
    def __init__(self, embedding: OrderedEmbedding | Embedding) -> None:
        super().__init__()
        self.E = embedding
        self.temp = nn.Parameter(ones(1))
        self.bias = nn.Parameter(zeros(len(embedding.weight)))

    def forward(self, x: Tensor) -> Tensor:
        raw_logits = x @ self.E.weight.T + self.bias
        return raw_logits / sigmoid(self.temp)


class MaskedTransformer(nn.Module):
    """ "A standard Transformer Encoder", learned positions, a LayerNorm before the outputs."""

    def __init__(
        self,
        embeddings: list[OrderedEmbedding | Embedding],
        dim: int,
        heads: int,
        depth: int,
    ) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(embeddings)
        self.outputs = nn.ModuleList(DynamicLinear(embedding) for embedding in embeddings)
        self.positions = nn.Parameter(torch.randn(len(embeddings), dim) * 0.01)
        self.mask_token = nn.Parameter(torch.randn(dim) * 0.05)
        layer = nn.TransformerEncoderLayer(
            dim, heads, 4 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)

    def forward(self, batch: Tensor, mask: Tensor) -> list[Tensor]:
        fields = []
        for field, embedding in enumerate(self.embeddings):
            values = embedding.weight[batch[:, field].clamp(min=0)]
            fields.append(torch.where(mask[:, field, None], self.mask_token, values))
        hidden = self.norm(self.encoder(torch.stack(fields, 1) + self.positions))
        return [output(hidden[:, field]) for field, output in enumerate(self.outputs)]


def training_step(mdl: MaskedTransformer, batch: Tensor, mask: Tensor) -> Tensor:
    preds = mdl(batch, mask | (batch == MISSING))
    targets = batch.clone()
    targets[~mask] = -1  # ignore unmasked entries in loss
    total = sum(
        cross_entropy(pred, target, reduction="sum", ignore_index=-1)
        for pred, target in zip(preds, targets.T, strict=True)
    )
    assert isinstance(total, Tensor)
    return total / (targets != -1).sum()


def draw_mask(batch: Tensor, generator: torch.Generator) -> Tensor:
    threshold = torch.rand(len(batch), 1, generator=generator)
    return torch.rand(batch.shape, generator=generator) > threshold


def gen_batch(
    mdl: MaskedTransformer, n: int, fields: int, temps: Tensor, generator: torch.Generator
) -> Tensor:
    batch = zeros(n, fields, dtype=torch.int64)
    mask = ones(n, fields, dtype=torch.bool)
    for i in torch.randperm(fields, generator=generator).tolist():
        preds = mdl(batch, mask)
        probabilities = (preds[i].double() / temps[i]).softmax(1)
        drawn = torch.rand(n, 1, generator=generator, dtype=torch.float64)
        batch[:, i] = torch.searchsorted(probabilities.cumsum(1), drawn).squeeze(1)
        mask[:, i] = False
    return batch
