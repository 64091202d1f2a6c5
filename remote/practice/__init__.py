"""The practice node: a real SSH server on 127.0.0.1, real SGLang source, a simulated GPU server."""
