"""A simulated SGLang server for the practice node: no GPU, no torch, real processes, sockets, signals and log
lines.

Runs on its own beside a copy of the package `wiring`; needs Python 3.10+ and `setproctitle`. What is
simulated is said wherever a person or a program could be misled: first log line, `"simulated": true` in
replies, `Server` header, --help.
"""
