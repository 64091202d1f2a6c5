"""What SGLang prints and answers, read as data. Standard library only, no input and no output of its own.

`progress` follows a starting server, `failures` finds the first cause of a failure, `boots` reads a whole
log, `args` the `server_args` record, `decode` the decode lines, `metrics` the replies of the HTTP
interface, `speculation` predicts what SGLang makes of the speculative arguments, `redact` masks secrets,
`wrapped` those in lines that are shown apart, `patterns` names the lines that matter.
"""
