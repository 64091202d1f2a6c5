"""The faults that `inv practice.break` knows: what each does, and which check must find it.

To add one: a line in the table of its kind, made of steps from file_steps.py and process_steps.py.
"""

from __future__ import annotations

from remote.practice.file_faults import ACCESS, DRAFT, SOURCE
from remote.practice.gpu_faults import GPUS
from remote.practice.log_faults import LOGS
from remote.practice.process_faults import PROCESSES

FAULTS = {fault.name: fault for fault in (*SOURCE, *DRAFT, *PROCESSES, *LOGS, *GPUS, *ACCESS)}
