"""fixops: deploy a fix to an SGLang node over SSH, and prove what runs there."""
