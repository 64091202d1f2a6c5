"""`inv report`: a node's deploy, what it proves now and what it brought, as one value."""
