"""The names of the figures, by benchmark: they do not change, so that runs can be compared over time.

What they mean is in `docs/performance.md`. A figure is left out where a rival or a feature is missing; a note says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FIGURES: Final[Mapping[str, tuple[str, ...]]] = {
    "engine": (
        *("vs_encode_fp32", "vs_encode_same_precision", "fp32_vs_encode_fp32"),
        *("vs_arrival", "vs_arrival_same_precision", "vs_one_by_one", "vs_one_by_one_same_precision"),
        *("vs_infinity", "vs_onnx", "vs_openvino", "gemm_share_fp32", "gemm_share_best", "padding_waste_padded_64"),
    ),
    "fleet": (
        *("vs_engine", "vs_engine_32_a_job", "vs_arrival_worker", "vs_arrival_worker_same_precision"),
        *("vs_encode_per_message", "vs_rq", "jobs_per_s"),
    ),
    "latency": (
        *("idle_added_p50_ms", "idle_added_p99_ms", "load30_p50_ms", "load30_p99_ms"),
        *("load60_p50_ms", "load60_p99_ms", "load90_p50_ms", "load90_p99_ms"),
    ),
    "queue": (
        *("submit_us", "start_us", "finish_us", "server_cpu_us", "bytes_per_queued_job"),
        *("submit_us_aof", "start_us_aof", "finish_us_aof", "server_cpu_us_aof", "bytes_per_queued_job_aof"),
    ),
    "scheduling": ("collect_us", "collect_vs_sorting", "simulate_us"),
    "memory": ("rss_growth_mb", "peak_rss_mb", "pool_hit_rate"),
}
OPTIONAL: Final = frozenset(
    {"vs_infinity", "vs_onnx", "vs_openvino", "vs_rq", "gemm_share_fp32", "gemm_share_best", "pool_hit_rate"}
)
"""Those that need a rival that may not be installed, or a backend that shows what it is made of."""
