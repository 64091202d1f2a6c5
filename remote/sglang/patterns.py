"""The lines of a log that matter: what the node sends instead of the whole file.

`LINES` are regular expressions without anchors, flags or groups that capture, in ASCII, so that they work
as text or as bytes, line by line or joined with `|`. `boots.read_lines` reads the lines they select as it
reads the whole log, except for the code lines of tracebacks, which it can do without.
"""

from __future__ import annotations

LINES: tuple[str, ...] = (
    # The record, ready, the decode lines, and the prefills that follow idleness.
    r"server_args=",
    r"ready to roll",
    r"Decode batch",
    r"Prefill batch.{0,400}?#running-req: 0,",
    # Stages.
    r"Init torch distributed begin",
    r"Load weight ",
    r" shards: ",
    r"Captur(?:e|ing) ",
    r"INFO:     [SWAUF]",
    # The end, in order or not.
    r"SIGTERM",
    r"Gracefully exiting",
    r"[Ss](?:IGQUIT|igquit) ",
    r"Killed|Aborted|Segmentation fault|Bus error|Fatal Python error",
    # Exceptions: their heads, their last lines, lines of their messages that tell.
    r"Traceback \(most recent",
    r" hit an exception",
    r"warmup error",
    r"(?:Error|Exception|Exit|Interrupt)(?::|\s*$)",
    r"size mismatch for |out of memory|captured \d+ of",
    r"File \"[^\"]{0,300}(?:eagle|server_args|arg_groups|vocab_parallel|argparse|deepseek_v2)",
    r"draft_worker = |aux_hidden_states\.",
    r"freeze_gc failed|Exception in ASGI|During handling of|The above exception",
    # What SGLang says of its children, its port, its arguments, its models.
    r"\[Errno (?:98|48)\]",
    r"atchdog timeout \(",
    r"scheduler is dead|[Ee]xit code:? -?\d",
    r"ProcessGroup\w+\.cpp",
    r"error: (?:argument|unrecognized|the following|ambiguous|one of)|usage: \S",
    r"Ignore import error|has no SGLang implementation",
    r"is adjusted|is reset to|change page_size|age size is|verlap schedul|ixed chunked|fallback to"
    r"|overriding |is set to|defaulting to|speculative_adaptive disabled|promoting --",
    r"launch_server|sglang serve|# requested:|DeepSeek MTP|RLIMIT_NOFILE",
)
