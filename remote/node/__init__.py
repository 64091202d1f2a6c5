"""What runs on the node: standard library only, Python 3.8 or later, nothing installed there.

The modules of this package are sent to the node as text on the helper's standard input and imported
there under the name `fixops_node`, so they use relative imports among themselves and import nothing
else of this project. `base.py` tells the conventions of an operation.
"""
