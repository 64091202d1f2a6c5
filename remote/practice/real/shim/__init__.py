"""What is put into a real practice node's environment beside SGLang: runs there, never here."""
