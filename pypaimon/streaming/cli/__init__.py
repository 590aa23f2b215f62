"""`paimon-stream`: the command line (extra `cli`). One module per command, which `app` imports."""
